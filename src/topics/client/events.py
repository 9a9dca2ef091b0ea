"""What readers and watchers get: events, and the losses between them.

An event's payload stays text until somebody looks at it: decoding costs more than all the rest of a record.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct, field

D = TypeVar("D")


class Event(Struct, Generic[D], gc=False):
    """A record. `data` is decoded when it is looked at, each time anew: keep it if it is needed twice. `raw` is the
    JSON text as it was written."""

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    raw: Raw = field(name="data")
    node: str | None = field(default=None, name="$node")
    tag: str | None = field(default=None, name="$tag")
    meta: dict[str, Any] | None = None
    topic: str = field(default="", name="$topic")

    def __repr__(self) -> str:
        tag = "" if self.tag is None else f", tag={self.tag!r}"
        data = bytes(self.raw).decode(errors="replace")
        return f"{type(self).__name__}({self.topic!r}, seq={self.seq}{tag}, data={data})"

    decode: ClassVar[Callable[[Raw], Any]] = msgspec.json.Decoder().decode

    @property
    def data(self) -> D:
        """Raises `msgspec.ValidationError` where the payload is not of the type that was asked for."""
        value: D = type(self).decode(self.raw)
        return value


class Gap(NamedTuple):
    """Records `first` to `last`, both inclusive, were lost before they were read: nobody asked for that. `reason` is
    `cap`, `ttl`, `crash`, `source_trim`, `mixed`, `recreated` (the topic is another one of the same name, read from its
    beginning) or, when a watch begins, `from_seq_too_old`."""

    first: int
    last: int
    reason: str
    topic: str = ""


class CaughtUp(NamedTuple):
    """There is no more in this topic right now."""

    topic: str
    head_seq: int


class TopicDeleted(NamedTuple):
    """Somebody deleted the topic; the others of a watch go on."""

    topic: str
    head_seq: int


def event_type(as_type: type[D]) -> type[Event[D]]:
    """The kind of event whose `data` is decoded as `as_type`."""
    return type("Event", (Event,), {"decode": msgspec.json.Decoder(as_type).decode}, gc=False)
