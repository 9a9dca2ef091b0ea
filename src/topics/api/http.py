"""Requests and responses as values, between `protocol` (bytes and sockets) and `application` (meaning).

Neither side of this module knows the other: the protocol never looks into a body, the application
never sees a socket. An answer that has no end, or is not HTTP, is a `Streaming` or an `Upgrade`: with it the
application hands the connection to an owner, which from then on talks to its `Channel`.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol

from msgspec import Struct

from topics.delivery.commits import settled
from topics.engine.journal import Commit
from topics.errors import TopicsError

JSON = b"application/json"


class Request(Struct, gc=False):
    """One complete HTTP request. `headers` has lower-case names; if a header is repeated, the first counts.

    `offers_upgrade` is what allows an `Upgrade` as the answer; the `upgrade` header alone does not. `waits` is set by
    the application if the answer waits for something to happen: a client that may be gone by then does not get it.
    `key_digest`, which it sets too, tells whose key was accepted; empty where none is needed.
    """

    method: bytes
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    body: bytes = b""
    received_ns: int = 0
    request_id: str = ""
    http_1_0: bool = False
    offers_upgrade: bool = False
    waits: bool = False
    key_digest: bytes = b""


class Response(Struct, gc=False):
    """What to answer. Length, date, keep-alive and compression are the protocol's business."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Waiting:
    """An answer that is there once `commit` is done, and then takes one plain call: no task, no future. Whoever can
    wait may await it instead."""

    __slots__ = ("_make", "_on_end", "commit")

    def __init__(self, commit: Commit, make: Callable[[], Response], on_end: Callable[[], None] | None = None) -> None:
        """`on_end` is called once: when the answer is taken, or when nobody waits for it any more."""
        self.commit = commit
        self._make = make
        self._on_end = on_end

    def result(self) -> Response:
        """The answer, once the commit is done."""
        self.drop()
        return self._make()

    def drop(self) -> None:
        """Nobody waits for it any more."""
        if self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            on_end()

    def __await__(self) -> Generator[Any, Any, Response]:
        try:
            yield from settled(self.commit).__await__()
        except BaseException:
            self.drop()
            raise
        return self.result()


class Channel(Protocol):
    """A connection that has been handed over, as its owner sees it. Nothing here ever raises."""

    @property
    def writable(self) -> bool:
        """False while the client reads too slowly; `drained` tells when it is True again.

        What is written nevertheless is kept for the client, up to `STREAM_BUFFER_BYTES_MAX`. A write that begins while
        it is True may be of any size.
        """
        ...

    @property
    def written_bytes(self) -> int:
        """What was written so far, as it is sent."""
        ...

    @property
    def left_bytes(self) -> int:
        """How much of that is known to have left the process. It never shrinks."""
        ...

    def write(self, data: bytes) -> None:
        """Sends `data` at the end of this turn of the loop. Once closed, does nothing."""
        ...

    def send(self, data: bytes) -> bool:
        """Sends `data` now, if nothing else waits to be sent; else like `write`. For an owner that is the only one to
        write in this turn. Returns True when all that was written so far has left the process."""
        ...

    def pause_reading(self) -> None:
        """Reads no more, so that the client has to wait. Meanwhile a hang-up goes unnoticed.

        For upgrades: nothing that a stream reads reaches its owner anyway.
        """
        ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Ends the connection once what was written has been sent, or can't be in `STREAM_CLOSE_TIMEOUT_S`."""
        ...

    def abort(self) -> None:
        """Ends the connection now, whatever is unsent."""
        ...


class ChannelOwner(Protocol):
    """Whoever an application hands a connection to. All calls come from the loop, one at a time.

    One that raises is reported in the log and loses its connection; it is still told `closed`.
    """

    def opened(self, channel: Channel) -> None:
        """The connection is yours. The head of the answer leaves together with what is written here."""
        ...

    def received(self, data: bytes) -> None:
        """Raw bytes from the client, beginning with those right behind the request. Only after an `Upgrade`."""
        ...

    def drained(self) -> None:
        """The client has caught up: the channel is writable again."""
        ...

    def end_with(self, error: TopicsError) -> None:
        """The server stops, or the key that opened the connection is no longer valid: say so and close."""
        ...

    def closed(self) -> None:
        """The connection is gone, for whatever reason. The last call, and the only one that always comes.

        It comes without `opened`, too: for a HEAD request, or when the client left before its turn came.
        Whatever was set aside for the connection when it was answered is given back here.
        """
        ...


class Streaming(Response, kw_only=True, gc=True):
    """An answer whose body `owner` writes, for as long as it likes. `ends`: by itself, and so a client that has shut
    its sending side gets all of it; a stream without an end is over then.

    Nothing is added to `headers` but the date, for HTTP/1.1 chunks, and `connection: close` if it says nothing of the
    connection. The answer is the connection's last.
    """

    owner: ChannelOwner
    ends: bool = False


class Upgrade(Response, kw_only=True, gc=True):
    """An answer after which the connection speaks another protocol: `owner` writes and reads raw bytes.

    `head` is the whole `101 Switching Protocols`, empty line included. Only for a request that `offers_upgrade`.
    """

    owner: ChannelOwner
    head: bytes


HandOver = Streaming | Upgrade


class Application(Protocol):
    """What the protocol talks to. None of these may raise."""

    def admit(self, request: Request) -> Response | None:
        """Called with the headers alone, before a large body is read: a refusal, or None to read on."""
        ...

    def handle(self, request: Request) -> Response | Waiting | Coroutine[Any, Any, Response]:
        """Answers at once, or has the answer waited for: until a commit is done, or until a coroutine is."""
        ...

    def refuse(self, error: TopicsError, request_id: str) -> Response:
        """Renders an error the protocol found (malformed HTTP, a body or header too large)."""
        ...
