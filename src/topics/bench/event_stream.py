"""An SSE stream as the load generator needs it: from the bytes of a chunked HTTP reply to whole events."""

from topics.bench.errors import MalformedReply
from topics.bench.http1 import without_head

LINE_END = b"\r\n"
EVENT_END = b"\n\n"
EVENT_IN_CHUNK_END = EVENT_END + LINE_END
OK = b"HTTP/1.1 200 "


class EventStreamReader:
    """Finds the events, however the bytes are split, and returns each without the empty line that ends it."""

    __slots__ = ("_head_seen", "_text", "_unread")

    def __init__(self) -> None:
        self._head_seen = False
        self._unread = b""
        self._text = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Hot: usually one chunk with one event, which takes two searches and one int()."""
        if self._unread:
            data = self._unread + data
        elif self._head_seen and not self._text:
            size_end = data.find(LINE_END)
            end = len(data) - len(EVENT_IN_CHUNK_END)
            start = size_end + len(LINE_END)
            if data.find(EVENT_END, start) == end and start + _size(data[:size_end]) == end + len(EVENT_END):
                return [data[start:end]]
        if not self._head_seen:
            body = without_head(data, OK)
            if body is None:
                self._unread = data
                return []
            self._head_seen = True
            data = body
        at = 0
        pieces = [self._text]
        while (size_end := data.find(LINE_END, at)) >= 0:
            start = size_end + len(LINE_END)
            stop = start + _size(data[at:size_end])
            if stop + len(LINE_END) > len(data):
                break
            pieces.append(data[start:stop])
            at = stop + len(LINE_END)
        self._unread = data[at:]
        *events, self._text = b"".join(pieces).split(EVENT_END)
        return events


def _size(text: bytes) -> int:
    try:
        return int(text, 16)
    except ValueError as problem:
        raise MalformedReply(f"not the size of a chunk: {text[:50]!r}") from problem
