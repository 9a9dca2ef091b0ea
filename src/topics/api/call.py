"""One authenticated call, as handlers get it."""

from msgspec import Struct

from topics.api.auth import Key
from topics.api.http import Request
from topics.api.query import Query
from topics.clock import Clock
from topics.engine.journal import Commit
from topics.errors import InvalidRequest, UnsupportedMediaType
from topics.wire.requests import Body, decode, decode_leniently
from topics.wire.responses import Performance
from topics.wire.unknown_fields import UnknownFields


class Call(Struct, gc=False):
    """`name` and `item` are the names in the path, percent-decoded; empty where the path has none. `warnings`: unknown
    fields of the body; they go into the reply."""

    request: Request
    name: str
    item: str
    key: Key
    clock: Clock
    warnings: list[str] | None = None

    @property
    def query(self) -> Query:
        return Query(self.request.query)

    def elapsed_ms(self) -> float:
        return (self.clock.monotonic_ns() - self.request.received_ns) / 1e6

    def performance(self) -> Performance:
        return Performance(round(self.elapsed_ms(), 3))

    def performance_with_sync(self, commit: Commit | None) -> Performance:
        """Includes how long its sync took; 0 if there was none."""
        performance = self.performance()
        performance.fsync_ms = round(commit.sync_ns / 1e6, 3) if commit else 0.0
        return performance

    def body(self, into: type[Body]) -> Body:
        """The decoded body. Without one: all defaults, where the request has no required field."""
        body = self.request.body
        if not body:
            try:
                return into()
            except TypeError:
                raise InvalidRequest("this request needs a JSON body") from None
        self.require_json()
        try:
            return decode(body, into)
        except UnknownFields as unknown:
            self.warnings = unknown.warnings
        return decode_leniently(body, into)

    def require_json(self) -> None:
        content_type = self.request.headers.get(b"content-type")
        if content_type != b"application/json" and not _is_json(content_type):
            shown = "none" if content_type is None else repr(content_type.decode("latin-1")[:80])
            raise UnsupportedMediaType(f"Content-Type must be application/json, not {shown}")


def _is_json(content_type: bytes | None) -> bool:
    return content_type is not None and content_type.partition(b";")[0].strip().lower() == b"application/json"
