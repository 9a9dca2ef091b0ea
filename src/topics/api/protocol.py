"""HTTP/1.1 on one connection: bytes in, `Request`s to the application, `Response`s out, strictly in order.

Owns framing, limits, keep-alive, back-pressure, gzip and the polite close. Parsing is llhttp's. It never
looks into a body and knows no route; what a request means is the application's business.

A request goes through `data_received` -> parser callbacks -> `_dispatch` -> `_send` -> `_flush`, all in
one call when the application answers at once; the answers to all requests of one read leave in one write.
A connection that must wait (for a coroutine, or for a client that does not read) is *blocked*: requests
already parsed stay in `_queue`, bytes not yet parsed in `_backlog`, and reading pauses, so that what a
client can pile up is bounded by one read.
"""

import asyncio
import inspect
import re
import socket
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, cast

import httptools

from topics import limits
from topics.api.connections import NEVER_NS, Connections
from topics.api.encoding import (
    CLOSE,
    CONTINUE,
    GZIPPED,
    KEEP,
    KEEP_EXPLICIT,
    VARY,
    accepts_gzip,
    deflate,
    inflate,
    render,
    split_target,
)
from topics.api.http import Application, Request, Response
from topics.clock import Clock
from topics.errors import (
    HeadersTooLarge,
    InvalidRequest,
    PayloadTooLarge,
    TopicsError,
    UnsupportedMediaType,
    UriTooLong,
)

# What the connection does with incoming bytes. The order matters: from DISCARD on they are thrown away.
IDLE: Final = 0  # between two requests
HEAD: Final = 1  # from the first byte of a request to the end of its headers
BODY: Final = 2
DISCARD: Final = 3  # no further request will be read; an answer may still be due
LINGER: Final = 4  # everything is answered and our side is shut; waiting for the client to close
CLOSED: Final = 5

_HEAD_TIMEOUT_NS = int(limits.HEAD_TIMEOUT_S * 1e9)
_BODY_STALL_TIMEOUT_NS = int(limits.BODY_STALL_TIMEOUT_S * 1e9)
_IDLE_TIMEOUT_NS = int(limits.IDLE_TIMEOUT_S * 1e9)
_DRAIN_TIMEOUT_NS = int(limits.DRAIN_TIMEOUT_S * 1e9)
_LINGER_TIMEOUT_NS = int(limits.LINGER_TIMEOUT_S * 1e9)

# A head that is not complete after this much input is too large, wherever in its first slice it began.
_HEAD_UNFINISHED_BYTES_MAX = limits.URL_BYTES_MAX + limits.HEADER_BYTES_MAX + limits.PARSE_SLICE_BYTES

# Read differently by two servers in a row, these would let one request hide in another.
_NEVER_REPEATED = frozenset((b"host", b"content-length", b"transfer-encoding"))

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,%d}" % limits.REQUEST_ID_CHARS_MAX)
_NO_HEADERS: dict[bytes, bytes] = {}
_NO_REQUEST = Request(b"", b"", b"", _NO_HEADERS)
# Stands in for the parser of a lost connection, which would otherwise keep itself alive in a cycle.
_DEAD_PARSER = httptools.HttpRequestParser(object())


class _Stopped(Exception):
    """Raised in a parser callback to end parsing. `refusal` is the answer if there is one yet to give."""

    def __init__(self, refusal: Response | None = None) -> None:
        self.refusal = refusal


class HttpProtocol(asyncio.Protocol):
    """One connection. Made by the server's protocol factory, one for each accepted socket."""

    __slots__ = (
        "_application",
        "_backlog",
        "_blocked",
        "_body",
        "_body_bytes",
        "_body_bytes_expected",
        "_body_bytes_max",
        "_body_bytes_seen",
        "_clock",
        "_connection",
        "_connections",
        "_continue_due",
        "_coroutine",
        "_discarded_bytes",
        "_head_began_ns",
        "_head_bytes",
        "_headers",
        "_id_prefix",
        "_last_ns",
        "_linger",
        "_out",
        "_out_bytes",
        "_overhead_bytes",
        "_parser",
        "_queue",
        "_reading_paused",
        "_repeated_bytes",
        "_repeated_count",
        "_replay",
        "_request",
        "_request_count",
        "_stage",
        "_task",
        "_transport",
        "_unsent_bytes",
        "_url",
        "_writing_paused",
        "deadline_ns",
    )

    _transport: asyncio.Transport

    def __init__(
        self,
        application: Application,
        connections: Connections,
        clock: Clock,
        *,
        body_bytes_max: int = limits.BODY_BYTES_MAX,
    ) -> None:
        self._application = application
        self._connections = connections
        self._clock = clock
        self._body_bytes_max = body_bytes_max
        self._parser = httptools.HttpRequestParser(self)
        self.deadline_ns = NEVER_NS
        self._stage: int = IDLE
        self._id_prefix = ""
        self._request_count = 0
        self._last_ns = 0

        # The request being read.
        self._request = _NO_REQUEST
        self._url = b""
        self._headers = _NO_HEADERS
        self._repeated_count = 0
        self._repeated_bytes = 0
        self._head_bytes = 0  # of reads that ended before the head did
        self._head_began_ns = 0
        self._connection = KEEP
        self._replay = False
        self._continue_due = False
        # More than one piece is gathered in a bytearray: a list of tiny pieces would cost many times their size.
        self._body: bytes | bytearray = b""
        self._body_bytes = 0
        self._body_bytes_expected = 0
        self._body_bytes_seen = -1
        self._overhead_bytes = 0  # of reads that brought no body: chunk extensions, trailers

        # Requests waiting for their turn, each with its refusal if there is one and its `connection` line.
        self._queue: deque[tuple[Request, Response | None, bytes]] = deque()
        self._backlog: bytes | memoryview = b""
        self._blocked = False  # = a task runs or writing is paused
        self._task: asyncio.Task[None] | None = None
        self._coroutine: Coroutine[Any, Any, Response] | None = None
        self._writing_paused = False
        self._reading_paused = False

        self._out: list[bytes] = []
        self._out_bytes = 0
        self._unsent_bytes = 0
        self._linger = False
        self._discarded_bytes = 0

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        number = self._connections.register(self)
        if number is None:
            self._stage = CLOSED
            self._transport.abort()
            return
        self._id_prefix = f"{number:x}-"
        self._transport.set_write_buffer_limits(high=limits.WRITE_BUFFER_HIGH_BYTES)
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family in (socket.AF_INET, socket.AF_INET6):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last_ns = self._clock.monotonic_ns()
        self.deadline_ns = self._last_ns + _IDLE_TIMEOUT_NS

    def data_received(self, data: bytes) -> None:
        # Hot: a small read on an unblocked connection, answered before this returns.
        if self._blocked or self._stage >= DISCARD or len(data) > limits.PARSE_SLICE_BYTES:
            if self._stage >= DISCARD:
                self._discard(len(data))
                return
            self._backlog = b"%b%b" % (self._backlog, data) if self._backlog else data
            self._proceed()
            return
        self._feed(data)
        if self._stage == IDLE and not self._blocked and not self._backlog:
            self._flush()
            if not self._blocked:
                self.deadline_ns = self._last_ns + _IDLE_TIMEOUT_NS
                return
        self._proceed()

    def eof_received(self) -> None:
        """The client is gone, or has shut its side, which looks the same: nobody waits for an answer.

        Returning None makes the transport close once what is already written has been sent.
        """
        self._drop_work()
        self._stage = CLOSED
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self.deadline_ns = self._clock.monotonic_ns() + _DRAIN_TIMEOUT_NS

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_work()
        self._stage = CLOSED
        self._parser = _DEAD_PARSER
        self.deadline_ns = NEVER_NS
        self._connections.remove(self)

    def pause_writing(self) -> None:
        self._writing_paused = self._blocked = True
        self._unsent_bytes = self._transport.get_write_buffer_size()
        if self._stage < LINGER:
            self._pause_reading()
            self.deadline_ns = self._clock.monotonic_ns() + _DRAIN_TIMEOUT_NS

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._blocked = self._task is not None
        if self._stage < LINGER:
            self.deadline_ns = NEVER_NS
            self._proceed()

    # --- what the registry calls

    def expire(self, now_ns: int) -> None:
        unsent_bytes = self._transport.get_write_buffer_size()
        if 0 < unsent_bytes < self._unsent_bytes:
            # Slow, but reading.
            self._unsent_bytes = unsent_bytes
            self.deadline_ns = now_ns + _DRAIN_TIMEOUT_NS
            return
        self.abort()

    def drain(self) -> None:
        if self._stage == IDLE and not self._blocked:
            self._close()

    def abort(self) -> None:
        self._stage = CLOSED
        self._transport.abort()

    # --- what the parser calls; anything raised here ends up in `_on_parser_error`

    def on_message_begin(self) -> None:
        if self._stage >= DISCARD:
            raise _Stopped
        self._stage = HEAD
        self._url = b""
        self._headers = {}
        self._repeated_count = self._repeated_bytes = 0
        self._head_bytes = self._head_began_ns = 0

    def on_url(self, url: bytes) -> None:
        # Called once for each read the target is spread over.
        if self._url:
            url = self._url + url
        if len(url) > limits.URL_BYTES_MAX:
            raise UriTooLong(f"the request target is longer than {limits.URL_BYTES_MAX} bytes")
        self._url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stage != HEAD:
            return  # a trailer of a chunked body: nothing we know of is allowed there
        name = name.lower()
        if name in self._headers:
            if name in _NEVER_REPEATED:
                raise InvalidRequest(f"the header {name.decode()} must not be repeated")
            self._repeated_count += 1
            self._repeated_bytes += len(name) + len(value) + 4
        else:
            self._headers[name] = value.rstrip()

    def on_headers_complete(self) -> None:
        parser = self._parser
        headers = self._headers
        # A head that came in one slice cannot be too large, only too many.
        if self._head_bytes or len(headers) + self._repeated_count > limits.HEADER_COUNT_MAX:
            self._check_head_size()
        method = parser.get_method()
        path, query = split_target(self._url)
        self._request = request = Request(method, path, query, headers)
        request.request_id = self._next_request_id()
        self._stage = BODY
        self._body_bytes = self._body_bytes_expected = self._overhead_bytes = 0
        self._body_bytes_seen = -1
        keep_alive = parser.should_keep_alive()
        self._connection = KEEP if keep_alive else CLOSE
        if not keep_alive or b"connection" in headers or method == b"CONNECT":
            self._check_version_and_upgrade(request, keep_alive)
        if not self._replay and (b"content-length" in headers or b"transfer-encoding" in headers):
            self._expect_body(request)

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > self._body_bytes_max:
            raise self._payload_too_large()
        if self._body_bytes == len(data):
            self._body = data
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += data

    def on_message_complete(self) -> None:
        if self._replay:
            return
        request = self._request
        if self._body:
            request.body = bytes(self._body)  # no copy when it came in one piece
            self._body = b""
        request.received_ns = self._last_ns = self._clock.monotonic_ns()
        # An idle connection holds on to nothing of its last request.
        self._request = _NO_REQUEST
        self._headers = _NO_HEADERS
        self._continue_due = False
        connection = self._connection
        self._stage = DISCARD if connection is CLOSE else IDLE
        if self._blocked:
            self._queue.append((request, None, connection))
        else:
            self._dispatch(request, None, connection)

    # --- reading a request

    def _next_request_id(self) -> str:
        self._request_count += 1
        given = self._headers.get(b"x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given.decode()
        return f"{self._id_prefix}{self._request_count:x}"

    def _check_head_size(self) -> None:
        if len(self._headers) + self._repeated_count > limits.HEADER_COUNT_MAX:
            raise HeadersTooLarge(f"there are more than {limits.HEADER_COUNT_MAX} headers")
        header_bytes = self._repeated_bytes
        for name, value in self._headers.items():
            header_bytes += len(name) + len(value) + 4
        if header_bytes > limits.HEADER_BYTES_MAX:
            raise HeadersTooLarge(f"the headers are larger than {limits.HEADER_BYTES_MAX} bytes")

    def _check_version_and_upgrade(self, request: Request, keep_alive: bool) -> None:
        version = self._parser.get_http_version()
        if version == "1.0":
            if b"transfer-encoding" in request.headers:
                raise InvalidRequest("HTTP/1.0 has no Transfer-Encoding")
            if keep_alive:
                self._connection = KEEP_EXPLICIT
        elif version != "1.1":
            raise InvalidRequest(f"this server speaks HTTP/1.1, not {version}")
        if request.method == b"CONNECT":
            raise InvalidRequest("this server is not a proxy: there is no CONNECT")
        if self._parser.should_upgrade():
            if request.headers[b"upgrade"].lower() == b"websocket":
                # The seam for WebSocket: what follows is no longer HTTP, so the answer is the last one.
                self._connection = CLOSE
                self._linger = True
            else:
                # An offer we do not take up, such as h2c, which some clients make with every first
                # request. The parser skips the body of such a request; see `_on_upgrade`.
                self._replay = True

    def _expect_body(self, request: Request) -> None:
        """Decides from the headers whether the body is read at all."""
        headers = request.headers
        chunked = b"transfer-encoding" in headers
        if chunked:
            if headers[b"transfer-encoding"].lower() != b"chunked":
                raise InvalidRequest("the only Transfer-Encoding this server knows is chunked")
        else:
            self._body_bytes_expected = int(headers[b"content-length"])  # digits: the parser has checked
            if not self._body_bytes_expected:
                return
            if self._body_bytes_expected > self._body_bytes_max:
                raise self._payload_too_large()
        if b"content-encoding" in headers and not _is_identity(headers) and not _is_gzip(headers):
            raise UnsupportedMediaType("the Content-Encoding of a body is gzip or none")
        continues = headers.get(b"expect", b"").lower() == b"100-continue"
        if chunked or continues or self._body_bytes_expected > limits.EARLY_ADMISSION_BODY_BYTES_MIN:
            refusal = self._application.admit(request)
            if refusal is not None:
                raise _Stopped(refusal)
        if continues and self._parser.get_http_version() == "1.1":
            if self._blocked:
                self._continue_due = True
            else:
                self._out.append(CONTINUE)

    def _payload_too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"the body is larger than {self._body_bytes_max} bytes", limit_bytes=self._body_bytes_max
        )

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._on_upgrade(bytes(data[upgrade.args[0] :]))
        except httptools.HttpParserError as error:
            self._on_parser_error(error)
        if self._stage == HEAD:
            # The parser keeps an unfinished header to itself, so its size is known only by what went in.
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_UNFINISHED_BYTES_MAX:
                self._refuse(HeadersTooLarge(f"the headers are larger than {limits.HEADER_BYTES_MAX} bytes"))
        elif self._stage == BODY and self._body_bytes == self._body_bytes_seen:
            # So it is with trailers.
            self._overhead_bytes += len(data)
            if self._overhead_bytes > limits.HEADER_BYTES_MAX:
                self._refuse(HeadersTooLarge(f"the trailers are larger than {limits.HEADER_BYTES_MAX} bytes"))

    def _on_upgrade(self, rest: bytes) -> None:
        """The parser has stopped after the head of a request that asks for another protocol."""
        if not self._replay:
            return
        # Read the same head again, without the offer: then the parser reads the body, too.
        self._replay = False
        self._request_count -= 1
        self._backlog = b"%b%b" % (rest, self._backlog)
        version = self._parser.get_http_version()
        lines = [b"%b %b HTTP/%b" % (self._request.method, self._url, version.encode())]
        lines += [b"%b: %b" % header for header in self._headers.items() if header[0] != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self._stage = IDLE
        self._feed(b"\r\n".join(lines) + b"\r\n\r\n")

    def _on_parser_error(self, error: httptools.HttpParserError) -> None:
        if not isinstance(error, httptools.HttpParserCallbackError):
            if self._stage < DISCARD:
                self._refuse(InvalidRequest(f"malformed HTTP: {error}"))
            return
        cause = error.__context__
        if isinstance(cause, _Stopped):
            if cause.refusal is not None:
                self._give_up(self._request, cause.refusal)
        elif isinstance(cause, TopicsError) and self._stage < DISCARD:
            self._refuse(cause)
        else:
            # The application has broken its promise not to raise. The connection can't go on; say so loudly.
            self.abort()
            raise cause or error

    def _refuse(self, error: TopicsError) -> None:
        request = self._request
        if self._stage != BODY:
            request = Request(b"", b"", b"", _NO_HEADERS)
            self._headers = _NO_HEADERS
            request.request_id = self._next_request_id()
        self._give_up(request, self._application.refuse(error, request.request_id))

    def _give_up(self, request: Request, refusal: Response) -> None:
        """Answers in turn, and reads no further request from this connection."""
        self._stage = DISCARD
        self._linger = True
        self._request = _NO_REQUEST
        self._headers = _NO_HEADERS
        self._body = b""
        self._backlog = b""
        if self._blocked:
            self._queue.append((request, refusal, CLOSE))
        else:
            self._dispatch(request, refusal, CLOSE)

    # --- answering

    def _dispatch(self, request: Request, refusal: Response | None, connection: bytes) -> None:
        if refusal is not None:
            answer: Response | Coroutine[Any, Any, Response] = refusal
        elif b"content-encoding" in request.headers and request.body and _is_gzip(request.headers):
            answer = self._handle_packed(request)
        else:
            answer = self._application.handle(request)
        if isinstance(answer, Response):
            body = answer.body
            if len(body) < limits.GZIP_REPLY_BYTES_MIN:
                self._send(request, answer, body, b"", connection)
                return
            if not _packs_reply(request, answer):
                self._send(request, answer, body, VARY, connection)
                return
            if len(body) <= limits.GZIP_INLINE_BYTES_MAX:
                self._send(request, answer, deflate(body), GZIPPED, connection)
                return
        else:
            self._coroutine = answer
        self._blocked = True
        self._task = asyncio.get_running_loop().create_task(self._answer_later(request, answer, connection))

    def _handle_packed(self, request: Request) -> Response | Coroutine[Any, Any, Response]:
        """Unpacks the body and calls the application; off the loop when that may take long."""
        if len(request.body) > limits.GZIP_INLINE_BYTES_MAX:
            return self._handle_packed_later(request)
        bytes_max = min(self._body_bytes_max, limits.GZIP_UNPACKED_INLINE_BYTES_MAX)
        try:
            body = inflate(request.body, bytes_max)
        except InvalidRequest as error:
            return self._application.refuse(error, request.request_id)
        if body is None:
            if bytes_max == self._body_bytes_max:
                return self._application.refuse(self._payload_too_large(), request.request_id)
            return self._handle_packed_later(request)
        request.body = body
        return self._application.handle(request)

    async def _handle_packed_later(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        try:
            body = await loop.run_in_executor(None, inflate, request.body, self._body_bytes_max)
        except InvalidRequest as error:
            return self._application.refuse(error, request.request_id)
        if body is None:
            return self._application.refuse(self._payload_too_large(), request.request_id)
        request.body = body
        answer = self._application.handle(request)
        return answer if isinstance(answer, Response) else await answer

    async def _answer_later(
        self, request: Request, answer: Response | Coroutine[Any, Any, Response], connection: bytes
    ) -> None:
        """The part of `_dispatch` that has to wait. While it runs the connection is blocked."""
        try:
            response = answer if isinstance(answer, Response) else await answer
            body = response.body
            fields = b""
            if len(body) >= limits.GZIP_REPLY_BYTES_MIN:
                fields = VARY
                if _packs_reply(request, response):
                    fields = GZIPPED
                    if len(body) <= limits.GZIP_INLINE_BYTES_MAX:
                        body = deflate(body)
                    else:
                        body = await asyncio.get_running_loop().run_in_executor(None, deflate, body)
        except BaseException:
            # Cancelled because the client is gone, or broken: either way no answer will come.
            if self._stage != CLOSED:
                self.abort()
            raise
        if self._stage == CLOSED:
            return
        self._task = self._coroutine = None
        self._blocked = self._writing_paused
        self._last_ns = self._clock.monotonic_ns()
        self._send(request, response, body, fields, connection)
        self._proceed()

    def _send(
        self, request: Request, response: Response, body: bytes, fields: bytes, connection: bytes
    ) -> None:
        """Renders into `_out`; `_flush` writes. Hot."""
        connections = self._connections
        if connections.draining:
            connection = CLOSE
        fields = connections.date_line + connection + fields
        if response.status >= 400:
            fields += b"x-request-id: %b\r\n" % request.request_id.encode()
        rendered = render(response, body, fields, head_only=request.method == b"HEAD")
        self._out.append(rendered)
        self._out_bytes += len(rendered)
        if connection is CLOSE:
            # A request whose bytes we have begun to read is cut off here, hence the lingering.
            self._linger = self._linger or self._stage in (HEAD, BODY)
            self._flush()
            self._close()
        elif self._out_bytes > limits.WRITE_BUFFER_HIGH_BYTES:
            self._flush()

    def _flush(self) -> None:
        out = self._out
        if out:
            rendered = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self._out_bytes = 0
            self._transport.write(rendered)

    def _proceed(self) -> None:
        """Goes on with whatever waits, as far as possible; then settles reading and the deadline."""
        while not self._blocked:
            if self._queue:
                self._dispatch(*self._queue.popleft())
            elif self._backlog:
                self._feed(self._next_slice())
            else:
                break
        self._flush()
        if self._stage >= LINGER:
            return
        if self._blocked:
            # Without anything queued, reading goes on, so that a client that hangs up is noticed.
            if self._queue or self._backlog:
                self._pause_reading()
            if not self._writing_paused:
                self.deadline_ns = NEVER_NS
            return
        if self._continue_due:
            self._continue_due = False
            self._transport.write(CONTINUE)
        self._resume_reading()
        if self._stage == IDLE and self._connections.draining:
            self._close()
        else:
            self._set_deadline()

    def _next_slice(self) -> bytes | memoryview:
        """The parser can't be stopped halfway, so it is given little at a time: of the requests behind one
        that blocks only those in the same slice are parsed. A body is one request however long it is.
        """
        size = limits.PARSE_SLICE_BYTES
        if self._stage == BODY:
            size = max(size, self._body_bytes_expected - self._body_bytes)
        backlog = memoryview(self._backlog)
        self._backlog = backlog[size:] if len(backlog) > size else b""
        return backlog[:size]

    def _set_deadline(self) -> None:
        if self._stage == IDLE:
            self.deadline_ns = self._last_ns + _IDLE_TIMEOUT_NS
        elif self._stage == HEAD:
            if not self._head_began_ns:
                self._head_began_ns = self._clock.monotonic_ns()
            self.deadline_ns = self._head_began_ns + _HEAD_TIMEOUT_NS
        elif self._body_bytes != self._body_bytes_seen or self.deadline_ns == NEVER_NS:
            self._body_bytes_seen = self._body_bytes
            self.deadline_ns = self._clock.monotonic_ns() + _BODY_STALL_TIMEOUT_NS

    # --- reading on and off, and ending

    def _pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()

    def _discard(self, size: int) -> None:
        self._discarded_bytes += size
        if self._discarded_bytes > limits.LINGER_BYTES_MAX:
            self.abort()

    def _close(self) -> None:
        """Ends the connection after everything written has been sent.

        Closing a socket that still receives would reset the connection, and the reset may overtake our
        last answer. Where that can happen only our side is shut, and input is thrown away for a while.
        """
        transport = self._transport
        self._queue.clear()
        self._backlog = b""
        self._unsent_bytes = transport.get_write_buffer_size()
        if self._linger and transport.can_write_eof():
            self._stage = LINGER
            self.deadline_ns = self._clock.monotonic_ns() + _LINGER_TIMEOUT_NS
            self._resume_reading()
            transport.write_eof()
        else:
            self._stage = CLOSED
            self.deadline_ns = self._clock.monotonic_ns() + _DRAIN_TIMEOUT_NS
            transport.close()

    def _drop_work(self) -> None:
        """Nobody waits for the answers any more."""
        task, coroutine = self._task, self._coroutine
        self._task = self._coroutine = None
        if task is not None:
            task.cancel()
            # A task cancelled before its first step never gets to await the handler.
            if coroutine is not None and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()
        self._queue.clear()
        self._out.clear()
        self._backlog = b""
        self._body = b""
        self._request = _NO_REQUEST
        self._headers = _NO_HEADERS


def _is_gzip(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-encoding", b"").lower() in (b"gzip", b"x-gzip")


def _is_identity(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-encoding", b"").lower() in (b"", b"identity")


def _packs_reply(request: Request, response: Response) -> bool:
    """Whether a body large enough for gzip is sent packed."""
    accept_encoding = request.headers.get(b"accept-encoding")
    if accept_encoding is None or not accepts_gzip(accept_encoding):
        return False
    return all(name != b"content-encoding" for name, _ in response.headers)
