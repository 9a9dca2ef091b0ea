"""Runs the steps of a document as its reader would, and holds what they print against what it shows.

In a block of kind `console` blanks count: tables have to line up. `…` stands for anything within a line, and alone for
any lines. Times, addresses and lease ids may differ, and so may the figures of a benchmark. A command whose output ends
in `^C` runs until that is shown, and is then interrupted. Replies below a block of kind `sh` are compared without their
white space. All share one shell, one directory and one server, which ends with `systemctl stop topics`.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from acceptance import document_commands
from acceptance.document_commands import Step
from acceptance.terminal import environment, masked

ROOT = Path(__file__).parents[2]
END = "--- end of the command"
INTERRUPTED = "^C"
COMMAND_S_MAX = 120.0
POLL_S = 0.05
SQLITE = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])"
COMMANDS = {
    "topics": '"{python}" -m topics.cli.main',
    "python": '"{python}"',
    "sqlite3": f'"{{python}}" -c "{SQLITE}"',
}
ADDRESS = re.compile(r"(http://)?(localhost|127\.0\.0\.1):4000")
# Where a document's server keeps its data and its backups. The test has both elsewhere.
DATA, BACKUPS = "/var/lib/topics", "/backups"
BENCHMARK = "topics bench "
PROGRESS = re.compile(r"^(?:checking|copying|writing): .*\n", re.MULTILINE)
STOP = "systemctl stop topics"
# A benchmark prints other figures each time. Too few turns for a range have none.
FIGURES = (
    (re.compile(r", likely [\d.]+ to [\d.]+"), ""),
    (re.compile(r"\d+(?: \d{3})*(?:\.\d+)?"), "N"),
    (re.compile(r"\((?:met|missed):"), "(met or missed:"),
    (re.compile(r"(?: {2,}|─+)+"), "  "),
)


def agrees(printed: str, step: Step) -> bool:
    """What is not shown may be anything but a refusal. What was interrupted may have gone on behind what is shown."""
    if not step.exact:
        return '"error":{' not in printed if step.printed is None else document_commands.prints(step.printed, printed)
    is_benchmark = step.commands.startswith(BENCHMARK)
    lines = (_without_figures if is_benchmark else masked)(step.printed or "").splitlines()
    goes_on = is_interrupted(step)
    pattern = ""
    for line in lines[:-1] if goes_on else lines:
        pattern += r"(?:.*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
    shown = (_without_figures if is_benchmark else masked)(_ended(printed))
    return (re.match if goes_on else re.fullmatch)(pattern, shown) is not None


def _without_figures(text: str) -> str:
    for pattern, instead in FIGURES:
        text = pattern.sub(instead, text)
    return text


def _ended(printed: str) -> str:
    """curl leaves its last line open. On a slow machine commands say how far they are; a terminal overwrites that."""
    printed = PROGRESS.sub("", printed)
    return printed if not printed or printed.endswith("\n") else f"{printed}\n"


def is_interrupted(step: Step) -> bool:
    return step.printed is not None and step.printed.endswith(INTERRUPTED)


class Shell:
    """One bash for a whole guide: what one command sets or writes is there for the next."""

    def __init__(self, directory: Path, url: str, stop_server: Callable[[], None]) -> None:
        tools = directory / "bin"
        tools.mkdir()
        for name, command in COMMANDS.items():
            (tools / name).write_text(f'#!/bin/sh\nexec {command.format(python=sys.executable)} "$@"\n')
            (tools / name).chmod(0o755)
        (tools / ".curlrc").write_text("silent\nshow-error\n")
        (directory / "work").mkdir()
        for folder in ("examples", "src"):  # as in a checkout
            (directory / "work" / folder).symlink_to(ROOT / folder)
        self._url = url
        self._stop_server = stop_server
        self._places = {DATA: str(directory / "data"), BACKUPS: str(directory / "backups")}
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        self._environment = environment(url, PATH=path, CURL_HOME=str(tools), TOPICS=url)
        self._directory = directory / "work"
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._directory,
            env=self._environment,
            text=True,
        )

    def close(self) -> None:
        self._process.communicate()

    def run(self, step: Step) -> str:
        if step.commands.strip() == STOP:
            self._stop_server()
            return ""
        commands = ADDRESS.sub(self._url, step.commands)
        for written, here in self._places.items():
            commands = commands.replace(written, here)
        printed = self._run_until(step, commands) if is_interrupted(step) else self._run(commands)
        for written, here in self._places.items():
            printed = printed.replace(here, written)
        return printed

    def _run(self, commands: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{commands}\necho '{END}'\n")
        self._process.stdin.flush()
        printed = ""
        for line in self._process.stdout:
            if line.rstrip("\n").endswith(END):
                return printed + line.rstrip("\n").removesuffix(END)
            printed += line
        raise AssertionError(f"the shell ended: {printed}")

    def _run_until(self, step: Step, commands: str) -> str:
        """Until everything expected was printed; then Ctrl-C, which has to be a clean end."""
        output = self._directory.parent / "output"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {commands}"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environment,
            )
        try:
            for _ in range(int(COMMAND_S_MAX / POLL_S)):
                if agrees(output.read_text(), step) or process.poll() is not None:
                    break
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
            process.send_signal(signal.SIGINT)
            status = process.wait(COMMAND_S_MAX)
        finally:
            process.kill()
            process.wait()
        printed = output.read_text()
        return printed if status == 0 else f"{printed}ended with status {status}\n"
