"""A producer that numbers its records: what it has written stays known for good, not for a window of time.

Its last write is remembered under a key that no key of a client can be, since those hold no NUL: its name, the number
of the last record, and a hash of that record, so that a retry with different data is refused.
"""

from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from xxhash import xxh3_64_hexdigest

from topics import limits
from topics.errors import InvalidRequest
from topics.model.config import Unsigned
from topics.model.record import NewRecord

_SEPARATOR = "\0"


class Producer(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Who writes, and where in its sequence this write begins. Records it has written before are left out."""

    name: Annotated[str, Meta(description="Its writes come one after the other, never two at once.")]
    sequence: Annotated[Unsigned, Meta(description="Number of the first record; the others follow. May leave gaps.")]


def check_key(key: str) -> None:
    _check("idempotency_key", key)


def check_producer_name(name: str) -> None:
    _check("producer.name", name)


def check_producer(producer: Producer, record_count: int) -> None:
    check_producer_name(producer.name)
    if producer.sequence + record_count - 1 > limits.U64_MAX:
        raise InvalidRequest.in_field("producer.sequence", "goes beyond the largest unsigned 64-bit integer")


def hash_of(record: NewRecord) -> str:
    return xxh3_64_hexdigest(bytes(record.data))


def producer_key(name: str, last_number: int, last_hash: str) -> str:
    return f"{name}{_SEPARATOR}{last_number}{_SEPARATOR}{last_hash}"


def split_key(key: str) -> tuple[str, int, str] | None:
    """The producer, the number of its last record and the hash of that, if the key belongs to a producer."""
    name, *rest = key.split(_SEPARATOR)
    return (name, int(rest[0]), rest[1]) if len(rest) == 2 and rest[0].isdecimal() else None


def _check(field: str, text: str) -> None:
    if not 1 <= len(text) <= limits.IDEMPOTENCY_KEY_CHARS_MAX:
        raise InvalidRequest.in_field(
            field, f"is {len(text)} characters long; use 1 to {limits.IDEMPOTENCY_KEY_CHARS_MAX}"
        )
    if _SEPARATOR in text:
        raise InvalidRequest.in_field(field, "holds a NUL character; leave it out")


class RememberedWrite(NamedTuple):
    """The seqs that a key or a producer's number was used for, and when."""

    first_seq: int
    record_count: int
    at_ms: int
