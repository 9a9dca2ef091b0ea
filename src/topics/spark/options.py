"""The options of `format("topics")`, and which of them go together.

An unknown, malformed or contradictory option is refused by name; nothing is guessed. The API key is kept in a `Secret`,
which never prints.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from topics import limits
from topics.client.core import Address, check_api_key
from topics.errors import InvalidRequest
from topics.model.names import is_topic_name
from topics.spark import option_values as values
from topics.spark.boundary import EARLIEST, LATEST, Boundary, boundary_of
from topics.spark.errors import InvalidOption
from topics.spark.option_values import Given

if TYPE_CHECKING:
    from topics.client.sync_client import Client

API_KEY_VARIABLE = "TOPICS_API_KEY"


class On(Flag):
    """Where an option applies."""

    BATCH = auto()
    STREAM = auto()
    WRITE = auto()


READ = On.BATCH | On.STREAM
ALL = READ | On.WRITE

OPTIONS: dict[str, On] = {
    "url": ALL,
    "apiKey": ALL,
    "path": READ,
    "coldPath": READ,
    "subscribe": READ,
    "subscribePrefix": READ,
    "subscribePattern": READ,
    "startingOffsets": READ,
    "startingTimestamp": READ,
    "startingOffsetsByTimestamp": READ,
    "endingOffsets": On.BATCH,
    "endingTimestamp": On.BATCH,
    "endingOffsetsByTimestamp": On.BATCH,
    "maxOffsetsPerTrigger": On.STREAM,
    "minOffsetsPerTrigger": On.STREAM,
    "maxTriggerDelay": On.STREAM,
    "minPartitions": READ,
    "maxRecordsPerPartition": READ,
    "node": READ,
    "tag": READ,
    "tagPrefix": READ,
    "includeData": READ,
    "failOnDataLoss": READ,
    "onDataLoss": READ,
    "schema": READ,
    "inferSchema": READ,
    "mode": READ,
    "columnNameOfCorruptRecord": READ,
    "timeZone": READ,
    "cursor": On.STREAM,
    "archive": READ,
    "topic": On.WRITE,
    "createTopics": On.WRITE,
    "maxRecordsPerChunk": On.WRITE,
    "maxBytesPerChunk": On.WRITE,
}
READ_OPTIONS = tuple(name for name, on in OPTIONS.items() if on & READ)
WRITE_OPTIONS = tuple(name for name, on in OPTIONS.items() if on & On.WRITE)


class OnDataLoss(StrEnum):
    FAIL = "fail"
    WARN = "warn"
    ROWS = "rows"


class TableSchema(StrEnum):
    TOPICS = "topics"
    KAFKA = "kafka"


class ParseMode(StrEnum):
    """What happens to a record whose payload does not fit the schema, as in Spark's JSON source."""

    PERMISSIVE = "permissive"
    DROPMALFORMED = "dropmalformed"
    FAILFAST = "failfast"


class Mode(StrEnum):
    BATCH = "batch"
    STREAMING = "streaming"
    UNKNOWN = "unknown"
    """Spark asks for a schema before it says whether the query is batch or streaming."""


class Secret:
    """A text that never shows in `repr`, in `str` or in a plan."""

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

    def client(self) -> "Client":
        from topics.client.sync_client import Client  # noqa: PLC0415 (who reads files does not need it)

        return Client(self.url, None if self.api_key is None else self.api_key.reveal())


@dataclass(frozen=True, slots=True)
class Files:
    path: str
    cold_path: str | None


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics by name, or all that begin with `prefix` and, if there is a `pattern`, match it from end to end."""

    topics: tuple[str, ...] = ()
    prefix: str | None = None
    pattern: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether topics can join later."""
        return self.prefix is not None

    def includes(self, name: str) -> bool:
        if self.prefix is None:
            return name in self.topics
        return name.startswith(self.prefix) and (self.pattern is None or re.fullmatch(self.pattern, name) is not None)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which live records are left out. They are not losses."""

    node: tuple[str, ...]
    match: tuple[str, str, str] | None


@dataclass(frozen=True, slots=True)
class Parsing:
    """How payloads become the columns of a schema."""

    mode: ParseMode = ParseMode.PERMISSIVE
    corrupt_column: str = "_corrupt_record"
    time_zone: str = "UTC"
    """For times written without a zone."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    origin: Server | Files
    subscription: Subscription
    start: Boundary
    end: Boundary
    filters: Filters
    on_data_loss: OnDataLoss
    schema: TableSchema | None
    """None if the option was not given."""
    infer_schema: bool
    parsing: Parsing
    include_data: bool
    min_partitions: int
    partition_records_max: int | None
    trigger_offsets_max: int | None
    trigger_offsets_min: int | None
    trigger_delay_ms_max: int
    cursor: str | None
    is_batch: bool
    archive: str | None = None
    """The directory of an archive with the early records."""

    @property
    def topics(self) -> tuple[str, ...]:
        return self.subscription.topics


@dataclass(frozen=True, slots=True)
class WriteOptions:
    server: Server
    topic: str | None
    create_topics: bool
    chunk_records_max: int
    chunk_bytes_max: int


def read_options(options: Mapping[str, str], mode: Mode) -> ReadOptions:
    given = Given(options, READ_OPTIONS)
    origin = _origin(given)
    subscription = _subscription(given, origin)
    topics = subscription.topics
    loss = _on_data_loss(given)
    schema: TableSchema | None = values.choice(given, "schema", TableSchema, None)
    if schema is TableSchema.KAFKA and loss is OnDataLoss.ROWS:
        raise InvalidOption("onDataLoss", "the columns of schema=kafka have no place for a loss; use fail or warn")
    here = {Mode.BATCH: On.BATCH, Mode.STREAMING: On.STREAM, Mode.UNKNOWN: READ}[mode]
    others = tuple(name for name in READ_OPTIONS if not OPTIONS[name] & here)
    given.require_without(others, f"has no meaning in a {mode} query")
    infer_schema = values.boolean(given, "inferSchema", False)
    if infer_schema and schema is not None:
        raise InvalidOption("inferSchema", f"contradicts schema={schema}; give one of them")
    if isinstance(origin, Files) and given.get("cursor") is not None:
        raise InvalidOption("cursor", "is kept by a server; with path there is none")
    if given.get("archive") == "":
        raise InvalidOption("archive", "is empty; name the directory that topics pipeline archive has written")
    cursor = given.get("cursor")
    if cursor is not None and not is_topic_name(cursor):
        raise InvalidOption("cursor", f"{cursor!r} is not a name; use letters, digits, and . _ : -")
    if given.get("minOffsetsPerTrigger") is None:
        given.require_without(("maxTriggerDelay",), "goes with minOffsetsPerTrigger")
    offsets_max, offsets_min = (
        values.positive(given, name) for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger")
    )
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise InvalidOption("minOffsetsPerTrigger", f"is more than maxOffsetsPerTrigger, {offsets_max}")
    batch = mode is Mode.BATCH
    return ReadOptions(
        origin=origin,
        subscription=subscription,
        start=boundary_of(given, "starting", EARLIEST if batch else LATEST, batch=batch, topics=topics),
        end=boundary_of(given, "ending", LATEST, batch=batch, topics=topics),
        filters=Filters(values.names(given, "node"), _match(given)),
        on_data_loss=loss,
        schema=schema,
        infer_schema=infer_schema,
        parsing=_parsing(given),
        include_data=values.boolean(given, "includeData", True),
        min_partitions=values.positive(given, "minPartitions") or 1,
        partition_records_max=values.positive(given, "maxRecordsPerPartition"),
        trigger_offsets_max=offsets_max,
        trigger_offsets_min=offsets_min,
        trigger_delay_ms_max=values.duration_ms(given, "maxTriggerDelay", limits.SPARK_TRIGGER_DELAY_MS),
        cursor=cursor,
        is_batch=batch,
        archive=given.get("archive"),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    given = Given(options, WRITE_OPTIONS)
    topic = given.get("topic")
    if topic is not None:
        values.check_topic("topic", topic)
    records_max = values.positive(given, "maxRecordsPerChunk") or limits.SPARK_CHUNK_RECORDS
    bytes_max = values.positive(given, "maxBytesPerChunk") or limits.SPARK_CHUNK_BYTES
    if records_max > limits.BATCH_RECORDS_MAX:
        raise InvalidOption("maxRecordsPerChunk", f"a server takes at most {limits.BATCH_RECORDS_MAX} in a write")
    if bytes_max > limits.BODY_BYTES_MAX // 2:
        raise InvalidOption("maxBytesPerChunk", f"at most {limits.BODY_BYTES_MAX // 2}, half of what a server takes")
    return WriteOptions(
        server=_server(given),
        topic=topic,
        create_topics=values.boolean(given, "createTopics", True),
        chunk_records_max=records_max,
        chunk_bytes_max=bytes_max,
    )


def _origin(given: Given) -> Server | Files:
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


def _server(given: Given) -> Server:
    url = given.get("url")
    if url is None:
        raise InvalidOption("url", "is missing; give the address of a server, such as http://127.0.0.1:4000")
    return server_of(url, given.get("apiKey"))


def server_of(url: str, key: str | None) -> Server:
    """The server at an address; without a key, the key in the environment is used."""
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


_SUBSCRIBING = ("subscribe", "subscribePrefix", "subscribePattern")
_PLAIN = re.compile(r"[A-Za-z0-9_:-]*")


def _subscription(given: Given, origin: Server | Files) -> Subscription:
    for at, first in enumerate(_SUBSCRIBING):
        for second in _SUBSCRIBING[at + 1 :]:
            given.require_alone(first, second)
    prefix = given.get("subscribePrefix")
    if prefix is not None:
        if not prefix:
            raise InvalidOption("subscribePrefix", "is empty; name at least one character")
        return Subscription(prefix=prefix)
    pattern = given.get("subscribePattern")
    if pattern is not None:
        return Subscription(prefix=_plain_prefix(pattern), pattern=pattern)
    topics = values.names(given, "subscribe")
    if not topics:
        raise InvalidOption("subscribe", "is missing; name topics, or give subscribePrefix or subscribePattern")
    # Topics in a cold directory have no names and go by their ids, which cannot be mistaken for names.
    for topic in topics if isinstance(origin, Server) else ():
        values.check_topic("subscribe", topic)
    return Subscription(tuple(sorted(topics)))


def _plain_prefix(pattern: str) -> str:
    """The literal beginning of the pattern, which every match has: it shortens the list to ask for."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidOption("subscribePattern", f"{pattern!r} is not a regular expression: {error}") from None
    if not pattern:
        raise InvalidOption("subscribePattern", "is empty; .* is every topic")
    if "|" in pattern:
        return ""
    plain = _PLAIN.match(pattern)
    assert plain is not None
    # The last character may be optional: `ab*` also matches `a`.
    return plain[0][:-1] if pattern[plain.end() :][:1] in {"?", "*", "{"} else plain[0]


def _parsing(given: Given) -> Parsing:
    default = Parsing()
    zone = given.get("timeZone") or default.time_zone
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidOption("timeZone", f"{zone!r} is not a time zone such as UTC or Europe/Berlin") from None
    return Parsing(
        values.choice(given, "mode", ParseMode, default.mode),
        given.get("columnNameOfCorruptRecord") or default.corrupt_column,
        zone,
    )


def _on_data_loss(given: Given) -> OnDataLoss:
    fail = values.boolean(given, "failOnDataLoss", True)
    chosen = values.choice(given, "onDataLoss", OnDataLoss, None)
    if chosen is None:
        return OnDataLoss.FAIL if fail else OnDataLoss.WARN
    if given.get("failOnDataLoss") is not None and fail != (chosen is OnDataLoss.FAIL):
        raise InvalidOption("failOnDataLoss", f"contradicts onDataLoss={chosen}; give one of them")
    return chosen


def _match(given: Given) -> tuple[str, str, str] | None:
    given.require_alone("tag", "tagPrefix")
    tag, prefix = given.get("tag"), given.get("tagPrefix")
    if tag is not None:
        return ("tag", "Eq", tag)
    if prefix is not None:
        if "*" in prefix:
            raise InvalidOption("tagPrefix", "is a plain beginning of tags; leave the * out")
        return ("tag", "Glob", f"{prefix}*")
    return None
