"""More idle connections than the process may open files: the log, its readers and its streams go on."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.client import Api, Connection, eventually
from conformance.process import command_environment

DESCRIPTORS = 300
CONNECTIONS = 320
WRITES, RECORDS, RECORD_BYTES = 3, 10, 900_000  # more than a file of the log holds
TIMEOUT_S = 15.0


class Limited:
    """A server that may open few files, whatever it asks for."""

    def __init__(self, directory: Path) -> None:
        self._log_path = directory / "log"
        command = ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh", sys.executable, "-m", "topics.cli.main"]
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "serve"],
                env=command_environment(directory, {"TOPICS_SEGMENT_MAX_EVENTS": "20"}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            eventually(lambda: (directory / "address").exists() or self.process.poll() is not None)
            assert self.process.poll() is None, self.log
            host, _, port = (directory / "address").read_text().rpartition(":")
            self.api = Api(host, int(port))
            eventually(lambda: self.api.get("/v0/ready").status == 200)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    @property
    def log(self) -> str:
        return self._log_path.read_text(errors="replace")


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Limited]:
    server = Limited(tmp_path)
    yield server
    server.end()


def ask(connection: Connection, request_line: str, body: Any = None) -> dict[str, Any]:
    """Over a connection that was there before the others came."""
    if body is None:
        connection.send(connection.head(request_line))
    else:
        connection.send(connection.json_request(request_line, json.dumps(body).encode()))
    reply = connection.reply()
    assert reply.status in {200, 201}, reply.body[:300]
    return reply.json


def test_idle_connections_take_no_descriptor_from_the_log_its_readers_and_its_streams(limited: Limited) -> None:
    api = limited.api
    text = "x" * RECORD_BYTES
    with contextlib.ExitStack() as stack:
        control = stack.enter_context(api.connection())
        watcher = stack.enter_context(api.connection())
        ask(control, "PUT /v0/topics/t", {"durability": "fsync"})
        ask(control, "PUT /v0/topics/short", {"ttl_ms": 1000})
        watch = {"topics": {"t": {"tail": True}}, "include_data": False}
        url = ask(control, "POST /v0/watch", watch)["stream_url"]
        watcher.send(watcher.head(f"GET {url}"))
        for _ in range(CONNECTIONS):
            idle = stack.enter_context(socket.socket())
            idle.settimeout(TIMEOUT_S)
            idle.connect((api.host, api.port))
            ask(control, "GET /v0/health")  # it was accepted: a connection that meets a full backlog waits a second
        eventually(lambda: "connections refused" in limited.log)
        for number in range(WRITES):
            records = [{"data": [number, place, text]} for place in range(RECORDS)]
            assert len(ask(control, "POST /v0/topics/t", {"records": records})["seqs"]) == RECORDS
            ask(control, "POST /v0/topics/short", {"records": [{"data": place} for place in range(30)]})

        found: list[list[int]] = []
        while len(found) < WRITES * RECORDS:
            page = ask(control, "POST /v0/topics/t/diff", {"from_seq": len(found), "limit": 1000})
            assert page["tombstone"] is None
            assert page["records"]
            found += [record["data"][:2] for record in page["records"]]
        assert found == [[number, place] for number in range(WRITES) for place in range(RECORDS)]

        # The stream has told of every record, the last one too.
        while f'"$seq":{WRITES * RECORDS},'.encode() not in watcher.stream.readline():
            pass
        # What expires is let go.
        eventually(lambda: ask(control, "GET /v0/topics/short?touch=false")["count"] == 0)
        assert ask(control, "GET /v0/ready")["status"] == "ready"
    limited.process.send_signal(signal.SIGTERM)
    assert limited.process.wait(TIMEOUT_S) == 0, limited.log
    assert "Traceback" not in limited.log
    assert "LimitNOFILE" in limited.log
