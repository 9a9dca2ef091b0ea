"""Records as Arrow arrays, whoever read them."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from topics.model.gap import Gap


@dataclass(frozen=True, slots=True)
class Columns:
    """Some records, ascending, in Arrow arrays of the same length, and seqs that are lost.

    `seq` and `ts` (ms since 1970) are int64; `node`, `tag` and `data` (JSON text) strings, the first two with nulls;
    `meta` a map from string to string, null where there is none.
    """

    seq: pa.Array
    ts: pa.Array
    node: pa.Array
    tag: pa.Array
    data: pa.Array
    meta: pa.Array
    gaps: tuple[Gap, ...] = ()

    def __len__(self) -> int:
        return len(self.seq)

    def rows(self) -> Iterator[tuple[int, int, str | None, str | None, str, dict[str, str] | None]]:
        """(seq, ts, node, tag, data, meta) of each record, as Python values."""
        metas = (None if pairs is None else dict(pairs) for pairs in self.meta.to_pylist())
        columns = (column.to_pylist() for column in (self.seq, self.ts, self.node, self.tag, self.data))
        return zip(*columns, metas, strict=True)
