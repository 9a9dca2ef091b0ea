"""The commands of a document, in order, and what it says they print.

Blocks of kind `sh` and `console` are run. Blocks of kind `bash` are not: they start servers, install packages or need
Spark. The settings beside their `topics serve` are those of the server that the other commands talk to.
"""

import re
import shlex
from typing import NamedTuple

_FENCE = re.compile(r"^ *```(?P<kind>\w*)\n(?P<text>.*?)^ *```$", re.DOTALL | re.MULTILINE)
_TIMES = re.compile(r'("(?:\w+_ms|\$ts|ts|\w+_ts|deadline)":)\d+(?:\.\d+)?')
_FIXED_MS = ("ttl_ms", "lease_ms", "window_ms", "jitter_ms", "delay_ms")
_IDS = re.compile(r"wid_[\w-]+|lease_[0-9a-f]{16,}|^id: [\w-]+$", re.MULTILINE)
_SETTING = re.compile(r"(TOPICS_\w+)=(.*)", re.DOTALL)


class Step(NamedTuple):
    """`printed` is None where the document does not say. Blanks count where it is `exact`: tables have to line up."""

    commands: str
    printed: str | None
    exact: bool = False


def steps_of(text: str) -> list[Step]:
    """The blocks of kind `sh`, each with the block right below it; and each `$` of the blocks of kind `console`."""
    fences = list(_FENCE.finditer(text))
    steps: list[Step] = []
    for number, fence in enumerate(fences):
        if fence["kind"] == "sh":
            below = fences[number + 1] if number + 1 < len(fences) else None
            joined = below is not None and below.start() == fence.end() + 1 and below["kind"] != "sh"
            steps.append(Step(fence["text"], below["text"] if below is not None and joined else None))
        elif fence["kind"] == "console":
            steps += _console(fence["text"])
    return steps


def settings_of(text: str) -> dict[str, str]:
    """What the document starts its server with."""
    settings: dict[str, str] = {}
    for fence in _FENCE.finditer(text):
        words = shlex.split(fence["text"], comments=True) if fence["kind"] == "bash" else []
        if "serve" in words:
            settings |= {found[1]: found[2] for word in words if (found := _SETTING.fullmatch(word))}
    return settings


def blocks_of(text: str, *kinds: str) -> list[str]:
    return [fence["text"] for fence in _FENCE.finditer(text) if fence["kind"] in kinds]


def conversations_of(text: str) -> list[str]:
    """The lines of WebSocket conversations: `> ` is sent, `< ` has to come."""
    fences = [fence["text"] for fence in _FENCE.finditer(text) if fence["text"].startswith("> {")]
    return [line for fence in fences for line in fence.splitlines()]


def _console(text: str) -> list[Step]:
    steps = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        end = next(index for index, each in enumerate(lines) if not each.endswith("\\")) + 1
        steps.append(Step("\n".join(lines[:end]) + "\n", "\n".join(lines[end:]) or None, exact=True))
    return steps


def masked(text: str) -> str:
    """Without white space, and without what is another one each time: times and ids."""
    text = _TIMES.sub(lambda found: found[0] if found[1].strip('":').endswith(_FIXED_MS) else f"{found[1]}0", text)
    return re.sub(r"\s+", "", _IDS.sub("id", text))


def prints(expected: str, printed: str) -> bool:
    """`…` in a document stands for anything."""
    pattern = ".*?".join(map(re.escape, masked(expected).split("…")))
    return re.fullmatch(pattern, masked(printed), re.DOTALL) is not None
