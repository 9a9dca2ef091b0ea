"""What Spark calls to write. Rows become chunks; each chunk is one append of a producer that numbers its records.

A producer is one partition of a query. A record's number is made of its batch and its place among the task's rows for
the topic. So a task that is tried again, or a batch that is repeated after a crash of either side, appends nothing
twice, however much later and however the rows are cut into chunks. This needs the same rows in the same order and the
same partitions; other rows are refused where they can be recognised.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
from msgspec import UNSET
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from topics import limits
from topics.client.calls import NewRecord
from topics.client.sync_client import Client
from topics.model.names import is_topic_name
from topics.model.producer import Producer
from topics.spark.errors import InvalidColumns, ReplayDiffers
from topics.spark.options import WriteOptions
from topics.spark.schema import KAFKA
from topics.spark.telling import telling

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"

BATCH_NUMBERS = 1 << 32  # more records than a task can have, and enough batches for centuries

RECORD_OVERHEAD_BYTES = 64  # field names and punctuation around a record in a request

_TEXTS: tuple[DataType, ...] = (StringType(), BinaryType())
COLUMNS: dict[str, tuple[DataType, ...]] = {
    "data": (StringType(),),
    "topic": (StringType(),),
    "tag": (StringType(),),
    "node": (StringType(),),
    "meta": (MapType(StringType(), StringType()), StringType()),
    "key": _TEXTS,
    "value": _TEXTS,
    "headers": (KAFKA["headers"].dataType,),
}
KAFKA_NAMES = {"data": "value", "tag": "key", "meta": "headers"}
"""Our columns, and their names in `schema=kafka`."""
_TAKEN = ("topic", "data", "value")

_decode_values = msgspec.json.Decoder(list[msgspec.Raw]).decode


@dataclass
class Written(WriterCommitMessage):
    """What one task appended. Spark pickles it on its way to the driver."""

    records: int
    chunks: int


class BatchWriter(DataSourceArrowWriter):
    """`df.write`. Its id is made on the driver, once per job, so every attempt of a task is the same producer."""

    def __init__(self, write: WriteOptions, schema: StructType) -> None:
        check_columns(schema, write)
        self._options = write
        self._job = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, iterator, Producer(f"{self._job}/{_task().partitionId()}", 0))


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def __init__(self, write: WriteOptions, schema: StructType) -> None:
        check_columns(schema, write)
        self._options = write

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        query, batch = task.getLocalProperty(QUERY_PROPERTY), task.getLocalProperty(BATCH_PROPERTY)
        if query is None or batch is None:
            raise InvalidColumns("this task is not part of a streaming batch, so its writes cannot be told apart")
        return write_rows(self._options, iterator, producer_of(f"{query}/{task.partitionId()}", int(batch)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every append was acknowledged when its task ended: nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was appended stays; the batch is tried again with the same numbers."""


def producer_of(name: str, batch: int) -> Producer:
    """A producer at the first record of a batch."""
    return Producer(name, batch * BATCH_NUMBERS)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "writers run in tasks"
    return task


def check_columns(schema: StructType, write: WriteOptions) -> None:
    types = {column.name: column.dataType for column in schema.fields}
    if unknown := sorted(set(types) - set(COLUMNS)):
        raise InvalidColumns(f"column {unknown[0]} is not written; select some of {', '.join(COLUMNS)}")
    for own, kafka in KAFKA_NAMES.items():
        if own in types and kafka in types:
            raise InvalidColumns(f"columns {own} and {kafka} both are the record's {own}; select one of them")
    if "data" not in types and "value" not in types:
        raise InvalidColumns(
            "column data is missing; it holds the payload as JSON text, for example to_json(struct('*'))"
        )
    if "topic" not in types and write.topic is None:
        raise InvalidColumns("there is neither a column topic nor the option topic")
    for name, kind in types.items():
        allowed = COLUMNS[name]
        if not any(_is_like(kind, each) for each in allowed):
            wanted = " or ".join(each.simpleString() for each in allowed)
            raise InvalidColumns(f"column {name} is {kind.simpleString()} and must be {wanted}")


def _is_like(kind: DataType, wanted: DataType) -> bool:
    """Whether the types are equal, nullability aside."""
    match kind, wanted:
        case MapType(), MapType():
            return (kind.keyType, kind.valueType) == (wanted.keyType, wanted.valueType)
        case ArrayType(), ArrayType():
            return _is_like(kind.elementType, wanted.elementType)
        case StructType(), StructType():
            pairs = zip(kind.fields, wanted.fields, strict=False)
            return kind.names == wanted.names and all(_is_like(one.dataType, two.dataType) for one, two in pairs)
        case _:
            return kind == wanted


def write_rows(write: WriteOptions, batches: Iterator[pa.RecordBatch], producer: Producer) -> Written:
    with telling(), write.server.client() as client:
        sender = ChunkSender(write, producer, client)
        for batch in batches:
            for topic, record in records_of(batch, write.topic):
                sender.add(topic, record)
        sender.finish()
        return Written(sender.records, sender.chunks)


def records_of(batch: pa.RecordBatch, topic_for_all: str | None) -> Iterator[tuple[str, NewRecord]]:
    """The topic and record of each row. Hot: works on whole columns, under 1 µs a row."""
    count = batch.num_rows
    given = {name: batch.column(name) for name in batch.schema.names}
    nothing: list[Any] = [None] * count
    topics: list[Any] = [topic_for_all] * count
    if topic_for_all is None:
        topics = given["topic"].to_pylist() if "topic" in given else nothing
        for topic in set(topics):
            if topic is None or not is_topic_name(topic):
                raise InvalidColumns(f"column topic has {topic!r}, which is not a topic name")
    columns = {name: _texts(name, column).to_pylist() for name, column in given.items() if name not in _TAKEN}
    data = "data" if "data" in given else "value"
    payloads = _payloads(topics, _texts(data, given[data]).cast(pa.binary()).to_pylist())
    tags = columns.get("tag", columns.get("key", nothing))
    metas = columns.get("meta", columns.get("headers", nothing))
    if metas is not nothing:
        metas = [meta if meta is None else _meta(topic, meta) for topic, meta in zip(topics, metas, strict=True)]
    return zip(topics, map(NewRecord, payloads, tags, columns.get("node", nothing), metas), strict=True)


def _texts(name: str, column: pa.Array) -> pa.Array:
    """The column as text: Kafka's keys and values are bytes."""
    if not pa.types.is_binary(column.type):
        return column
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        raise InvalidColumns(f"column {name} has bytes that are not UTF-8 text") from None


def _payloads(topics: Sequence[str], texts: Sequence[bytes | None]) -> list[msgspec.Raw]:
    """The texts, each checked to be one JSON value: they go into a request as they are."""
    if None not in texts:
        try:
            values = _decode_values(b"[%b]" % b",".join(texts))  # type: ignore[arg-type]
        except (msgspec.DecodeError, RecursionError):
            values = []
        # Rows such as `[1` and `2]` are one value only together, so each value is compared with its row.
        if [*map(bytes, values)] == texts:
            return values
    return [_payload(topic, text) for topic, text in zip(topics, texts, strict=True)]


def _payload(topic: str, text: bytes | str | None) -> msgspec.Raw:
    if text is None:
        raise InvalidColumns(f'column data is null in a row for topic "{topic}"; a record needs a payload')
    try:
        return msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidColumns(
            f'column data is not JSON in a row for topic "{topic}" ({error}); use to_json, or quote plain text'
        ) from None


def _meta(topic: str, given: Any) -> Mapping[str, str] | msgspec.Raw:
    """JSON text stays as it is; a map, or Kafka's headers, becomes an object of texts."""
    if isinstance(given, str):
        if not given.lstrip().startswith("{"):
            raise InvalidColumns(f'column meta is not a JSON object in a row for topic "{topic}"')
        return _payload(topic, given)
    meta: dict[str, str] = {}
    for entry in given:
        name, value = (entry["key"], entry["value"]) if isinstance(entry, dict) else entry
        if name is None or value is None:
            raise InvalidColumns(f'column meta or headers has no value for {name!r} in a row for topic "{topic}"')
        if name in meta:
            raise InvalidColumns(f'column headers has {name!r} twice in a row for topic "{topic}"; meta has it once')
        try:
            meta[name] = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            raise InvalidColumns(f"header {name!r} has bytes that are not UTF-8 text") from None
    return meta


@dataclass
class _Chunk:
    records: list[NewRecord] = field(default_factory=list)
    size_bytes: int = 0


class ChunkSender:
    """Gathers records by topic and appends them."""

    def __init__(self, write: WriteOptions, producer: Producer, client: Client) -> None:
        self.records = 0
        self.added = 0  # of `records`, those that no earlier attempt had appended
        self.chunks = 0
        self._options = write
        self._producer = producer
        self._client = client
        self._producers: dict[str, Producer] = {}  # by topic, each at its next record
        self._next_sequences: dict[str, int] = {}  # by topic, as the server has them
        self._waiting: dict[str, _Chunk] = {}
        self._waiting_bytes = 0

    def add(self, topic: str, record: NewRecord) -> None:
        size_bytes = record_size_bytes(record)
        chunk = self._waiting.get(topic)
        if chunk is not None and (
            len(chunk.records) >= self._options.chunk_records_max
            or chunk.size_bytes + size_bytes > self._options.chunk_bytes_max
        ):
            self._send(topic)
            chunk = None
        if chunk is None:
            chunk = self._waiting[topic] = _Chunk()
        chunk.records.append(record)
        chunk.size_bytes += size_bytes
        self._waiting_bytes += size_bytes
        if self._waiting_bytes > self._options.chunk_bytes_max * limits.SPARK_BUFFERED_CHUNKS_MAX:
            self.flush()

    def flush(self) -> None:
        for topic in list(self._waiting):
            self._send(topic)

    def finish(self) -> None:
        """Sends what is left. Raises `ReplayDiffers` if an earlier attempt wrote more records than this one."""
        self.flush()
        for topic, producer in self._producers.items():
            begin, known = self._producer.sequence, self._next_sequences[topic]
            if producer.sequence < known < begin + BATCH_NUMBERS:
                raise ReplayDiffers(topic, producer.name, known - begin, producer.sequence - begin)

    def _send(self, topic: str) -> None:
        chunk = self._waiting.pop(topic)
        self._waiting_bytes -= chunk.size_bytes
        producer = self._producers.get(topic, self._producer)
        reply = self._client.append_many(topic, chunk.records, producer=producer, create=self._options.create_topics)
        self._producers[topic] = Producer(producer.name, producer.sequence + len(chunk.records))
        self._next_sequences[topic] = 0 if reply.next_sequence is UNSET else reply.next_sequence
        self.records += len(chunk.records)
        self.added += 0 if reply.deduped else reply.count
        self.chunks += 1


def record_size_bytes(record: NewRecord) -> int:
    """Roughly the record's size in a request; chunks stay far below the server's limit."""
    size_bytes = len(memoryview(record.data)) + RECORD_OVERHEAD_BYTES
    if record.tag is not None:
        size_bytes += len(record.tag)
    if record.node is not None:
        size_bytes += len(record.node)
    match record.meta:
        case None:
            return size_bytes
        case msgspec.Raw():
            return size_bytes + len(memoryview(record.meta))
        case pairs:
            return size_bytes + sum(len(name) + len(value) + 8 for name, value in pairs.items())
