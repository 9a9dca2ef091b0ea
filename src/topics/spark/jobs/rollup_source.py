"""The source of a roll-up: the `topics` source, whose tasks sum up what they read.

A window is a sum of parts. So of each batch a task reads it hands Spark one row for each bucket of time and group, with
its count, sums, smallest and largest values, and not the records. A bucket is in the same windows as any record in it.
What is not plain stays a row of its own, for Spark to judge: an escape in a group, a number in quotes, a time that is
not written as usual, whole batches with a payload that is no object. So what a value means is decided in one place.
"""

from functools import cache
from math import gcd
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw, Struct
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from topics.spark import options
from topics.spark.columns import PAYLOAD, Columns, as_json_list
from topics.spark.json_columns import payloads_as_json_list
from topics.spark.offsets import Gap
from topics.spark.options import Mode, Parsing
from topics.spark.schema import Table
from topics.spark.source import DefaultSource
from topics.spark.stream_reader import TopicsStreamReader
from topics.spark.telling import tells
from topics.wire.arrow import RECORD, array_of

OPTION = "parts"
PLAIN_COLUMNS = 6
"""Those of a row that is a record or a loss come first."""
PLAIN_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
MILLIS = r"^-?[0-9]{1,15}$"
PLAIN_TIME = r'^"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z"$'

Mask = NDArray[np.bool_]


class Parts(Struct, frozen=True):
    """What a task sums up: fields of the payload. `time` is None for the record's own."""

    bucket_us: int
    time: str | None
    by: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def columns(self) -> str:
        """Behind those of a plain row, as DDL."""
        by = "".join(f", _part_by_{at} string" for at in range(len(self.by)))
        of_value = ", _part_count_{0} bigint, _part_sum_{0} double, _part_min_{0} double, _part_max_{0} double"
        values = "".join(of_value.format(at) for at in range(len(self.values)))
        return f"_part_time timestamp, _part_records bigint{by}{values}"


def bucket_us(window_ms: int, slide_ms: int) -> int:
    """Windows begin and end at multiples of it."""
    return gcd(window_ms, slide_ms) * 1000


class RollupSource(DefaultSource):
    """The same options, and `parts`."""

    @classmethod
    def name(cls) -> str:
        return "topics_rollup"

    @tells
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        given = dict(self.options)
        parts = msgspec.json.decode(given.pop(OPTION), type=Parts)
        read = options.read_options(given, Mode.STREAMING)
        return TopicsStreamReader(read, PartsTable(schema, read.parsing, parts))


class PartsTable(Table):
    """Rows that sum up, before those that do not. It is sent to the tasks."""

    def __init__(self, wanted: StructType, parsing: Parsing, parts: Parts) -> None:
        super().__init__(StructType(wanted.fields[:PLAIN_COLUMNS]), parsing)
        self._all_fields = to_arrow_schema(wanted, timezone="UTC")
        self._parts = parts

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(("ts", PAYLOAD))

    def batch(self, topic: str, columns: Columns) -> pa.RecordBatch:
        summed, left = summed_up(self._parts, columns)
        if summed is None:
            return self._with_nulls(super().batch(topic, columns.with_data()))
        rows = [self._part_rows(summed)]
        if left.any():
            rows.append(self._with_nulls(super().batch(topic, columns.with_data().filter(pa.array(left)))))
        return pa.concat_batches(rows)

    def gap_batch(self, topic: str, gap: Gap) -> pa.RecordBatch:
        return self._with_nulls(super().gap_batch(topic, gap))

    def _with_nulls(self, plain: pa.RecordBatch) -> pa.RecordBatch:
        nulls = [pa.nulls(plain.num_rows, column.type) for column in list(self._all_fields)[PLAIN_COLUMNS:]]
        return pa.RecordBatch.from_arrays([*plain.columns, *nulls], schema=self._all_fields)

    def _part_rows(self, summed: pa.Table) -> pa.RecordBatch:
        names = ["time_max", "count_all", *(f"by_{at}" for at in range(len(self._parts.by)))]
        for at in range(len(self._parts.values)):
            names += [f"value_{at}_{what}" for what in ("count", "sum", "min", "max")]
        found = [summed.column(name).combine_chunks() for name in names]
        found[0] = found[0].cast(pa.timestamp("us", "UTC"))
        count = summed.num_rows
        plain = [
            pa.repeat(RECORD, count) if column.name == "kind" else pa.nulls(count, column.type)
            for column in list(self._all_fields)[:PLAIN_COLUMNS]
        ]
        return pa.RecordBatch.from_arrays([*plain, *found], schema=self._all_fields)


def summed_up(parts: Parts, columns: Columns) -> tuple[pa.Table | None, Mask]:
    """One row for each bucket and group, and the places of records that are not in them. No table if none is."""
    everything = np.ones(len(columns), bool)
    try:
        times, plain, arrays = _usual(parts, columns) or _judged(parts, columns.with_data())
    except (msgspec.DecodeError, RecursionError, pa.ArrowInvalid):
        return None, everything
    if not plain.any():
        return None, everything
    table = pa.table({"bucket": times // parts.bucket_us, "time": times, **arrays})
    if not plain.all():
        table = table.filter(pa.array(plain))
    keys = ["bucket", *(f"by_{at}" for at in range(len(parts.by)))]
    wanted: list[Any] = [("time", "max"), ([], "count_all")]
    for at in range(len(parts.values)):
        wanted += [(f"value_{at}", what) for what in ("count", "sum", "min", "max")]
    return table.group_by(keys, use_threads=False).aggregate(wanted), ~plain


Found = tuple[NDArray[np.int64], Mask, dict[str, pa.Array]]
"""Times in microseconds, which records are plain, and the columns to group by and to sum up."""


class _Usual:
    """Decodes payloads in which groups are texts and values are numbers, all into columns in one pass."""

    def __init__(self, parts: Parts) -> None:
        kinds: list[tuple[str, Any, Any]] = [(name, str | None, None) for name in parts.by]
        kinds += [(name, float | None, None) for name in parts.values]
        kinds += [] if parts.time is None else [(parts.time, Raw, Raw(b"null"))]
        fields = [
            (f"f{at}", kind, msgspec.field(default=nothing, name=name))
            for at, (name, kind, nothing) in enumerate(kinds)
        ]
        row = msgspec.defstruct("Row", fields, gc=False)
        served = msgspec.defstruct("Served", [("data", row)], gc=False)
        self._decode = msgspec.json.Decoder(list[row]).decode  # type: ignore[valid-type]
        self._decode_served = msgspec.json.Decoder(list[served]).decode  # type: ignore[valid-type]
        self._take = [attrgetter(f"f{at}") for at in range(len(kinds))]

    def columns(self, columns: Columns) -> list[list[Any]]:
        if columns.served:
            rows: list[Any] = [record.data for record in self._decode_served(as_json_list(columns.served))]  # type: ignore[attr-defined]
        else:
            rows = self._decode(payloads_as_json_list(columns.data))
        return [list(map(take, rows)) for take in self._take]


_decoder_for = cache(_Usual)


def _usual(parts: Parts, columns: Columns) -> Found | None:
    """None where they are not all as usual: `_judged` looks at each. Hot: 0.3 µs a record."""
    names = [*parts.by, *parts.values, *([] if parts.time is None else [parts.time])]
    if not names or len(set(names)) < len(names):
        return None
    try:
        found = _decoder_for(parts).columns(columns)
    except (msgspec.DecodeError, RecursionError):
        return None
    times, plain = columns.ts.to_numpy() * 1000, np.ones(len(columns), bool)
    if parts.time is not None:
        times, plain = _times(pa.array(list(map(bytes, found.pop())), pa.string()))
    arrays = {f"by_{at}": array_of(found[at], pa.string()) for at in range(len(parts.by))}
    for at, values in enumerate(found[len(parts.by) :]):
        arrays[f"value_{at}"] = array_of(values, pa.float64())
    return times, plain, arrays


def _judged(parts: Parts, columns: Columns) -> Found:
    """Looks at the text of each value."""
    texts = _texts({*parts.by, *parts.values, *([] if parts.time is None else [parts.time])}, columns.data)
    arrays: dict[str, pa.Array] = {}
    times, plain = (columns.ts.to_numpy() * 1000, np.ones(len(columns), bool))
    if parts.time is not None:
        times, plain = _times(texts[parts.time])
    for at, name in enumerate(parts.by):
        arrays[f"by_{at}"], is_plain = _group(texts[name])
        plain = plain & is_plain
    for at, name in enumerate(parts.values):
        arrays[f"value_{at}"], is_plain = _number(texts[name])
        plain = plain & is_plain
    return times, plain, arrays


def _texts(names: set[str], data: pa.Array) -> dict[str, pa.Array]:
    """The JSON text of each field; `null` where there is none. One pass over a payload finds them all."""
    if not names:
        return {}
    fields = [(f"f{at}", Raw, msgspec.field(default=Raw(b"null"), name=name)) for at, name in enumerate(sorted(names))]
    row = msgspec.defstruct("Row", fields, gc=False)
    payloads = data.cast(pa.binary()).to_pylist()
    rows = msgspec.json.decode(b"[%b]" % b",".join(payloads), type=list[row])  # type: ignore[valid-type]
    return {
        name: pa.array(list(map(bytes, map(attrgetter(f"f{at}"), rows))), pa.string())
        for at, name in enumerate(sorted(names))
    }


def _group(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """The text a group is known by, and which of them are plain."""
    nothing = pc.equal(texts, "null")
    quoted = pc.starts_with(texts, '"')
    plain = _mask(pc.or_(nothing, pc.and_(quoted, pc.invert(pc.match_substring(texts, "\\")))))
    if not plain.all():
        bare = pc.or_(pc.match_substring_regex(texts, PLAIN_INTEGER), pc.is_in(texts, pa.array(["true", "false"])))
        plain = plain | _mask(bare)
    inside = pc.if_else(quoted, pc.utf8_slice_codeunits(texts, 1, -1), texts)
    return pc.if_else(nothing, pa.scalar(None, pa.string()), inside), plain


def _number(texts: pa.Array) -> tuple[pa.Array, Mask]:
    nothing = pc.equal(texts, "null")
    is_number = pc.match_substring_regex(texts, "^[-0-9]")
    numbers = pc.if_else(is_number, texts, pa.scalar(None, pa.string())).cast(pa.float64())
    return numbers, _mask(pc.or_(nothing, is_number))


def _times(texts: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    """Microseconds since 1970, 0 where a time is not plain."""
    no_text, found, plain = pa.scalar(None, pa.string()), np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    written = pc.match_substring_regex(texts, PLAIN_TIME)
    if pc.any(written).as_py():
        inside = pc.if_else(written, pc.utf8_slice_codeunits(texts, 1, -2), no_text)
        found += pc.fill_null(inside.cast(pa.timestamp("us")).cast(pa.int64()), 0).to_numpy()
        plain |= _mask(written)
    if not plain.all():
        millis = pc.match_substring_regex(texts, MILLIS)
        found += pc.fill_null(pc.if_else(millis, texts, no_text).cast(pa.int64()), 0).to_numpy() * 1000
        plain |= _mask(millis)
    return found, plain


def _mask(array: pa.Array) -> Mask:
    found: Mask = array.to_numpy(zero_copy_only=False)
    return found
