"""HTTP/1.1 as the load generator needs it: requests rendered in advance, replies followed to their end.

`HttpReply` turns bytes into "the reply is complete". It reads the status and the length and skips the body, because the
generator must cost less than the server it measures.
"""

from topics.bench.errors import MalformedReply

FAILURE_BYTES_KEPT_MAX = 2000
HEAD_BYTES_MAX = 64 * 1024
HEAD_END = b"\r\n\r\n"
LENGTH_HEADER = b"\r\ncontent-length:"
STATUS_CLASS_AT = len(b"HTTP/1.1 ")
SUCCESS = ord("2")


def render_request(
    method: str, path: str, body: bytes, *, host: str = "127.0.0.1", api_key: str | None = None
) -> bytes:
    """One keep-alive request with a JSON body, ready to send."""
    head = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    if api_key is not None:
        head.append(f"Authorization: Bearer {api_key}")
    if body:
        head.append("Content-Type: application/json")
    head.append(f"Content-Length: {len(body)}")
    return "\r\n".join(head).encode("ascii") + HEAD_END + body


class HttpReply:
    """Follows the reply to the one outstanding request, across any split of its bytes."""

    __slots__ = ("_head", "_kept", "_remaining", "failure")

    def __init__(self) -> None:
        self.failure: bytes | None = None
        self._head = b""
        self._kept: bytes | None = None
        self._remaining = 0

    def feed(self, data: bytes) -> bool:
        """Returns True when the reply is complete; `failure` is then its status line and body, unless it was 2xx.

        Hot: the usual reply arrives whole, and takes two searches and one int().
        """
        if self._remaining:
            return self._advance(data, 0)
        if self._head:
            data = self._head + data
        head_end = data.find(HEAD_END)
        if head_end < 0:
            if len(data) > HEAD_BYTES_MAX:
                raise MalformedReply("the head of the reply has no end")
            self._head = data
            return False
        self._head = b""
        head = data[:head_end].lower()
        self._remaining = _content_length(head)
        if head[STATUS_CLASS_AT] == SUCCESS:
            self.failure = self._kept = None
        else:
            self._kept = data[: data.find(b"\r")] + b" "
        return self._advance(data, head_end + len(HEAD_END))

    def _advance(self, data: bytes, body_at: int) -> bool:
        self._remaining -= len(data) - body_at
        if self._remaining < 0:
            raise MalformedReply("more bytes than the reply's content-length")
        if self._kept is not None:
            self._kept = (self._kept + data[body_at:])[:FAILURE_BYTES_KEPT_MAX]
            if self._remaining == 0:
                self.failure = self._kept
        return self._remaining == 0


class HttpReplyWithBody(HttpReply):
    """An `HttpReply` that keeps the `body` of the last complete reply."""

    __slots__ = ("body",)

    def __init__(self) -> None:
        super().__init__()
        self.body = b""

    def _advance(self, data: bytes, body_at: int) -> bool:
        self.body = data[body_at:] if body_at else self.body + data
        return super()._advance(data, body_at)


def without_head(data: bytes, expected: bytes) -> bytes | None:
    """The bytes after the head of a reply, which must begin as expected, or None while the head is not complete."""
    head, end, rest = data.partition(HEAD_END)
    if not end:
        if len(head) > HEAD_BYTES_MAX:
            raise MalformedReply("the head of the reply has no end")
        return None
    if not head.startswith(expected):
        raise MalformedReply(f"expected {expected.decode('ascii')}: {data[:500]!r}")
    return rest


def _content_length(head: bytes) -> int:
    at = head.find(LENGTH_HEADER)
    if at < 0 or not head.startswith(b"http/1."):
        raise MalformedReply(f"not an HTTP/1.x reply with a content-length: {head[:200]!r}")
    at += len(LENGTH_HEADER)
    end = head.find(b"\r", at)
    try:
        return int(head[at:] if end < 0 else head[at:end])
    except ValueError as problem:
        raise MalformedReply(f"content-length is not a number: {head[:200]!r}") from problem
