"""Many watchers for a while: nobody who reads loses anything, memory stays flat, and those who never read harm nobody.

200 SSE streams and 20 WebSockets for a few seconds; with TOPICS_TEST_EXHAUSTIVE=1 it is 1000 and 100 for a minute.
All clients live in this process on one event loop.
"""

import asyncio
import json
import re
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from conformance.client import Api, Topic
from conformance.process import ServerProcess
from sampling import EXHAUSTIVE
from topics.bench.clients import Client, EventStreamClient, RequestClient, WebSocketClient, connect
from topics.bench.http1 import render_request
from topics.bench.websocket_frames import render_frame, render_handshake

STREAMS, SOCKETS = (1000, 100) if EXHAUSTIVE else (200, 20)
SECONDS = 60.0 if EXHAUSTIVE else 4.0
WARM_UP_SHARE = 0.25
WRITES_PER_S = 20
RECORD_BYTES = 2000
RECORDS_MAX = 500  # no reader is ever so far behind
FLOOD_BYTES = 256 * 1024  # of each record in the topic that only those watch who do not read
FLOOD_RECORDS_MAX = 4
DEADLINE_S = 30.0
POLL_S = 0.01
FILES_NEEDED = 2 * (STREAMS + SOCKETS) + 200
# What the server may grow by after the warm-up: measured 1 MiB, 5 MiB in a minute. Holding on to what the ones who do
# not read have not read would be 15 MiB each.
GROWTH_BYTES_MAX = 10 * 1024 * 1024

seqs_of = re.compile(rb'"\$seq":(\d+)').findall
range_of = re.compile(rb'"from_seq":(\d+),"to_seq":(\d+),"head_seq":\d+\}$').search


class Receiver:
    """Checks every frame as it comes: records without a hole or a repetition, from wherever it began."""

    def __init__(self) -> None:
        self.cursor = 0
        self.live = False
        self.problem: str | None = None

    def take(self, frame: bytes) -> None:
        found = range_of(frame)
        if found is not None:
            from_seq, to_seq = int(found[1]), int(found[2])
            if from_seq != self.cursor or [int(seq) for seq in seqs_of(frame)] != [*range(from_seq + 1, to_seq + 1)]:
                self._complain(f"at {self.cursor} came {frame[:200]!r}")
            self.cursor = to_seq
        elif b"caught-up" in frame or b'"caught_up"' in frame:
            self.live = True
        elif not (frame.startswith((b"retry:", b": hb")) or b'"subscribed"' in frame):
            self._complain(f"unexpected: {frame[:200]!r}")

    def _complain(self, problem: str) -> None:
        self.problem = self.problem or problem


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_NEEDED:
        pytest.skip(f"needs {FILES_NEEDED} open files, and the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES_NEEDED), hard))
    process = ServerProcess(tmp_path, {})
    yield process
    process.stop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_nobody_who_reads_loses_anything_and_memory_stays_flat(server: ServerProcess) -> None:
    # Capped, so that the logs themselves do not grow for long.
    Topic(server.api, "soak").configure(cap_records=RECORDS_MAX)
    Topic(server.api, "flood").configure(cap_records=FLOOD_RECORDS_MAX)
    uvloop.run(soak(server))


async def soak(server: ServerProcess) -> None:
    api = server.api
    receivers = [Receiver() for _ in range(STREAMS + SOCKETS)]
    clients: list[Client] = [
        EventStreamClient(stream_request(api, "soak"), receiver.take) for receiver in receivers[:STREAMS]
    ]
    subscribe = b'{"op":"subscribe","topic":"soak"}'
    clients += [
        WebSocketClient(render_handshake(api.host), [subscribe], receiver.take) for receiver in receivers[STREAMS:]
    ]
    late = stream_request(api, "soak", "flood")
    try:
        await connect(clients, api.host, api.port)
        late_socket = render_handshake(api.host) + render_frame(b'{"op":"subscribe","topic":"flood"}')
        with never_reading(api, late), never_reading(api, late_socket):
            await until(lambda: all(receiver.live for receiver in receivers), clients)
            warm_up_s = SECONDS * WARM_UP_SHARE
            written = await write(api, warm_up_s)
            await until(lambda: all(receiver.cursor == written for receiver in receivers), clients)
            before_bytes = resident_bytes(server.pid)
            written += await write(api, SECONDS - warm_up_s)
            await until(lambda: all(receiver.cursor == written for receiver in receivers), clients)
            growth_bytes = resident_bytes(server.pid) - before_bytes
        # Its session is still there, and says what its client has missed.
        late_events: list[bytes] = []
        clients.append(EventStreamClient(late, late_events.append))
        await connect(clients[-1:], api.host, api.port)
        await until(lambda: any(b"event: tombstone" in event for event in late_events), clients)
    finally:
        for client in clients:
            client.close()
    assert [receiver.problem for receiver in receivers if receiver.problem] == []
    assert growth_bytes < GROWTH_BYTES_MAX


def stream_request(api: Api, *topics: str) -> bytes:
    session: dict[str, Any] = api.post("/v0/watch", {"topics": {topic: {"from_seq": 0} for topic in topics}}).json
    return render_request("GET", session["stream_url"], b"", host=api.host)


def never_reading(api: Api, request: bytes) -> socket.socket:
    """A client that opens a stream and does not read a byte of it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((api.host, api.port))
    sock.sendall(request)
    return sock


async def write(api: Api, seconds: float) -> int:
    """A record to each topic at a fixed rate; returns how many were acknowledged."""
    writers = {"soak": (RequestClient(), RECORD_BYTES), "flood": (RequestClient(), FLOOD_BYTES)}
    await connect([writer for writer, _ in writers.values()], api.host, api.port)
    requests = [
        (writer, render_request("POST", f"/v0/topics/{topic}", write_body(record_bytes), host=api.host))
        for topic, (writer, record_bytes) in writers.items()
    ]
    count = int(seconds * WRITES_PER_S)
    begin = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(begin + number / WRITES_PER_S - time.monotonic(), 0))
        for writer, request in requests:
            writer.request(request)
            await asyncio.wait_for(writer.ready.wait(), DEADLINE_S)
            assert writer.failure is None, writer.failure
    for writer, _ in requests:
        writer.close()
    return count


def write_body(record_bytes: int) -> bytes:
    return json.dumps({"records": [{"data": "x" * record_bytes}]}).encode()


async def until(condition: Callable[[], bool], clients: list[Client]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        lost = [client.lost for client in clients if client.lost]
        assert not lost, lost[:3]
        assert time.monotonic() < deadline, "not everybody got everything in time"
        await asyncio.sleep(POLL_S)


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()
