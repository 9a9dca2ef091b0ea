"""What the documents show is what happens: their commands are run, in order, from top to bottom, in one shell."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from acceptance.document_commands import Step, blocks_of, conversations_of, prints, settings_of, steps_of
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
    "examples/audit-log/README.md",
    "examples/cdc-sqlite/README.md",
]
# Their examples need more than a shell and a server. Each names its document.
ELSEWHERE = {
    "docs/client.md": "tests/acceptance/test_client_document.py",
    "docs/pipelines.md": "tests/spark/test_documented_pipelines.py",
    "docs/spark.md": "tests/spark/test_documented_examples.py",
    "examples/chat/README.md": "tests/browser/test_chat_example.py",
    "examples/image-resizing/README.md": "tests/acceptance/test_examples.py",
    "examples/iot-rollups/README.md": "tests/spark/test_examples.py",
    "examples/webhooks/README.md": "tests/acceptance/test_examples.py",
}
NOT_RUN = {
    "CONTRIBUTING.md": "it says how to run these tests",
    "docs/scaling.md": "ten million records take half an hour",
}
REPLY_S_MAX = 60.0

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the documents use curl")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_prints_what_the_document_shows(document: str, tmp_path: Path) -> None:
    text = (ROOT / document).read_text()
    steps = steps_of(text)
    assert steps
    server = Server(tmp_path, **settings_of(text))
    shell = Shell(tmp_path, f"http://{server.api.host}:{server.api.port}", server.stop)
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


def test_how_far_a_command_is_on_a_slow_machine_is_not_compared() -> None:
    shown = Step("topics verify d\n", "d: sound", exact=True)
    assert agrees("checking:  50% of 1.4 MB\nd: sound\n", shown)
    assert not agrees("checked\nd: sound\n", shown)


def test_the_figures_of_a_benchmark_may_differ_and_nothing_else() -> None:
    shown = Step(
        "topics bench write\n", "…\n  topics  30 977  0.5\n  a / b = 0.54, likely 0.5 to 0.6  (met: at least 0.5)", True
    )
    assert agrees("starting\n  topics  9  0.25\n  a / b = 1.1  (missed: at least 0.5)\n", shown)
    assert not agrees("starting\n  topics  9  0.25\n  a / c = 1.1  (missed: at least 0.5)\n", shown)


def test_a_server_of_a_document_has_the_settings_it_is_started_with_there() -> None:
    text = "```bash\nTOPICS_API_KEYS='a:read,b' topics serve  # keys\n```\n```sh\nTOPICS_PORT=1 topics serve\n```\n"
    assert settings_of(text) == {"TOPICS_API_KEYS": "a:read,b"}
    assert [step.commands for step in steps_of(text)] == ["TOPICS_PORT=1 topics serve\n"]


def test_every_document_with_examples_is_run_by_a_test() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    shown = {
        str(path.relative_to(ROOT)) for path in documents if blocks_of(path.read_text(), "sh", "console", "python")
    }
    assert shown == {*DOCUMENTS, *ELSEWHERE, *NOT_RUN}
    for document, test in ELSEWHERE.items():
        named = document.removeprefix("docs/").removeprefix("examples/").removesuffix("/README.md")
        assert named in (ROOT / test).read_text(), f"{test} does not run {document}"


def test_the_first_hour_of_a_stranger_has_every_document() -> None:
    script = (ROOT / "scripts/first_hour.py").read_text()
    assert [test for test in {*ELSEWHERE.values(), "tests/acceptance/test_documents.py"} if test not in script] == []


def test_the_arrow_example_reads_every_record(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="the example reads Arrow")
    (example,) = blocks_of((ROOT / "docs/api.md").read_text(), "python")
    server = Server(tmp_path)
    try:
        server.api.post("/v0/topics/orders", {"records": [{"data": {"sku": "kettle"}, "tag": "ada"}, {"data": 2}]})
        names: dict[str, Any] = {}
        code = example.replace("http://127.0.0.1:4000", f"http://{server.api.host}:{server.api.port}")
        exec(compile(code, "docs/api.md", "exec"), names)
        rows = names["orders"].select(["seq", "tag", "data"]).to_pylist()
    finally:
        server.stop()
    assert rows == [
        {"seq": 1, "tag": "ada", "data": '{"sku":"kettle"}'},
        {"seq": 2, "tag": None, "data": "2"},
    ]
