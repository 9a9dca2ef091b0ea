"""RESP, the Redis wire format, as the load generator needs it.

Counting lines is enough to follow a reply: every command of a script has a reply of known shape, and no payload of the
benchmark contains a line break. Parsing each item of a 1000-entry reply in Python would take as long as Redis takes to
write it, and the run would measure the generator.
"""

from topics.bench.errors import MalformedReply

LINES_PER_BULK_STRING = 2  # "$<length>" and the payload
LINES_PER_ARRAY_HEADER = 1  # "*<length>"
LINES_PER_INTEGER = 1  # ":<number>"
STREAMS_HEADER_LINES = 5  # *1, *2, the name in two lines, *n
TAIL_BYTES_KEPT = 2


def encode_command(*parts: bytes) -> bytes:
    """One command: an array of bulk strings."""
    rendered = [b"*%d\r\n" % len(parts)]
    rendered += [b"$%d\r\n%b\r\n" % (len(part), part) for part in parts]
    return b"".join(rendered)


def lines_of_streams_reply(data: bytes, fields: int) -> int:
    """How many lines a reply to XREAD or XREADGROUP of one stream has, judged by its beginning; 1 if it is empty."""
    if not data.startswith(b"*1\r\n"):
        return 1
    head = data.split(b"\r\n", STREAMS_HEADER_LINES)
    entries = int(head[STREAMS_HEADER_LINES - 1][1:]) if len(head) > STREAMS_HEADER_LINES else 1
    return STREAMS_HEADER_LINES + entries * lines_per_stream_entry(fields)


def lines_per_stream_entry(fields: int) -> int:
    """How many lines one entry of an XRANGE reply has: [id, [name, value, …]]."""
    return 2 * LINES_PER_ARRAY_HEADER + LINES_PER_BULK_STRING * (1 + 2 * fields)


class RespReply:
    """Follows the reply to the one outstanding request (one command or a pipeline) by its lines."""

    __slots__ = ("_lines_expected", "_lines_left", "_tail", "failure")

    def __init__(self, lines_expected: int) -> None:
        self.failure: bytes | None = None
        self._lines_expected = lines_expected
        self._lines_left = lines_expected
        self._tail = b"\r\n"

    def feed(self, data: bytes) -> bool:
        """Returns True when the reply is complete. An error reply ends the connection, because lines no longer add up.

        Hot: one search and one count for each read.
        """
        boundary = self._tail + data[:TAIL_BYTES_KEPT]
        if b"\r\n-" in boundary or b"\r\n-" in data:
            raise MalformedReply(f"Redis answered {_error_line(self._tail + data)}")
        self._tail = (boundary if len(data) < TAIL_BYTES_KEPT else data)[-TAIL_BYTES_KEPT:]
        self._lines_left -= data.count(b"\n")
        if self._lines_left > 0:
            return False
        if self._lines_left < 0:
            raise MalformedReply("more lines than the reply should have")
        self._lines_left = self._lines_expected
        return True


def _error_line(data: bytes) -> str:
    at = data.find(b"\r\n-") + 3
    return data[at : at + 200].split(b"\r\n")[0].decode("utf-8", "replace")
