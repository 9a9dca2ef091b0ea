"""Request bodies, field for field as the API document has them, and how bytes become one.

Unknown fields are ignored with a warning (`unknown_fields`), the last of a repeated field counts, and nothing is
guessed: an integer is not a float, a string or a boolean. Payloads stay the bytes they came as.
"""

import re
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from topics import limits
from topics.errors import InvalidRequest
from topics.model.config import TopicConfigPatch, Unsigned
from topics.model.producer import Producer
from topics.model.record import NewRecord
from topics.model.router import Guarantee
from topics.wire.unknown_fields import UnknownFields, lenient, warnings_of


def check_u64(value: int | None, field: str) -> None:
    if value is not None and value > limits.U64_MAX:
        # msgspec turns this into a ValidationError with the path of this object.
        raise ValueError(f"`{field}` is beyond the largest unsigned 64-bit integer")


ReadEpoch = Annotated[
    Unsigned | None,
    Meta(description="Extension. Epoch of the topic that from_seq belongs to, so that a recreated topic is noticed."),
]


class WriteRequest(Struct, gc=False, forbid_unknown_fields=True):
    """Appends one or many records."""

    records: Annotated[list[NewRecord], Meta(description="Seqs are assigned in this order, contiguously.")]
    node: Annotated[str | None, Meta(description="Writer of every record that names none itself.")] = None
    idempotency_key: Annotated[
        str | None,
        Meta(description="If it is used again within the window, you get the original seqs and nothing is appended."),
    ] = None
    create: Annotated[bool | None, Meta(description="false: 404 instead of creating the topic.")] = None
    config: Annotated[TopicConfigPatch | None, Meta(description="Applied only if this write creates the topic.")] = None
    disable_backpressure: Annotated[bool, Meta(description="Under load, wait instead of getting a 429.")] = False
    producer: Annotated[
        Producer | None,
        Meta(description="Extension. Replaces the key: records are remembered by number, without a window."),
    ] = None


class DiffRequest(Struct, gc=False, forbid_unknown_fields=True):
    """Reads the records after a cursor."""

    from_seq: Annotated[Unsigned, Meta(description="Exclusive: records with a greater $seq.")] = 0
    limit: Annotated[Unsigned, Meta(description="At most 1000; 0 is the default.")] = limits.DIFF_LIMIT_DEFAULT
    node: Annotated[
        str | list[str] | None, Meta(description="The reader's own identities: their records are left out.")
    ] = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: Annotated[Unsigned, Meta(description="Long poll; at most 30000.")] = 0
    to_seq: Annotated[Unsigned | None, Meta(description="Extension. Inclusive: no record with a greater $seq.")] = None
    from_ts: Annotated[Unsigned | None, Meta(description="Extension. Skip records with a smaller $ts (ms).")] = None
    match: Annotated[
        str | list[str] | None, Meta(description="Extension. Only records whose tag matches, as in a delete.")
    ] = None
    epoch: ReadEpoch = None

    # What only live readers choose, see `ReadWishes`.
    max_batch_bytes: ClassVar[int] = limits.DIFF_REPLY_BYTES_MAX
    include_data: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_u64(self.to_seq, "to_seq")
        check_u64(self.from_ts, "from_ts")
        check_u64(self.from_seq, "from_seq")
        check_u64(self.limit, "limit")
        check_u64(self.wait_ms, "wait_ms")
        check_u64(self.epoch, "epoch")


class PutCursorRequest(Struct, forbid_unknown_fields=True):
    """Remembers how far somebody has read."""

    seq: Annotated[Unsigned, Meta(description="The last seq that was processed.")]

    def __post_init__(self) -> None:
        check_u64(self.seq, "seq")


class PutRouterRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Forwards the records of one topic to another."""

    source: Annotated[str, Meta(description="Records written here from now on are forwarded.")]
    dest: Annotated[str, Meta(description="Where they are copied to; another topic than source.")]
    preserve_node: Annotated[bool, Meta(description="Copies keep the $node of their originals.")] = True
    preserve_tag: Annotated[bool, Meta(description="Copies keep the $tag of their originals.")] = True
    create_dest: Annotated[bool, Meta(description="false: 404 if dest does not exist.")] = True
    filter: Annotated[
        str | list[str] | None, Meta(description="Only records whose tag matches, as in a delete; null is all.")
    ] = None
    allow_cycle: Annotated[bool, Meta(description="Permits a cycle; a copy never returns to its origin.")] = False
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE


class DeleteRecordsRequest(Struct, forbid_unknown_fields=True):
    """Deletes records for good, by seq and/or by tag."""

    before_seq: Annotated[Unsigned | None, Meta(description="Records with a smaller $seq.")] = None
    match: Annotated[
        str | list[str] | None,
        Meta(description='["tag","Eq",text], ["tag","Glob","prefix*"], or a string.'),
    ] = None

    def __post_init__(self) -> None:
        check_u64(self.before_seq, "before_seq")


Body = TypeVar("Body")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder_of(into: Any) -> msgspec.json.Decoder[Any]:
    decoder = _decoders.get(into)
    if decoder is None:
        decoder = _decoders[into] = msgspec.json.Decoder(into)
    return decoder


def decode(body: bytes, into: type[Body]) -> Body:
    """The request in `body`. `InvalidRequest` names the field that is wrong, `UnknownFields` the fields that do not
    exist."""
    try:
        if not body.isascii():
            # Payloads are not decoded below, so this is where their UTF-8 is checked.
            body.decode()
        request: Body = (_decoders.get(into) or decoder_of(into)).decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        message = str(error)
        if is_unknown_field(error):
            raise UnknownFields(warnings_of(body, into) or [unknown_field_in(message)]) from None
        refuse(error, message)
    except UnicodeDecodeError as error:
        refuse_bytes(error.start)
    return request


def decode_leniently(body: bytes, into: type[Body]) -> Body:
    """The same, ignoring unknown fields."""
    twin: type[Body] = lenient(cast(Any, into))
    return decode(body, twin)


def is_unknown_field(error: Exception) -> bool:
    return isinstance(error, msgspec.ValidationError) and str(error).startswith(_UNKNOWN)


def unknown_field_in(message: str) -> str:
    """The warning for an unknown field beyond what is searched: msgspec names the first one."""
    found = _WITH_PATH.fullmatch(message)
    problem, path = (found["problem"], f"{found['path']}.") if found else (message, "")
    return f"unknown field {path}{problem[len(_UNKNOWN) :].strip(' `')[: limits.WARNING_NAME_CHARS_MAX]} was ignored"


_UNKNOWN = "Object contains unknown field"
_WITH_PATH = re.compile(r"(?P<problem>.*) - at `\$\.?(?P<path>.*)`", re.DOTALL)
_QUOTED_FIELD = re.compile(r"`(?P<field>\w+)` (?P<problem>is beyond .*)", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>\w+)`")


def refuse(error: Exception, message: str) -> NoReturn:
    """Raises `InvalidRequest` for an error of the decoder. `message` is the error's own, with places in the body."""
    if isinstance(error, msgspec.ValidationError):
        _refuse_field(message)
    if isinstance(error, RecursionError):
        raise InvalidRequest("the body is nested too deeply") from None
    raise InvalidRequest(f"the body is not valid JSON: {message}") from None


def refuse_bytes(at: int) -> NoReturn:
    raise InvalidRequest(f"the body is not valid UTF-8 (byte {at})") from None


def _refuse_field(message: str) -> NoReturn:
    """Turns "Expected `int`, got `str` - at `$.records[0].tag`" into an error that names the field."""
    found = _WITH_PATH.fullmatch(message)
    problem, path = (found["problem"], found["path"]) if found else (message, "")
    if missing := _MISSING.fullmatch(problem):
        path, problem = _join(path, missing["field"]), "is required"
    elif beyond := _QUOTED_FIELD.fullmatch(problem):
        path, problem = _join(path, beyond["field"]), beyond["problem"]
    else:
        problem = problem[:1].lower() + problem[1:].replace("`", "")
    if not path:
        raise InvalidRequest(f"the body: {problem}") from None
    raise InvalidRequest.in_field(path, problem) from None


def _join(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field
