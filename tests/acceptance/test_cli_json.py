"""Every command with --json: stdout has one object a line and nothing else."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from acceptance.terminal import environment
from conformance.client import eventually
from conformance.process import ServerProcess
from topics.cli import commands
from topics.cli.main import main

# These have no --json, or one of their own that is tested where they are.
OTHERS = {"demo", "serve", "settings", "completion", "verify", "inspect", "backup", "restore", "pipeline", "bench"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process = ServerProcess(tmp_path_factory.mktemp("server"), {})
    yield f"http://{process.api.host}:{process.api.port}"
    process.stop()


class Asked:
    """Runs commands in this process, and remembers which were run."""

    done: set[str] = set()  # noqa: RUF012 (shared by the tests of this file on purpose)

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._url = url
        self._capsys = capsys

    def __call__(self, *words: str, status: int = 0) -> list[Any]:
        before, _, behind = " ".join(words).partition(" -- ")
        options = [*words[: len(before.split(" "))], "--json", "--url", self._url]
        command = ["--", *words[len(before.split(" ")) + 1 :]] if behind else []
        assert main([*options, *command]) == status
        Asked.done.add(words[0])
        captured = self._capsys.readouterr()
        objects = [json.loads(line) for line in captured.out.splitlines()]
        assert all(isinstance(each, dict) for each in objects)
        return objects


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Gives this process another stdin."""
    with ExitStack() as stack:

        def give(content: bytes) -> None:
            reading, writing = os.pipe()
            os.write(writing, content)
            os.close(writing)
            monkeypatch.setattr(sys, "stdin", stack.enter_context(os.fdopen(reading)))

        yield give
        monkeypatch.undo()


@pytest.fixture
def ask(url: str, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(url, capsys)


def test_topics(ask: Asked) -> None:
    assert ask("create", "log", "--cap-records", "2")[0]["created"] is True
    assert ask("create", "log")[0]["created"] is False
    assert ask("config", "log", "--ttl", "7d")[0]["config"]["ttl_ms"] == 604_800_000
    assert ask("config", "log", "--schema", "sku bigint")[0]["config"]["schema"] == "sku bigint"
    assert "schema" not in ask("config", "log", "--schema", "none")[0]["config"]
    assert ask("put", "log", "1", "2", "3", "--tag", "x")[0]["last_seq"] == 3
    (listed,) = ask("ls", "log")
    assert (listed["topic"], listed["count"], listed["lost"]) == ("log", 2, 1)
    (shown,) = ask("show", "log")
    assert (shown["head_seq"], shown["losses"][0]["reason"], shown["config"]["cap_records"]) == (3, "cap", 2)
    assert ask("rm", "log", "--yes")[0]["deleted"] is True
    assert ask("rm", "log", "--yes", status=2) == []


def test_records(ask: Asked, typed: Callable[[bytes], None]) -> None:
    typed(b'{"id":"a","n":1.0}\n\n{"id":"b","n":1e400}\n')
    replies = ask("put", "records", "--tag-from", ".id", "--producer", "p")
    assert [(reply["first_seq"], reply["count"], reply["next_sequence"]) for reply in replies] == [(1, 1, 2), (2, 1, 4)]
    read = ask("tail", "records")
    assert [(each["$seq"], each["$tag"]) for each in read] == [(1, "a"), (2, "b")]
    assert ask("tail", "records", "--fields", "seq,.id", "--tag", "b") == [{"seq": 2, ".id": "b"}]
    assert ask("delete", "records", "--match", "a", "--preview")[0]["count"] == 1
    assert ask("delete", "records", "--match", "a", "--yes")[0]["deleted"] == 1
    assert ask("delete", "records", "--match", "a", "--yes")[0]["count"] == 0
    assert ask("delete", "records", status=2) == []


def test_keys_of_records_are_used_once(ask: Asked, typed: Callable[[bytes], None]) -> None:
    for new in (2, 0):
        typed(b'{"id":1}\n{"id":2}\n')
        replies = ask("put", "keyed", "--key-from", ".id")
        assert [reply["deduped"] for reply in replies].count(False) == new
    typed(b'{"no":1}\n')
    assert ask("put", "keyed", "--key-from", ".id", status=2) == []
    assert ask("put", "keyed", "1", "--key", "k")[0]["deduped"] is False
    assert ask("put", "keyed", "1", "--key", "k")[0]["deduped"] is True


def test_cursors_and_routers(ask: Asked) -> None:
    ask("put", "source", "1", "2")
    assert ask("cursor", "set", "source", "me", "1")[0]["lag"] == 1
    assert [cursor["name"] for cursor in ask("cursor", "ls", "source")] == ["me"]
    assert ask("cursor", "rm", "source", "me")[0]["deleted"] is True
    assert ask("cursor", "rm", "source", "me", status=1)[0]["deleted"] is False
    assert ask("router", "add", "source", "dest", "--filter", "x*")[0]["filter"] == ["tag", "Glob", "x*"]
    assert ask("router", "ls")[0]["router"] == "source->dest"
    assert ask("router", "graph")[0]["dest"] == "dest"
    assert ask("router", "rm", "source->dest")[0]["deleted"] is True
    assert ask("router", "rm", "source->dest", status=1)[0]["deleted"] is False


def test_queues(ask: Asked) -> None:
    ask("create", "jobs", "--queue", "--max-deliveries", "1", "--dead-letter", "dead")
    ask("put", "jobs", '"a"', '"b"', '"c"')
    (job,) = ask("queue", "claim", "jobs", "--node", "me")
    assert (job["$seq"], job["data"]) == (1, "a")
    assert ask("queue", "leases", "jobs")[0]["node"] == "me"
    assert [each["leased_to"] for each in ask("queue", "peek", "jobs")] == ["me", None, None]
    assert ask("queue", "extend", "jobs", "1", "--node", "me", "--lease", "1m")[0]["extended"] == 1
    assert ask("queue", "ack", "jobs", "1", "--node", "me", "--lease-id", "lease_0", status=1)[0]["skipped"] == [1]
    assert ask("queue", "ack", "jobs", "1", "2", "--node", "me", "--lease-id", "lease_0", status=2) == []
    assert ask("queue", "ack", "jobs", "1", "--node", "me", "--lease-id", job["lease_id"])[0]["acked"] == 1
    ask("queue", "claim", "jobs", "--node", "me")
    assert ask("queue", "nack", "jobs", "2", "--node", "me")[0]["nacked"] == 1
    # Delivered as often as it may be: it goes, and the next one is handed out.
    assert [job["$seq"] for job in ask("queue", "claim", "jobs", "--node", "me")] == [3]
    assert ask("queue", "claim", "jobs", "--node", "me", status=1) == []
    assert ask("queue", "redrive", "jobs")[0]["redriven"] == 1
    ask("queue", "ack", "jobs", "3", "--node", "me")
    (done,) = ask("work", "jobs", "--drain", "--", "sh", "-c", "cat >/dev/null")
    assert (done["seq"], done["exit_code"], done["lost_lease"]) == (4, 0, False)


def test_the_server_and_this_machine(ask: Asked) -> None:
    (picture,) = ask("top", "--once", "--every", "100ms")
    assert picture["server"]["version"]
    assert picture["rates"].keys() == {topic["topic"] for topic in picture["topics"]}
    checks = ask("doctor")
    assert {"version", "settings", "keys", "disk", "sync", "files", "server"} <= {each["check"] for each in checks}
    assert {each["level"] for each in checks} <= {"good", "advice"}


def test_doctor_finds_what_would_not_start(ask: Asked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOPICS_WAL_SHARDS", "0")
    broken = [each for each in ask("doctor", status=1) if each["level"] == "broken"]
    assert [(each["check"], each["next"]) for each in broken] == [
        ("settings", "TOPICS_WAL_SHARDS=0: use a number from 1 to 64")
    ]


def test_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "generate", "--scopes", "read", "--prefix", "a:", "--prefix", "b", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["entry"] == f"{made['key']}:read:a:|b"
    Asked.done.add("keys")


def test_what_is_live_is_printed_as_it_comes(ask: Asked, url: str, tmp_path: Path) -> None:
    ask("put", "live", "1")
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "topics.cli.main", "watch", "live", "--json"], stdout=file, env=environment(url)
        )
    try:
        eventually(lambda: b'"$caught_up"' in output.read_bytes())
        ask("put", "live", "2")
        eventually(lambda: b'"data":2}' in output.read_bytes())
    finally:
        process.terminate()
        process.wait()
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert lines[0] == {"$topic": "live", "$caught_up": {"head_seq": 1}}
    Asked.done.add("watch")


def test_no_command_was_left_out() -> None:
    assert set(commands.names()) - OTHERS == Asked.done
