"""What the documents show is what happens: their commands are run, in order, from top to bottom, in one shell."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from acceptance.document_commands import conversations_of, prints, settings_of, steps_of
from acceptance.guide import Shell, agrees
from acceptance.server import Server

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md",
    "docs/api.md",
    "docs/cli.md",
    "docs/comparison.md",
    "docs/fan-out.md",
    "docs/job-queue.md",
    "docs/ledger.md",
    "docs/mental-model.md",
    "docs/multi-master.md",
    "docs/operating.md",
    "docs/pub-sub.md",
    "docs/quickstart.md",
    "docs/security.md",
]
REPLY_S_MAX = 60.0

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the documents use curl")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_prints_what_the_document_shows(document: str, tmp_path: Path) -> None:
    text = (ROOT / document).read_text()
    steps = steps_of(text)
    assert steps
    server = Server(tmp_path, **settings_of(text))
    shell = Shell(tmp_path, f"http://{server.api.host}:{server.api.port}")
    try:
        wrong = []
        for step in steps:
            printed = shell.run(step)
            if not agrees(printed, step):
                wrong.append(f"$ {step.commands}{printed}")
        assert not wrong, "\n".join(wrong)
        asyncio.run(_talk(conversations_of(text), server))
    finally:
        shell.close()
        server.stop()


async def _talk(lines: list[str], server: Server) -> None:
    if not lines:
        return
    async with connect(f"ws://{server.api.host}:{server.api.port}/v0/ws") as socket:
        for line in lines:
            if line.startswith("> "):
                await socket.send(line[2:])
                continue
            async with asyncio.timeout(REPLY_S_MAX):
                while json.loads(came := str(await socket.recv()))["op"] == "caught_up":
                    pass
            assert prints(line[2:], came), f"shown:   {line[2:]}\ncame: {came}"


def test_a_shown_reply_may_leave_things_out_but_not_differ() -> None:
    assert prints('{"a":1,…,"server_total_ms":0.1}', '{"a":1,"b":2,"server_total_ms":7.25}')
    assert not prints('{"a":1,…}', '{"a":2,"b":3}')
    assert not prints('{"ttl_ms":5}', '{"ttl_ms":6}')
    assert prints('{"wid":"wid_a"}', '{"wid": "wid_b"}')


def test_a_server_of_a_document_has_the_settings_it_is_started_with_there() -> None:
    text = "```bash\nTOPICS_API_KEYS='a:read,b' topics serve  # keys\n```\n```sh\nTOPICS_PORT=1 topics serve\n```\n"
    assert settings_of(text) == {"TOPICS_API_KEYS": "a:read,b"}
    assert [step.commands for step in steps_of(text)] == ["TOPICS_PORT=1 topics serve\n"]
