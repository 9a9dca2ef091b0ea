"""A producer that numbers its records: what it has written stays known for good, not for a window of time.

Its last write is remembered under a key made of its name and the number of the last record, which no key of a client
can be: those hold no NUL.
"""

from typing import Annotated

from msgspec import Meta, Struct

from topics import limits
from topics.errors import InvalidRequest
from topics.model.config import Unsigned

_SEPARATOR = "\0"


class Producer(Struct, frozen=True, gc=False):
    """Who writes, and where in its sequence this write begins. Records it has written before are left out."""

    name: Annotated[str, Meta(description="Its writes come one after the other, never two at once.")]
    sequence: Annotated[Unsigned, Meta(description="Number of the first record; the others follow. May leave gaps.")]


def check_key(key: str) -> None:
    _check("idempotency_key", key)


def check_producer(producer: Producer) -> None:
    _check("producer.name", producer.name)
    if producer.sequence > limits.U64_MAX:
        raise InvalidRequest.in_field("producer.sequence", "is beyond the largest unsigned 64-bit integer")


def producer_key(name: str, last_number: int) -> str:
    return f"{name}{_SEPARATOR}{last_number}"


def split_key(key: str) -> tuple[str, int] | None:
    """The producer and the number of its last record, if the key is of one."""
    name, _, number = key.partition(_SEPARATOR)
    return (name, int(number)) if number.isdecimal() else None


def _check(field: str, text: str) -> None:
    if not 1 <= len(text) <= limits.IDEMPOTENCY_KEY_CHARS_MAX:
        raise InvalidRequest.in_field(
            field, f"is {len(text)} characters long; use 1 to {limits.IDEMPOTENCY_KEY_CHARS_MAX}"
        )
    if _SEPARATOR in text:
        raise InvalidRequest.in_field(field, "holds a NUL character; leave it out")
