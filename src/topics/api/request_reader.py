"""Reads HTTP/1.1 requests from bytes split anywhere, without a connection.

Owns the framing of a request and every limit on it. Parsing is llhttp's, through httptools. Nothing here
knows of sockets or tasks, looks into a body, or knows a route.
"""

import re
from typing import Final, Protocol

import httptools

from topics import limits
from topics.api.encoding import CLOSE, KEEP, KEEP_EXPLICIT
from topics.api.head_table import HeadTable
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

# Where in the stream of requests a reader is.
IDLE: Final = 0  # between two requests
HEAD: Final = 1  # from the first byte of a request to the end of its headers
BODY: Final = 2
STOPPED: Final = 3  # no further request will be read
UPGRADING: Final = 4  # behind a request that offers an upgrade: what follows is HTTP no more, if it is accepted

# A head that is not complete after this much input is too large, wherever in its first slice it began.
_HEAD_UNFINISHED_BYTES_MAX = limits.URL_BYTES_MAX + limits.HEADER_BYTES_MAX + limits.PARSE_SLICE_BYTES

# Read differently by two servers in a row, these would let one request hide in another.
_NEVER_REPEATED = frozenset((b"host", b"content-length", b"transfer-encoding"))

_BODY_CODINGS = frozenset((b"", b"identity", b"gzip", b"x-gzip"))

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,%d}" % limits.REQUEST_ID_CHARS_MAX)

_NO_HEADERS: dict[bytes, bytes] = {}
_NO_REQUEST = Request(b"", b"", b"", _NO_HEADERS)
# Stands in for the parser of a reader that has ended: a parser holds on to its reader.
_DEAD_PARSER = httptools.HttpRequestParser(object())


class RequestSink(Protocol):
    """Who gets what a reader reads, in the order of the stream."""

    def on_request(self, request: Request, connection: bytes) -> None:
        """A complete request. `connection` is the line its answer carries; after `CLOSE` nothing follows."""
        ...

    def on_refusal(self, request: Request, refusal: Response) -> None:
        """The stream can't be read on from here: answer this, then close."""
        ...

    def on_continue(self) -> None:
        """The client waits for `100 Continue` before it sends the body."""
        ...


class _Nobody:
    """The sink of a reader that has ended, so that the reader does not hold on to its connection."""

    def on_request(self, request: Request, connection: bytes) -> None: ...
    def on_refusal(self, request: Request, refusal: Response) -> None: ...
    def on_continue(self) -> None: ...


class _Stopped(Exception):
    """Raised in a parser callback to end parsing, with the answer to give if there is one."""

    def __init__(self, refusal: Response | None = None) -> None:
        self.refusal = refusal


class RequestReader:
    """Turns bytes, split anywhere, into requests. Whatever the bytes, `feed` does not raise."""

    __slots__ = (
        "_application",
        "_body",
        "_body_bytes",
        "_body_bytes_expected",
        "_body_bytes_max",
        "_body_bytes_seen",
        "_clock",
        "_connection",
        "_head",
        "_head_bytes",
        "_headers",
        "_heads",
        "_id_prefix",
        "_overhead_bytes",
        "_parser",
        "_repeated_bytes",
        "_repeated_count",
        "_replay",
        "_request",
        "_request_count",
        "_sink",
        "_url",
        "progress_ns",
        "stage",
    )

    def __init__(
        self,
        sink: RequestSink,
        application: Application,
        clock: Clock,
        id_prefix: str,
        body_bytes_max: int,
        heads: HeadTable,
    ) -> None:
        self._sink = sink
        self._application = application
        self._clock = clock
        self._id_prefix = id_prefix
        self._body_bytes_max = body_bytes_max
        self._heads = heads
        self._head = b""  # what began the last input, where that was a whole head
        self._parser = httptools.HttpRequestParser(self)
        self.stage: int = IDLE
        self.progress_ns = 0  # when the head began, or the body last grew
        self._request = _NO_REQUEST
        self._request_count = 0
        self._connection = KEEP
        self._replay = False

        self._url = b""
        self._headers = _NO_HEADERS
        self._repeated_count = 0
        self._repeated_bytes = 0
        self._head_bytes = 0  # of input that ended before the head did

        # More than one piece is gathered in a bytearray: a list of tiny ones costs many times their size.
        self._body: bytes | bytearray = b""
        self._body_bytes = 0
        self._body_bytes_expected = 0
        self._body_bytes_seen = 0
        self._overhead_bytes = 0  # of input that brought no body: chunk extensions, trailers

    @property
    def body_bytes_missing(self) -> int:
        """How much of the next input is certainly body."""
        return self._body_bytes_expected - self._body_bytes if self.stage == BODY else 0

    def stop(self) -> None:
        """Reads nothing more and holds on to nothing."""
        self.stage = STOPPED
        self._request = _NO_REQUEST
        self._headers = _NO_HEADERS
        self._head = self._body = b""

    def release(self) -> None:
        """Stops, and breaks its cycles: a lost connection is freed at once, without the garbage collector."""
        self.stop()
        self._parser = _DEAD_PARSER
        self._sink = _Nobody()

    def feed(self, data: bytes | memoryview) -> bytes:
        """Reads on. Returns what is to be fed next, before any other input: nearly always nothing.

        When `UPGRADING` it is not to be fed but kept for the other protocol.
        """
        if self.stage == IDLE and type(data) is bytes:
            # Hot: nearly every request comes in one piece, with a head that came before.
            end = data.find(b"\r\n\r\n") + 4
            head = data[:end] if end >= 4 else b""
            known = self._heads.known.get(head) or self._heads.join(head)
            if known is not None and len(data) - end == known.body_bytes:
                method, path, query, headers, _ = known
                self._request_count += 1
                request_id = f"{self._id_prefix}{self._request_count:x}"
                now_ns = self._clock.monotonic_ns()
                self._sink.on_request(Request(method, path, query, headers, data[end:], now_ns, request_id), KEEP)
                return b""
            self._head = head
        rest = b""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._replay:
                rest = bytes(data[upgrade.args[0] :])
                self._read_head_again()
            elif self.stage == UPGRADING:
                rest = bytes(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._on_parser_error(error)
        if self.stage == HEAD:
            # The parser keeps an unfinished header to itself; its size is known only by what went in.
            if not self._head_bytes:
                self.progress_ns = self._clock.monotonic_ns()
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_UNFINISHED_BYTES_MAX:
                self._refuse(_headers_too_large())
        elif self.stage == BODY:
            if self._body_bytes != self._body_bytes_seen:
                self._body_bytes_seen = self._body_bytes
                self.progress_ns = self._clock.monotonic_ns()
            else:
                # So it is with trailers.
                self._overhead_bytes += len(data)
                if self._overhead_bytes > limits.HEADER_BYTES_MAX:
                    self._refuse(_headers_too_large())
        return rest

    # --- what the parser calls; anything raised here comes back in `_on_parser_error`

    def on_message_begin(self) -> None:
        if self.stage == STOPPED:
            raise _Stopped
        self.stage = HEAD
        self._url = b""
        self._headers = {}
        self._repeated_count = self._repeated_bytes = self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        if self._url:
            url = self._url + url  # spread over several reads
        if len(url) > limits.URL_BYTES_MAX:
            raise UriTooLong(f"the request target is longer than {limits.URL_BYTES_MAX} bytes")
        self._url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.stage != HEAD:
            return  # a trailer of a chunked body: nothing we know of is allowed there
        name = name.lower()
        headers = self._headers
        if name in headers:
            if name in _NEVER_REPEATED:
                raise InvalidRequest(f"the header {name.decode()} must not be repeated")
            self._repeated_count += 1
            self._repeated_bytes += len(name) + len(value) + 4
        else:
            headers[name] = value.rstrip()

    def on_headers_complete(self) -> None:
        parser = self._parser
        headers = self._headers
        # A head that came in one slice is not too large; it may have too many headers.
        if self._head_bytes or len(headers) + self._repeated_count > limits.HEADER_COUNT_MAX:
            self._check_head_size()
        method = parser.get_method()
        path, query = split_target(self._url)
        self._request = request = Request(method, path, query, headers)
        request.request_id = self._next_request_id()
        self.stage = BODY
        self._body_bytes = self._body_bytes_expected = self._overhead_bytes = 0
        self._body_bytes_seen = -1
        keep_alive = parser.should_keep_alive()
        self._connection = KEEP if keep_alive else CLOSE
        if not keep_alive or b"connection" in headers or b"host" not in headers or method == b"CONNECT":
            self._check_version_host_and_upgrade(request, keep_alive)
        if not self._replay and (b"content-length" in headers or b"transfer-encoding" in headers):
            self._expect_body(request)

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > self._body_bytes_max:
            raise payload_too_large(self._body_bytes_max)
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
        request.received_ns = self._clock.monotonic_ns()
        if self._head:
            if self._connection is KEEP:
                self._heads.learn(self._head, request)
            self._head = b""
        # An idle connection holds on to nothing of its last request.
        self._request = _NO_REQUEST
        self._headers = _NO_HEADERS
        if self._connection is not CLOSE:
            self.stage = IDLE
        else:
            self.stage = UPGRADING if request.offers_upgrade else STOPPED
        self._sink.on_request(request, self._connection)

    # --- decisions taken at the end of the head

    def _next_request_id(self) -> str:
        self._request_count += 1
        given = self._headers.get(b"x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given.decode()
        return f"{self._id_prefix}{self._request_count:x}"

    def _check_head_size(self) -> None:
        header_bytes = self._repeated_bytes
        for name, value in self._headers.items():
            header_bytes += len(name) + len(value) + 4
        header_count = len(self._headers) + self._repeated_count
        if header_bytes > limits.HEADER_BYTES_MAX or header_count > limits.HEADER_COUNT_MAX:
            raise _headers_too_large()

    def _check_version_host_and_upgrade(self, request: Request, keep_alive: bool) -> None:
        version = self._parser.get_http_version()
        if version == "1.0":
            request.http_1_0 = True
            if b"transfer-encoding" in request.headers:
                raise InvalidRequest("HTTP/1.0 has no Transfer-Encoding")
            if keep_alive:
                self._connection = KEEP_EXPLICIT
        elif version != "1.1":
            raise InvalidRequest(f"this server speaks HTTP/1.1, not {version}")
        elif b"host" not in request.headers:
            raise InvalidRequest("an HTTP/1.1 request needs a Host header")
        if request.method == b"CONNECT":
            raise InvalidRequest("this server is not a proxy: there is no CONNECT")
        if self._parser.should_upgrade():
            if version == "1.1" and _may_become_a_websocket(request.headers):
                # What follows is for another protocol, or for nobody: the answer is the last one in HTTP.
                request.offers_upgrade = True
                self._connection = CLOSE
            else:
                # An offer we do not take up, such as h2c, which some clients make with every first
                # request. The parser would skip the body of such a request; see `_read_head_again`.
                self._replay = True

    def _read_head_again(self) -> None:
        """Feeds the head that offered an upgrade once more, without the offer: then its body is read, too."""
        self._replay = False
        self._request_count -= 1
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self._request.method, self._url, version)]
        lines += [b"%b: %b" % header for header in self._headers.items() if header[0] != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self.feed(b"\r\n".join(lines) + b"\r\n\r\n")

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
                raise payload_too_large(self._body_bytes_max)
        if b"content-encoding" in headers and headers[b"content-encoding"].lower() not in _BODY_CODINGS:
            raise UnsupportedMediaType("the Content-Encoding of a body is gzip or none")
        waits = b"expect" in headers and headers[b"expect"].lower() == b"100-continue"
        if chunked or waits or self._body_bytes_expected > limits.EARLY_ADMISSION_BODY_BYTES_MIN:
            refusal = self._application.admit(request)
            if refusal is not None:
                raise _Stopped(refusal)
        if waits and self._parser.get_http_version() == "1.1":
            self._sink.on_continue()

    # --- giving up

    def _on_parser_error(self, error: httptools.HttpParserError) -> None:
        if not isinstance(error, httptools.HttpParserCallbackError):
            if self.stage != STOPPED:
                self._refuse(InvalidRequest(f"malformed HTTP: {error}"))
            return
        cause = error.__context__
        if isinstance(cause, _Stopped):
            if cause.refusal is not None:
                self._give_up(self._request, cause.refusal)
        elif isinstance(cause, TopicsError) and self.stage in (HEAD, BODY):
            self._refuse(cause)
        else:
            # Not ours: the application has broken its promise not to raise.
            self.stop()
            raise cause or error

    def _refuse(self, error: TopicsError) -> None:
        request = self._request
        if self.stage != BODY:
            self._headers = _NO_HEADERS
            request = Request(b"", b"", b"", _NO_HEADERS)
            request.request_id = self._next_request_id()
        self._give_up(request, self._application.refuse(error, request.request_id))

    def _give_up(self, request: Request, refusal: Response) -> None:
        self.stop()
        self._sink.on_refusal(request, refusal)


def _may_become_a_websocket(headers: dict[bytes, bytes]) -> bool:
    """A body would have to be read first, and no WebSocket client sends one: such an offer is declined."""
    return (
        headers[b"upgrade"].lower() == b"websocket"
        and headers.get(b"content-length", b"0") == b"0"
        and b"transfer-encoding" not in headers
    )


def _headers_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(
        f"the headers are more than {limits.HEADER_COUNT_MAX}, or larger than {limits.HEADER_BYTES_MAX} bytes"
    )


def payload_too_large(bytes_max: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is larger than {bytes_max} bytes", limit_bytes=bytes_max)


def split_target(target: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request target, both raw. `http://host/path?query` loses scheme and authority."""
    if target[:1] != b"/" and b"://" in target:
        rest = target.partition(b"://")[2]
        path, _, query = rest.partition(b"?")
        slash = path.find(b"/")
        return (path[slash:] if slash >= 0 else b"/"), query
    path, _, query = target.partition(b"?")
    return path, query
