"""The protocol layer with nothing behind it: every request gets the same small reply.

Its rate is the most any handler can reach on this machine, and the write workload is compared with it. `python -m
topics.bench.empty_handler PORT_FILE` starts it, SIGTERM ends it.
"""

import asyncio
import signal
import sys
from pathlib import Path

import uvloop

from topics.api.connections import Connections
from topics.api.http import Request, Response
from topics.api.protocol import HttpProtocol
from topics.clock import SystemClock
from topics.errors import TopicsError

# As long as the reply to a write of one record.
BODY = (
    b'{"topic":"bench-write-1-00000000","first_seq":100000,"last_seq":100000,"seqs":[100000],"head_seq":100000,'
    b'"count":1,"created":false,"deduped":false,'
    b'"performance":{"server_total_ms":0.01,"wal_append_ms":0.0,"fsync_ms":0.0}}'
)


class EmptyApplication:
    """Ignores the request."""

    def __init__(self) -> None:
        self._response = Response(200, BODY)

    def admit(self, request: Request) -> Response | None:
        return None

    def handle(self, request: Request) -> Response:
        return self._response

    def refuse(self, error: TopicsError, request_id: str) -> Response:
        return Response(400, error.message.encode())


async def serve(port_file: Path) -> None:
    """Listens on a free loopback port until SIGTERM, and writes the port to `port_file`."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    clock = SystemClock()
    application = EmptyApplication()
    connections = Connections(clock)
    connections.start(loop)
    server = await loop.create_server(lambda: HttpProtocol(application, connections, clock), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    unfinished = port_file.with_suffix(".new")
    unfinished.write_text(f"{host}:{port}")
    unfinished.rename(port_file)
    await stopped.wait()
    server.close()
    connections.drain()
    await connections.drained(timeout_s=1.0)


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
