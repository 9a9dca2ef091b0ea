"""What a client has sent and nobody has parsed yet, and whether more of it is read.

When to pause is the protocol's decision: it reads no more while something waits here, so that what a client can pile
up is bounded by one read. Nothing here knows of requests or deadlines.
"""

from typing import Protocol

from topics import limits


class Source(Protocol):
    """The reading side of a transport. It takes neither call twice in a row."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Intake:
    """One connection's. Only input that can't be parsed at once comes here."""

    __slots__ = ("_paused", "_source", "unparsed")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._paused = False
        self.unparsed: bytes | memoryview = b""

    def append(self, data: bytes) -> None:
        self.unparsed = bytes(self.unparsed) + data if self.unparsed else data

    def put_back(self, rest: bytes) -> None:
        """What the parser did not take: it comes before everything else."""
        if rest:
            self.unparsed = rest + bytes(self.unparsed)

    def clear(self) -> None:
        self.unparsed = b""

    def next_slice(self, body_bytes_missing: int) -> bytes | memoryview:
        """The parser can't be stopped halfway, so it is given little at a time: of the requests behind one
        that blocks, only those in the same slice are parsed. A body is one request however long it is.
        """
        size = max(limits.PARSE_SLICE_BYTES, body_bytes_missing)
        unparsed = memoryview(self.unparsed)
        self.unparsed = unparsed[size:] if len(unparsed) > size else b""
        return unparsed[:size]

    def pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._source.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._source.resume_reading()
