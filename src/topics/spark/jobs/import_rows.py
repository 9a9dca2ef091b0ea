"""Turns a row of a file into a record, or says why it cannot. Runs in tasks, over Arrow batches.

A row is JSON text, whatever the file's format. The text goes into the topic as it is; only the fields for the tag, the
node, the key and the time are looked at.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import pyarrow as pa
from msgspec import Raw

from topics import limits
from topics.client.calls import NewRecord
from topics.spark.jobs.json_paths import Step, column_or_path, steps_of

IMPORT_META = "import"  # which row of which file a record is: "<source>:<row>"
KEY_META = "key"
TIME_META = "time"  # milliseconds since 1970

REJECTED_TEXT_CHARS_MAX = 1000

PARSED_SCHEMA = "row long, record binary, key string, reason string, text string"
CHUNK_SCHEMA = "first_row long, last_row long, records int, body binary, rejects binary, skipped int"

_ARROW_PARSED = pa.schema(
    [("row", pa.int64()), ("record", pa.binary()), ("key", pa.string()), ("reason", pa.string()), ("text", pa.string())]
)
_ARROW_CHUNK = pa.schema(
    [
        ("first_row", pa.int64()),
        ("last_row", pa.int64()),
        ("records", pa.int32()),
        ("body", pa.binary()),
        ("rejects", pa.binary()),
        ("skipped", pa.int32()),
    ]
)


class Rejection(msgspec.Struct):
    """A row that did not become a record. Rows are counted from 1, over the whole file."""

    file: str
    row: int
    reason: str
    text: str


class BadRow(Exception):
    """This row cannot become a record. The text is the reason that people read."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Where in a row the fields of a record are: names of columns, or paths such as `$.order.items[0].id`. None: not in
    the row."""

    data: str | None = None
    key: str | None = None
    tag: str | None = None
    node: str | None = None
    time: str | None = None

    @property
    def look_inside(self) -> bool:
        return any((self.data, self.key, self.tag, self.node, self.time))

    def check(self) -> None:
        """Raises `InvalidOption` for text that begins like a path but is not one."""
        for option in ("data", "key", "tag", "node", "time"):
            text = getattr(self, option)
            if text is not None:
                column_or_path(text, option)


@dataclass(frozen=True, slots=True)
class RowPlan:
    """`source` names the content of the file; rows up to `done` are in the topic already."""

    source: str
    fields: Fields
    done: int
    chunk_records_max: int = limits.SPARK_CHUNK_RECORDS
    chunk_bytes_max: int = limits.SPARK_CHUNK_BYTES


class Parsed(NamedTuple):
    """`record` is the JSON text to write; `reason` says why there is none. A blank row has neither."""

    row: int
    record: bytes | None
    key: str | None
    reason: str | None
    text: str | None


def parse_rows(plan: RowPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[Parsed]:
    """Parses batches of `row`, `line` (binary) and `problem` (set if Spark itself could not read the row)."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("row", "line", "problem"))
        for row, line, problem in zip(*columns, strict=True):
            yield parse_row(plan, row, line, problem)


def parse_row(plan: RowPlan, row: int, line: bytes | None, problem: str | None) -> Parsed:
    if problem is None and (line is None or not line.strip()):
        return Parsed(row, None, None, None, None)
    try:
        if problem is not None or line is None:
            raise BadRow(problem or "is empty")
        record, key = _record(plan, row, line.strip())
    except BadRow as error:
        text = (line or b"").decode(errors="replace")[:REJECTED_TEXT_CHARS_MAX]
        return Parsed(row, None, None, str(error), text)
    return Parsed(row, record, key, None, None)


def _record(plan: RowPlan, row: int, line: bytes) -> tuple[bytes, str | None]:
    data = _json(line)
    fields = plan.fields
    tag = node = key = None
    meta = {}
    if fields.look_inside:
        content = msgspec.json.decode(data, type=dict[str, Raw] if line.startswith(b"{") else Raw)
        if not isinstance(content, dict):
            raise BadRow("is not a JSON object, so it has no fields")
        tag, node, key = (_text(content, name) for name in (fields.tag, fields.node, fields.key))
        if fields.time is not None:
            meta[TIME_META] = _time_ms(content, fields.time)
        if fields.data is not None:
            found = find(content, fields.data)
            if found is None:
                raise BadRow(f"has no {fields.data}")
            data = found
    if fields.key is None:
        meta[IMPORT_META] = f"{plan.source}:{row}"
    elif key is None:
        raise BadRow(f"has no key {fields.key}")
    else:
        meta[KEY_META] = key
    _check_limits(data, tag, node, meta)
    return msgspec.json.encode(NewRecord(data, tag, node, meta)), key


def _json(line: bytes) -> Raw:
    try:
        line.decode()
        return msgspec.json.decode(line, type=Raw)
    except UnicodeDecodeError as error:
        raise BadRow(f"is not UTF-8 (byte {error.start + 1})") from None
    except msgspec.DecodeError as error:
        raise BadRow(f"is not JSON: {error}") from None
    except RecursionError:
        raise BadRow("is nested too deeply") from None


def find(content: dict[str, Raw], path: str) -> Raw | None:
    """The field of this name, or the one the path leads to. JSON null counts as missing."""
    found = content.get(path)
    if found is None:
        found = _followed(content, steps_of(path))
    return None if found is None or bytes(found) == b"null" else found


def _followed(content: dict[str, Raw], steps: tuple[Step, ...]) -> Raw | None:
    if not steps or isinstance(steps[0], int):
        return None
    found = content.get(steps[0])
    for step in steps[1:]:
        if found is None:
            return None
        if isinstance(step, int):
            items = msgspec.json.decode(found, type=list[Raw]) if bytes(found).startswith(b"[") else []
            found = items[step] if step < len(items) else None
        else:
            inner = msgspec.json.decode(found, type=dict[str, Raw]) if bytes(found).startswith(b"{") else {}
            found = inner.get(step)
    return found


def _text(content: dict[str, Raw], path: str | None) -> str | None:
    found = None if path is None else find(content, path)
    if found is None:
        return None
    value = msgspec.json.decode(found)
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        raise BadRow(f"has an object or a list at {path}; it must be text or a number")
    return bytes(found).decode()


def _time_ms(content: dict[str, Raw], path: str) -> str:
    found = find(content, path)
    if found is None:
        raise BadRow(f"has no time {path}")
    value = msgspec.json.decode(found)
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isdecimal()):
        return str(int(value))
    try:
        return str(pa.array([value], pa.string()).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())[0].as_py())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise BadRow(
            f"has {value!r} as its time {path}; use ISO 8601 with a time zone, or milliseconds since 1970"
        ) from None


def _check_limits(data: Raw, tag: str | None, node: str | None, meta: dict[str, str]) -> None:
    """Rejects a row that is too large: the server would refuse the whole write because of it."""
    meta_bytes = len(msgspec.json.encode(meta))
    if len(bytes(data)) + meta_bytes > limits.RECORD_BYTES_MAX:
        raise BadRow(f"has more than {limits.RECORD_BYTES_MAX} bytes")
    if meta_bytes > limits.META_BYTES_MAX:
        raise BadRow("has a key that is too long")
    if tag is not None and len(tag.encode()) > limits.TAG_BYTES_MAX:
        raise BadRow(f"has a tag of more than {limits.TAG_BYTES_MAX} bytes")
    if node is not None and len(node.encode()) > limits.NODE_BYTES_MAX:
        raise BadRow(f"has a node of more than {limits.NODE_BYTES_MAX} bytes")


def parsed_batches(plan: RowPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The parsed rows as Arrow batches, for a shuffle before they are chunked."""
    for batch in batches:
        rows = [parsed._asdict() for parsed in parse_rows(plan, [batch])]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_PARSED)


def read_parsed(batches: Iterable[pa.RecordBatch]) -> Iterator[Parsed]:
    for batch in batches:
        for row in batch.select(_ARROW_PARSED.names).to_pylist():
            yield Parsed(**row)


def chunk_batches(plan: RowPlan, rows: Iterable[Parsed]) -> Iterator[pa.RecordBatch]:
    """Gathers records into writes, each with the rejections among its rows and the number of rows skipped because they
    are in the topic already."""
    chunk: list[bytes] = []
    rejects: list[tuple[int, str, str]] = []
    size_bytes = skipped = 0
    first = last = 0
    for parsed in rows:
        if parsed.reason is not None:
            rejects.append((parsed.row, parsed.reason, parsed.text or ""))
        elif parsed.record is None:
            continue
        elif parsed.row <= plan.done:
            skipped += 1
        else:
            if not chunk:
                first = parsed.row
            chunk.append(parsed.record)
            size_bytes += len(parsed.record)
            last = parsed.row
        # Cut at fixed rows, so that a repeated import sends the same writes however Spark cuts the file.
        full = last % plan.chunk_records_max == 0 or size_bytes >= plan.chunk_bytes_max
        if (chunk and full) or len(rejects) >= plan.chunk_records_max:
            yield _chunk(first, last, chunk, rejects, skipped)
            chunk, rejects, size_bytes, skipped = [], [], 0, 0
    if chunk or rejects or skipped:
        yield _chunk(first, last, chunk, rejects, skipped)


def _chunk(
    first: int, last: int, chunk: list[bytes], rejects: list[tuple[int, str, str]], skipped: int
) -> pa.RecordBatch:
    body = b"[" + b",".join(chunk) + b"]"
    values = ([first], [last], [len(chunk)], [body], [msgspec.json.encode(rejects)], [skipped])
    arrays = [pa.array(value, field.type) for value, field in zip(values, _ARROW_CHUNK, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_CHUNK)
