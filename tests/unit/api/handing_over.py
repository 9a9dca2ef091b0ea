"""An application that hands its connections over, the owner they go to, and the client at the other end."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fake_transport import DATE, Client, RecordingApplication, echo

from topics.api.connections import Connections
from topics.api.http import Channel, Request, Response, Streaming, Upgrade
from topics.errors import TopicsError, Unauthorized

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"
OFFER = b"GET /upgrade HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
LATER_STREAM = b"GET /later/stream HTTP/1.1\r\nHost: h\r\n\r\n"
LATER_OFFER = OFFER.replace(b"/upgrade", b"/later/upgrade")

SSE_HEADERS = ((b"cache-control", b"no-cache"), (b"connection", b"keep-alive"))
HEADER_LINES = b"cache-control: no-cache\r\nconnection: keep-alive\r\n"
CHUNKED_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    + DATE
    + HEADER_LINES
    + b"\r\n"
)
UNFRAMED_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + DATE + HEADER_LINES + b"\r\n"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"


class Owner:
    """Notes what it is told. A call named in `reactions` does that besides."""

    channel: Channel

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.input = b""
        self.reactions: dict[str, Callable[[], None]] = {}

    def opened(self, channel: Channel) -> None:
        self.channel = channel
        self._note("opened")

    def received(self, data: bytes) -> None:
        self.input += data
        self._note("received")

    def drained(self) -> None:
        self._note("drained")

    def end_with(self, error: TopicsError) -> None:
        self._note("revoked" if isinstance(error, Unauthorized) else "shutting_down")

    def closed(self) -> None:
        self._note("closed")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call in self.reactions:
            self.reactions[call]()


class HandingOver(RecordingApplication):
    """Hands /stream and /upgrade to its owner, under /later only once the test says so; echoes the rest."""

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self.owner = owner
        self.stream_headers: tuple[tuple[bytes, bytes], ...] = SSE_HEADERS
        self.stream_ends = False
        self.key_digest = b""
        self.release = asyncio.Event()
        self.answer = lambda request: (
            self._later(request) if request.path.startswith(b"/later") else self._hand_over(request)
        )

    def _hand_over(self, request: Request) -> Response:
        request.key_digest = self.key_digest
        if request.path.endswith(b"/stream"):
            return Streaming(
                200, b"", b"text/event-stream", self.stream_headers, owner=self.owner, ends=self.stream_ends
            )
        if request.path.endswith(b"/upgrade"):
            return Upgrade(101, b"", owner=self.owner, head=SWITCHING)
        return Response(200, echo(request))

    async def _later(self, request: Request) -> Response:
        await self.release.wait()
        return self._hand_over(request)


class Peer(Client):
    """A client of an application that hands over."""

    def __init__(self, connections: Connections | None = None) -> None:
        self.owner = Owner()
        self.handing_over = HandingOver(self.owner)
        super().__init__(self.handing_over, connections)

    @property
    def channel(self) -> Channel:
        return self.owner.channel

    @property
    def body(self) -> bytes:
        """What was sent behind the head."""
        return self.transport.sent.partition(b"\r\n\r\n")[2]


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test whose channels find a running loop."""

    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run
