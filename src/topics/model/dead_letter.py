"""A dead letter: a job with its provenance in `meta`, and how to take that off again, byte for byte."""

import re
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from topics.model.record import NewRecord

_encode = msgspec.json.encode


class StoredRecord(Struct, gc=False):
    """A record's text, with its tag, taken apart; data and meta stay the bytes they are."""

    data: Raw
    node: str | None = field(name="$node", default=None)
    tag: str | None = field(name="$tag", default=None)
    meta: Raw | UnsetType = UNSET

    def again(self, meta: bytes | None) -> NewRecord:
        """The record as it could have been sent, with another meta."""
        return NewRecord(self.data, self.tag, self.node, UNSET if meta is None else Raw(meta))


stored_record = msgspec.json.Decoder(StoredRecord).decode

# Quotes inside a JSON string are escaped, so this can only be a key at the end of an object.
_PROVENANCE = re.compile(
    rb'(?P<rest>.*?),?"\$dead_letter_from":(?P<queue>"[^"]*"),'
    rb'"\$dead_letter_deliveries":"\d+","\$dead_letter_src_seq":"\d+"\}',
    re.DOTALL,
)


class DeadLetter(NamedTuple):
    queue: str
    meta: bytes | None  # of the job


def with_provenance(record: StoredRecord, queue: str, deliveries: int, seq: int) -> NewRecord:
    stamp = b'"$dead_letter_from":%b,"$dead_letter_deliveries":"%d","$dead_letter_src_seq":"%d"}' % (
        _encode(queue),
        deliveries,
        seq,
    )
    if isinstance(record.meta, UnsetType):
        return record.again(b"{" + stamp)
    body = bytes(record.meta)[:-1]
    return record.again(b"%b%b%b" % (body, b"" if body.rstrip() == b"{" else b",", stamp))


def provenance(record: StoredRecord) -> DeadLetter | None:
    """What `with_provenance` has put there, if it has."""
    if isinstance(record.meta, UnsetType):
        return None
    found = _PROVENANCE.fullmatch(bytes(record.meta))
    if found is None:
        return None
    rest = found["rest"]
    return DeadLetter(msgspec.json.decode(found["queue"], type=str), None if rest == b"{" else rest + b"}")
