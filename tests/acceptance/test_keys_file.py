"""TOPICS_API_KEYS_FILE and SIGHUP on a real server: who gets in, who is shut out, and what that ends."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from conformance.client import Api, assert_error, eventually, success
from conformance.process import ServerProcess, output_of_refused_start
from conformance.sse import streaming, watching

TIMEOUT_S = 60.0


def line(secret: str, rights: str = "") -> str:
    return f"sha256:{hashlib.sha256(secret.encode()).hexdigest()}{rights}\n"


class Guarded:
    """A server with a file of keys."""

    def __init__(self, directory: Path, *lines: str) -> None:
        self._file = directory / "keys"
        self._write(lines)
        settings = {"TOPICS_API_KEYS": "ops", "TOPICS_API_KEYS_FILE": str(self._file)}
        self.process = ServerProcess(directory, settings)
        self.ops = self.api("ops")
        self._hang_ups = 0

    def api(self, key: str) -> Api:
        return self.process.api.with_key(key)

    def reload(self, *lines: str) -> str:
        """Has the server read these lines; returns what it said."""
        self._write(lines)
        self._hang_ups += 1
        os.kill(self.process.pid, signal.SIGHUP)
        eventually(lambda: len(self._said()) == self._hang_ups)
        return self._said()[-1]

    def _write(self, lines: tuple[str, ...]) -> None:
        self._file.write_text("".join(lines))
        self._file.chmod(0o600)

    def _said(self) -> list[str]:
        return [each for each in self.process.log().splitlines() if "SIGHUP" in each]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path, line("old"), line("stays", ":read"))
    yield guarded
    guarded.process.stop()


def test_keys_come_and_go_without_a_restart(guarded: Guarded) -> None:
    with guarded.api("old").connection() as connection:
        request = connection.head("GET /v0/topics")
        connection.send(request)
        assert connection.reply().status == 200
        said = guarded.reload(line("new", ":read"), line("stays", ":read"))
        assert "keys read again: 3 in all, 1 removed or changed; connections ended: 0" in said
        connection.send(request)  # the very head that was accepted
        assert_error(connection.reply(), 401, "unauthorized")
    assert guarded.api("new").get("/v0/topics").status == 200
    assert guarded.api("new").put("/v0/topics/t").status == 403
    assert guarded.api("stays").get("/v0/topics").status == 200
    assert guarded.ops.put("/v0/topics/t").status == 201


def test_whatever_a_removed_key_has_open_ends_and_the_rest_goes_on(guarded: Guarded) -> None:
    old, stays = guarded.api("old"), guarded.api("stays")
    success(guarded.ops.put("/v0/topics/t", {}))
    success(guarded.ops.put("/v0/topics/jobs", {"type": "queue"}))
    with (
        ThreadPoolExecutor(1) as pool,
        watching(old, {"t": {}}) as watch,
        watching(stays, {"t": {}}) as other,
        streaming(old, "/v0/topics/jobs/work?node=w") as work,
        connect(
            f"ws://{old.host}:{old.port}/v0/ws", additional_headers={"Authorization": "Bearer old"}, proxy=None
        ) as socket,
    ):
        poll = pool.submit(old.post, "/v0/topics/t/diff", {"wait_ms": 14_000})
        eventually(lambda: guarded.ops.get("/v0/topics/t?touch=false").json["last_read_ts"] is not None)
        eventually(lambda: _waiting(guarded.ops) == 1)
        said = guarded.reload(line("stays", ":read"))
        assert "1 removed or changed; connections ended: 4" in said
        for stream in (watch, work):
            last = stream.rest()[-1]
            assert (last.event, last.json["code"]) == ("error", 401)
        told = json.loads(socket.recv(TIMEOUT_S))
        assert (told["op"], told["code"]) == ("error", "unauthorized")
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(TIMEOUT_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
        assert_error(poll.result(TIMEOUT_S), 401, "unauthorized")
        success(guarded.ops.post("/v0/topics/t", {"records": [{"data": 1}]}))
        assert other.until("record")[-1].seqs == [1]


def _waiting(api: Api) -> int:
    text = api.get("/v0/metrics").body.decode()
    return int(next(each.split()[1] for each in text.splitlines() if each.startswith("topics_long_polls ")))


def test_a_key_with_less_rights_loses_what_it_had_open(guarded: Guarded) -> None:
    success(guarded.ops.put("/v0/topics/t", {}))
    with watching(guarded.api("old"), {"t": {}}) as stream:
        guarded.reload(line("old", ":read:other."), line("stays", ":read"))
        assert stream.rest()[-1].json["code"] == 401
    assert guarded.api("old").get("/v0/topics/t").status == 403


@pytest.mark.parametrize("bad", ["plain-secret\n", "", line("ops")])
def test_a_bad_file_keeps_the_keys_and_says_so_in_one_line(guarded: Guarded, bad: str) -> None:
    said = guarded.reload(bad)
    assert "SIGHUP: the keys stay as they were, because " in said
    assert "plain-secret" not in guarded.process.log()
    assert guarded.api("old").get("/v0/topics").status == 200


def test_a_server_does_not_start_with_a_bad_file(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{line('a')}plain-secret\n")
    output = output_of_refused_start(tmp_path, {"TOPICS_API_KEYS_FILE": str(tmp_path / "keys")})
    assert f"TOPICS_API_KEYS_FILE={tmp_path / 'keys'}: line 2 is not sha256:" in output
    assert "plain-secret" not in output


def test_the_line_of_a_generated_key_lets_it_in(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "topics.cli.main",
        "keys",
        "generate",
        "--scopes",
        "read",
        "--prefix",
        "t:",
        "--json",
    ]
    made = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S).stdout)
    assert made["key"] not in made["file_line"]
    guarded = Guarded(tmp_path, made["file_line"])
    try:
        assert guarded.api(made["key"]).get("/v0/topics").status == 200
        assert guarded.api(made["key"]).get("/v0/topics/other").status == 403
    finally:
        guarded.process.stop()
