"""The options of `format("topics")`: what they are, and which of them go together.

Whatever is unknown, malformed or contradictory is refused by name; nothing is guessed. Names ignore case, as everywhere
in Spark. The API key is kept in a `Secret`, which shows itself to nobody.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from topics import limits
from topics.client.core import Address, check_api_key
from topics.client.sync_client import Client
from topics.errors import InvalidRequest
from topics.model.names import is_topic_name
from topics.spark.errors import InvalidOption

API_KEY_VARIABLE = "TOPICS_API_KEY"

READ_OPTIONS = (
    "url", "apiKey", "path", "coldPath", "subscribe", "subscribePrefix", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "maxOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition", "node",
    "tag", "tagPrefix", "includeData", "failOnDataLoss", "onDataLoss", "schema", "cursor", "archive",
)  # fmt: skip
WRITE_OPTIONS = (
    "url", "apiKey", "topic", "createTopics", "maxRecordsPerChunk", "maxBytesPerChunk",
)  # fmt: skip
# Spark hands its own options of a streaming query to the sink.
SPARK_WRITE_OPTIONS = ("checkpointLocation", "queryName")

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")

E = TypeVar("E", bound=StrEnum)
D = TypeVar("D")

EARLIEST = -2
LATEST = -1


class OnDataLoss(StrEnum):
    FAIL = "fail"
    WARN = "warn"
    ROWS = "rows"


class TableSchema(StrEnum):
    TOPICS = "topics"
    KAFKA = "kafka"


class Mode(StrEnum):
    BATCH = "batch"
    STREAMING = "streaming"


class Secret:
    """A text that never shows: not in `repr`, not in `str`, not in a plan."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    api_key: Secret | None

    def client(self) -> Client:
        return Client(self.url, None if self.api_key is None else self.api_key.reveal())


@dataclass(frozen=True, slots=True)
class Files:
    path: str
    cold_path: str | None


@dataclass(frozen=True, slots=True)
class Boundary:
    """One end of a read: `everywhere` is EARLIEST or LATEST, `seqs` overrides it by topic, `ts` is a time in ms.

    Seqs are as in Spark's Kafka source: the first one to read, or the first one not to read any more.
    """

    everywhere: int
    seqs: Mapping[str, int]
    ts: int | None


@dataclass(frozen=True, slots=True)
class Filters:
    """Which live records are left out. They are no loss."""

    node: tuple[str, ...]
    match: tuple[str, str, str] | None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    origin: Server | Files
    topics: tuple[str, ...]
    prefix: str | None
    start: Boundary
    end: Boundary
    filters: Filters
    on_data_loss: OnDataLoss
    schema: TableSchema
    include_data: bool
    min_partitions: int
    partition_records_max: int | None
    trigger_offsets_max: int | None
    cursor: str | None
    archive: str | None = None
    """Directory of an archive that has the early records."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    server: Server
    topic: str | None
    create_topics: bool
    chunk_records_max: int
    chunk_bytes_max: int


def table_schema(options: Mapping[str, str]) -> TableSchema:
    return _choice(_Given(options, READ_OPTIONS), "schema", TableSchema, TableSchema.TOPICS)


def read_options(options: Mapping[str, str], mode: Mode) -> ReadOptions:
    given = _Given(options, READ_OPTIONS)
    origin = _origin(given)
    topics, prefix = _subscription(given, origin)
    loss = _on_data_loss(given)
    schema = _choice(given, "schema", TableSchema, TableSchema.TOPICS)
    if schema is TableSchema.KAFKA and loss is OnDataLoss.ROWS:
        raise InvalidOption("onDataLoss", "the columns of schema=kafka have no place for a loss; use fail or warn")
    _refuse_of_other_mode(given, mode)
    if isinstance(origin, Files) and given.get("cursor") is not None:
        raise InvalidOption("cursor", "is kept by a server; with path there is none")
    if given.get("archive") == "":
        raise InvalidOption("archive", "is empty; name the directory that topics pipeline archive has written")
    cursor = given.get("cursor")
    if cursor is not None and not is_topic_name(cursor):
        raise InvalidOption("cursor", f"{cursor!r} is not a name; use letters, digits, and . _ : -")
    return ReadOptions(
        origin=origin,
        topics=topics,
        prefix=prefix,
        start=_boundary(given, "starting", EARLIEST if mode is Mode.BATCH else LATEST, mode, topics),
        end=_boundary(given, "ending", LATEST, mode, topics),
        filters=Filters(_names(given, "node"), _match(given)),
        on_data_loss=loss,
        schema=schema,
        include_data=_boolean(given, "includeData", True),
        min_partitions=_positive(given, "minPartitions") or 1,
        partition_records_max=_positive(given, "maxRecordsPerPartition"),
        trigger_offsets_max=_positive(given, "maxOffsetsPerTrigger"),
        cursor=cursor,
        archive=given.get("archive"),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    given = _Given(options, WRITE_OPTIONS + SPARK_WRITE_OPTIONS)
    topic = given.get("topic")
    if topic is not None:
        _check_topic("topic", topic)
    records_max = _positive(given, "maxRecordsPerChunk") or limits.SPARK_CHUNK_RECORDS
    bytes_max = _positive(given, "maxBytesPerChunk") or limits.SPARK_CHUNK_BYTES
    if records_max > limits.BATCH_RECORDS_MAX:
        raise InvalidOption("maxRecordsPerChunk", f"a server takes at most {limits.BATCH_RECORDS_MAX} in a write")
    if bytes_max > limits.BODY_BYTES_MAX // 2:
        raise InvalidOption("maxBytesPerChunk", f"at most {limits.BODY_BYTES_MAX // 2}, half of what a server takes")
    return WriteOptions(
        server=_server(given),
        topic=topic,
        create_topics=_boolean(given, "createTopics", True),
        chunk_records_max=records_max,
        chunk_bytes_max=bytes_max,
    )


class _Given:
    """The options as the user wrote them, checked for unknown ones."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in known}
        unknown = sorted(name for name in options if name.lower() not in names)
        if unknown:
            raise InvalidOption(unknown[0], f"is not known; the options are {', '.join(known)}")
        self._values = {names[name.lower()]: value for name, value in options.items()}

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def require_alone(self, first: str, second: str) -> None:
        if first in self._values and second in self._values:
            raise InvalidOption(first, f"contradicts {second}; give one of them")


def _origin(given: _Given) -> Server | Files:
    given.require_alone("url", "path")
    path = given.get("path")
    if path is None:
        if given.get("coldPath") is not None:
            raise InvalidOption("coldPath", "goes with path")
        return _server(given)
    given.require_alone("apiKey", "path")
    if not path:
        raise InvalidOption("path", "is empty")
    return Files(path, given.get("coldPath"))


def _server(given: _Given) -> Server:
    url = given.get("url")
    if url is None:
        raise InvalidOption("url", "is missing; give the address of a server, such as http://127.0.0.1:4000")
    return server_of(url, given.get("apiKey"))


def server_of(url: str, key: str | None) -> Server:
    """The server at an address; without a key, the one in the environment counts."""
    try:
        Address.of(url)
    except InvalidRequest as error:
        raise InvalidOption("url", error.message.removeprefix("url: ")) from None
    if key is None:
        key = os.environ.get(API_KEY_VARIABLE) or None
    if key is None:
        return Server(url, None)
    try:
        check_api_key(key)
    except InvalidRequest as error:
        raise InvalidOption("apiKey", error.message.removeprefix("api_key: ")) from None
    return Server(url, Secret(key))


def _subscription(given: _Given, origin: Server | Files) -> tuple[tuple[str, ...], str | None]:
    given.require_alone("subscribe", "subscribePrefix")
    prefix = given.get("subscribePrefix")
    if prefix is not None:
        if not prefix:
            raise InvalidOption("subscribePrefix", "is empty; name at least one character")
        return (), prefix
    topics = _names(given, "subscribe")
    if not topics:
        raise InvalidOption("subscribe", "is missing; name topics, or give subscribePrefix")
    # In a cold directory topics have no names; there they go by their ids, which no name looks like.
    for topic in topics if isinstance(origin, Server) else ():
        _check_topic("subscribe", topic)
    return tuple(sorted(topics)), None


def _refuse_of_other_mode(given: _Given, mode: Mode) -> None:
    refused = ("endingOffsets", "endingTimestamp") if mode is Mode.STREAMING else ("maxOffsetsPerTrigger", "cursor")
    for name in refused:
        if given.get(name) is not None:
            raise InvalidOption(name, f"has no meaning in a {mode} query")


def _boundary(given: _Given, side: str, default: int, mode: Mode, topics: tuple[str, ...]) -> Boundary:
    offsets_name, ts_name = f"{side}Offsets", f"{side}Timestamp"
    given.require_alone(ts_name, offsets_name)
    ts = _integer(given, ts_name)
    if ts is not None:
        if ts < 0:
            raise InvalidOption(ts_name, "is a time in milliseconds since 1970")
        return Boundary(default, {}, ts)
    text = given.get(offsets_name)
    if text is None:
        return Boundary(default, {}, None)
    refused = LATEST if side == "starting" else EARLIEST
    match text.strip().lower():
        case "earliest" | "latest" as word:
            everywhere = EARLIEST if word == "earliest" else LATEST
            if everywhere == refused and mode is Mode.BATCH:
                raise InvalidOption(offsets_name, f"a batch query that has {word} here would read nothing")
            return Boundary(everywhere, {}, None)
    return Boundary(default, _seqs(offsets_name, text, refused if mode is Mode.BATCH else None, topics), None)


def _seqs(name: str, text: str, refused: int | None, topics: tuple[str, ...]) -> Mapping[str, int]:
    try:
        seqs = json.loads(text, object_pairs_hook=lambda pairs: _named_once(name, pairs))
    except ValueError:
        raise InvalidOption(name, 'is earliest, latest, or a JSON object such as {"orders": 17}') from None
    if not isinstance(seqs, dict):
        raise InvalidOption(name, 'is earliest, latest, or a JSON object such as {"orders": 17}')
    for topic, seq in seqs.items():
        if type(seq) is not int or seq == 0 or seq < EARLIEST or seq == refused:
            raise InvalidOption(name, f'"{topic}" has {json.dumps(seq)}; use a seq, -2 for earliest, -1 for latest')
        if topics and topic not in topics:
            raise InvalidOption(name, f'"{topic}" is not subscribed')
    if missing := sorted(set(topics) - set(seqs)):
        raise InvalidOption(name, f'"{missing[0]}" is subscribed but not in it; name every topic')
    return seqs


def _named_once(option: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
    named: dict[str, object] = {}
    for topic, seq in pairs:
        if topic in named:
            raise InvalidOption(option, f'"{topic}" is in it twice')
        named[topic] = seq
    return named


def _on_data_loss(given: _Given) -> OnDataLoss:
    fail = _boolean(given, "failOnDataLoss", True)
    chosen = _choice(given, "onDataLoss", OnDataLoss, None)
    if chosen is None:
        return OnDataLoss.FAIL if fail else OnDataLoss.WARN
    if given.get("failOnDataLoss") is not None and fail != (chosen is OnDataLoss.FAIL):
        raise InvalidOption("failOnDataLoss", f"contradicts onDataLoss={chosen}; give one of them")
    return chosen


def _match(given: _Given) -> tuple[str, str, str] | None:
    given.require_alone("tag", "tagPrefix")
    tag, prefix = given.get("tag"), given.get("tagPrefix")
    if tag is not None:
        return ("tag", "Eq", tag)
    if prefix is not None:
        if "*" in prefix:
            raise InvalidOption("tagPrefix", "is a plain beginning of tags; leave the * out")
        return ("tag", "Glob", f"{prefix}*")
    return None


def _check_topic(option: str, name: str) -> None:
    if not is_topic_name(name):
        raise InvalidOption(option, f"{name[:80]!r} is not a topic name")


def _names(given: _Given, name: str) -> tuple[str, ...]:
    text = given.get(name)
    if text is None:
        return ()
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise InvalidOption(name, "has an empty name in its list")
    if len(set(names)) != len(names):
        raise InvalidOption(name, "names something twice")
    return tuple(names)


def _integer(given: _Given, name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if _WHOLE_NUMBER.fullmatch(text.strip()) is None:
        raise InvalidOption(name, f"{text!r} is not a whole number")
    return int(text)


def _positive(given: _Given, name: str) -> int | None:
    value = _integer(given, name)
    if value is not None and value < 1:
        raise InvalidOption(name, "must be at least 1")
    return value


def _boolean(given: _Given, name: str, default: bool) -> bool:
    text = given.get(name)
    if text is None:
        return default
    if text.lower() not in {"true", "false"}:
        raise InvalidOption(name, f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _choice(given: _Given, name: str, kind: type[E], default: D) -> E | D:
    text = given.get(name)
    if text is None:
        return default
    try:
        return kind(text.lower())
    except ValueError:
        raise InvalidOption(name, f"{text!r} is none of {', '.join(kind)}") from None
