"""What the documents show is what happens: their commands are run, in order, from top to bottom, in one shell."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from acceptance.document_commands import Step, masked, prints, steps_of
from acceptance.server import Server

ROOT = Path(__file__).parents[2]
# Each with the heading its commands begin at, and the one they end before. Another document needs a line here.
DOCUMENTS = [
    ("README.md", "## Quickstart", "## Durability"),
    ("docs/api.md", "**On writes**", "**On queues**"),
]
ADDRESS = re.compile(r"(http://)?(localhost|127\.0\.0\.1):4000")

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the documents use curl")


def part_of(document: str, first: str, last: str) -> str:
    text = (ROOT / document).read_text()
    return text[text.index(first) : text.index(last)]


def run(steps: list[Step], server: Server, directory: Path) -> list[str]:
    """What each step prints."""
    address = f"http://{server.api.host}:{server.api.port}"
    script = "".join(f"{ADDRESS.sub(address, step.commands)}\necho; echo '<<<end>>>'\n" for step in steps)
    shell = {**os.environ, "TOPICS": address}
    done = subprocess.run(
        ["bash", "-s"], input=script, cwd=directory, env=shell, capture_output=True, text=True, check=False
    )
    return done.stdout.split("<<<end>>>")[:-1]


@pytest.mark.parametrize(("document", "first", "last"), DOCUMENTS)
def test_every_command_prints_what_the_document_shows(document: str, first: str, last: str, tmp_path: Path) -> None:
    steps = steps_of(part_of(document, first, last))
    assert steps
    server = Server(tmp_path)
    try:
        printed = run(steps, server, tmp_path)
        if document == "README.md":
            asyncio.run(_talk(part_of(document, "there is a WebSocket", "## Concepts"), server))
    finally:
        server.stop()
    assert len(printed) == len(steps)
    for step, output in zip(steps, printed, strict=True):
        where = f"{document}, {step.commands.splitlines()[0]!r}"
        if step.printed is None:
            assert '"error":{' not in output, f"{where} is refused: {output}"
        else:
            assert prints(step.printed, output), f"{where}\nshown:   {masked(step.printed)}\nprinted: {masked(output)}"


async def _talk(text: str, server: Server) -> None:
    """The lines with `>` are sent; those with `<` have to come."""
    lines = [line for line in text.splitlines() if line[:2] in ("> ", "< ")]
    assert lines
    async with connect(f"ws://{server.api.host}:{server.api.port}/v0/ws") as socket:
        for line in lines:
            if line.startswith("> "):
                await socket.send(line[2:])
                continue
            async with asyncio.timeout(10):
                while json.loads(came := str(await socket.recv()))["op"] == "caught_up":
                    pass
            assert prints(line[2:], came), f"shown:   {line[2:]}\ncame: {came}"


def test_a_shown_reply_may_leave_things_out_but_not_differ() -> None:
    assert prints('{"a":1,…,"server_total_ms":0.1}', '{"a":1,"b":2,"server_total_ms":7.25}')
    assert not prints('{"a":1,…}', '{"a":2,"b":3}')
    assert not prints('{"ttl_ms":5}', '{"ttl_ms":6}')
    assert prints('{"wid":"wid_a"}', '{"wid": "wid_b"}')
