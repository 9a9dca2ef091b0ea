"""Records as Arrow arrays, wherever they were read from."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from topics.spark.offsets import Gap
from topics.spark.options import Filters
from topics.wire.arrow import array_of, meta_maps, meta_members

RECORD_FIELDS = ("seq", "ts", "node", "tag", "data", "meta")
ALL_FIELDS = frozenset(RECORD_FIELDS)
PAYLOAD = "payload"
"""What is asked for in place of `data` by who takes fields out of it and does not need its text."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Records in the order of seqs, in Arrow arrays of the same length, and the seqs that are lost.

    `seq` and `ts` (ms since 1970) are int64. `node`, `tag`, `data` and `meta` are strings, `data` and `meta` JSON text;
    all but `data` may be null. A field that nobody asked for is all null. Those who ask for `PAYLOAD` get `data` or,
    where it is at hand, `served`: the records as the server sends them, joined by commas.
    """

    seq: pa.Array
    ts: pa.Array
    node: pa.Array
    tag: pa.Array
    data: pa.Array
    meta: pa.Array
    gaps: tuple[Gap, ...] = ()
    served: bytes | memoryview = b""

    def __len__(self) -> int:
        return len(self.seq)

    def rows(self) -> Iterator[tuple[int, int, str | None, str | None, str, dict[str, str] | None]]:
        """(seq, ts, node, tag, data, meta) of each record, as Python values."""
        metas = (None if pairs is None else dict(pairs) for pairs in self.meta_map().to_pylist())
        columns = (column.to_pylist() for column in (self.seq, self.ts, self.node, self.tag, self.data))
        return zip(*columns, metas, strict=True)

    def filter(self, keep: pa.Array) -> "Columns":
        return Columns(*(getattr(self, name).filter(keep) for name in RECORD_FIELDS))

    def with_data(self) -> "Columns":
        """With `data` in place of `served`."""
        if not self.served:
            return self
        return replace(self, data=array_of(payloads_of(self.served), pa.binary()).cast(pa.string()), served=b"")

    def meta_map(self) -> pa.Array:
        """`meta` as a map from string to string: other values appear as JSON text."""
        return meta_maps(self.meta)

    def headers(self, kind: pa.DataType) -> pa.Array:
        """`meta` as Kafka's headers."""
        if self.meta.null_count == len(self.meta):
            return pa.nulls(len(self.meta), kind)
        return pa.array(
            [
                None if text is None else [{"key": key, "value": value.encode()} for key, value in meta_members(text)]
                for text in self.meta.to_pylist()
            ],
            kind,
        )


class _Payload(msgspec.Struct, gc=False):
    data: msgspec.Raw


_decode_payloads = msgspec.json.Decoder(list[_Payload]).decode


def as_json_list(served: bytes | memoryview) -> bytes:
    return b"".join((b"[", served, b"]"))


def payloads_of(served: bytes | memoryview) -> list[bytes]:
    return [bytes(record.data) for record in _decode_payloads(as_json_list(served))]


def filtered(columns: Columns, filters: Filters) -> Columns:
    """Leaves out the records the reader does not want, as the server does for its readers."""
    keep = None
    if filters.node:
        keep = pc.fill_null(pc.invert(pc.is_in(columns.node, pa.array(filters.node, pa.string()))), True)
    if filters.match is not None:
        _, how, text = filters.match
        prefix = text.removesuffix("*")
        wanted = pc.equal(columns.tag, text) if how == "Eq" else pc.starts_with(columns.tag, prefix)
        wanted = pc.fill_null(wanted, False)
        keep = wanted if keep is None else pc.and_(keep, wanted)
    return columns if keep is None else columns.filter(keep)
