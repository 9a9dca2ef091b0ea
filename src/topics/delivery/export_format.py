"""The formats of an export: lines of JSON, or an Arrow IPC stream. Both have the same content, and both end with a
trailer.

Encoding happens on other threads than the loop's, so formats hold no state.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec.json import encode

from topics.wire.responses import ExportEnd, ExportTrailer


class ExportFormat(Protocol):
    def start(self, topic: str) -> bytes:
        """What comes before the first record."""
        ...

    def records(self, fragments: Sequence[bytes]) -> bytes:
        """Records, given as the text readers get."""
        ...

    def end(self, end: ExportEnd) -> bytes: ...


class JsonLines:
    media_type = b"application/x-ndjson"

    def start(self, topic: str) -> bytes:
        return b""

    def records(self, fragments: Sequence[bytes]) -> bytes:
        # A line is a record: line breaks between its tokens become spaces.
        lines = [fragment.replace(b"\n", b" ").replace(b"\r", b" ") for fragment in fragments]
        return b"\n".join(lines) + b"\n"

    def end(self, end: ExportEnd) -> bytes:
        return encode(ExportTrailer(end)) + b"\n"


class ArrowStream:
    """Needs pyarrow, which a server may be without. It is imported when it is used: that takes a while."""

    media_type = b"application/vnd.apache.arrow.stream"

    @staticmethod
    def is_there() -> bool:
        from importlib.util import find_spec  # noqa: PLC0415 (only who asks for it waits for that)

        return find_spec("pyarrow") is not None

    def start(self, topic: str) -> bytes:
        from topics.wire.arrow import stream_start  # noqa: PLC0415

        return stream_start(topic)

    def records(self, fragments: Sequence[bytes]) -> bytes:
        from topics.wire.arrow import stream_records  # noqa: PLC0415

        return stream_records(fragments)

    def end(self, end: ExportEnd) -> bytes:
        from topics.wire.arrow import stream_end  # noqa: PLC0415

        return stream_end(end)
