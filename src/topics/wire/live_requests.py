"""What clients of live delivery send: watch sessions over HTTP, commands over WebSocket."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from topics import limits
from topics.errors import InvalidRequest
from topics.model.config import Unsigned
from topics.wire.requests import ReadEpoch, WriteRequest, check_u64, decode, decode_leniently


class Consistency(StrEnum):
    """`strong`: a record is pushed only once it is durable."""

    EVENTUAL = "eventual"
    STRONG = "strong"


class TopicStart(Struct, forbid_unknown_fields=True):
    """Where to begin in one topic."""

    from_seq: Annotated[Unsigned, Meta(description="Exclusive; 0 is from the earliest record.")] = 0
    tail: Annotated[bool, Meta(description="true: only what comes from now on.")] = False
    epoch: ReadEpoch = None

    def __post_init__(self) -> None:
        check_u64(self.from_seq, "from_seq")
        check_u64(self.epoch, "epoch")


class ReadWishes(Struct, forbid_unknown_fields=True):
    """How a live reader wants its records; the same for SSE and WebSocket."""

    node: Annotated[
        str | list[str] | None, Meta(description="The reader's own identities: their records are left out.")
    ] = None
    limit: Annotated[Unsigned, Meta(description="Records per frame; at most 1000.")] = limits.DIFF_LIMIT_DEFAULT
    max_batch_bytes: Annotated[Unsigned, Meta(description="Bytes per frame; 0 is 1 MiB, at most 8 MiB.")] = (
        limits.WATCH_BATCH_BYTES_DEFAULT
    )
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    match: Annotated[
        str | list[str] | None, Meta(description="Extension. Only records whose tag matches, as in a delete.")
    ] = None

    to_seq: ClassVar[int | None] = None  # only a diff has an end

    def __post_init__(self) -> None:
        check_u64(self.limit, "limit")
        check_u64(self.max_batch_bytes, "max_batch_bytes")


class WatchRequest(ReadWishes, kw_only=True):
    """Opens a watch session over one or many topics."""

    topics: Annotated[dict[str, TopicStart], Meta(description="Topic to where it begins.")]
    heartbeat_ms: Annotated[Unsigned, Meta(description="Clamped to 1000..60000.")] = limits.HEARTBEAT_MS_DEFAULT
    consistency: Consistency = Consistency.EVENTUAL
    cursor: Annotated[str | None, Meta(description="The id of an event: go on after it, in the topics it names.")] = (
        None
    )

    def __post_init__(self) -> None:
        ReadWishes.__post_init__(self)
        check_u64(self.heartbeat_ms, "heartbeat_ms")


class Subscribe(ReadWishes, kw_only=True, tag_field="op", tag="subscribe"):
    """One topic, or a map as in a watch request."""

    request_id: str | None = None
    topic: str | None = None
    topics: dict[str, TopicStart] | None = None
    from_seq: Unsigned = 0
    tail: bool = False
    epoch: ReadEpoch = None

    def __post_init__(self) -> None:
        ReadWishes.__post_init__(self)
        check_u64(self.from_seq, "from_seq")
        check_u64(self.epoch, "epoch")


class Unsubscribe(Struct, kw_only=True, tag_field="op", tag="unsubscribe", forbid_unknown_fields=True):
    topic: str
    request_id: str | None = None


class Publish(WriteRequest, kw_only=True, tag_field="op", tag="publish"):
    topic: str
    request_id: str | None = None
    return_seqs: bool = True


class Ping(Struct, kw_only=True, tag_field="op", tag="ping", forbid_unknown_fields=True):
    request_id: str | None = None


Command = Subscribe | Unsubscribe | Publish | Ping


def decode_command(text: bytes) -> Command:
    command: Any = decode(text, Command)  # type: ignore[arg-type]
    return command  # type: ignore[no-any-return]


def decode_command_leniently(text: bytes) -> Command:
    command: Any = decode_leniently(text, Command)  # type: ignore[arg-type]
    return command  # type: ignore[no-any-return]


class _Correlated(Struct):
    request_id: str | None = None


def request_id_of(text: bytes) -> str | None:
    """The request id of a message that is not a valid command, if it has one, so that the client can match the
    refusal."""
    try:
        return decode(text, _Correlated).request_id
    except InvalidRequest:
        return None
