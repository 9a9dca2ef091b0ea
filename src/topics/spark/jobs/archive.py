"""`archive`: topics as a Delta table, incremental and exactly once.

The tasks of a round read what came since the last commit, write it as files and read them back (`archive.writing`);
the driver accounts for every seq (record, lost or deleted) and commits the files (`archive.table`). Only the table says
where the next round begins, so nothing is archived twice or left out.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import Struct, json
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from topics import limits
from topics.clock import Clock, SystemClock
from topics.errors import TopicNotFound
from topics.spark import offsets
from topics.spark.archive import files as archive_files
from topics.spark.archive.columns import (
    INFER,
    WORDS,
    arrow_schema,
    columns_of,
    described,
    file_schema,
    payload_columns,
    require_columns,
    unfit_of,
    with_value,
)
from topics.spark.archive.errors import SchemaDiffers, SchemaDoesNotFit
from topics.spark.archive.identity import require_same_server, require_same_topic
from topics.spark.archive.place import Place
from topics.spark.archive.state import ArchivedLoss, TopicCut, WrittenFile, lost_seqs, merged_losses
from topics.spark.archive.table import ArchiveTable
from topics.spark.archive.writing import STAGED, FrameWriter, Outcome, ShareWriter, StagedFile
from topics.spark.errors import InvalidOption, PipelineError
from topics.spark.inference import sample
from topics.spark.jobs.preflight import require_types, require_writable
from topics.spark.jobs.progress import Progress, Silent
from topics.spark.log import Log
from topics.spark.offsets import Gap, Position, SeqRange
from topics.spark.options import Files, Mode, ReadOptions, Server, read_options
from topics.spark.origin import open_log
from topics.spark.reading import plan
from topics.wire.arrow import RECORD, TOMBSTONE

FILE_MB_DEFAULT = 256
FILE_RECORDS_MIN, FILE_RECORDS_MAX = 1_000, 5_000_000
RECORD_BYTES_GUESS = 256
WAVES = 2
"""Files each core writes in one round: enough to keep all cores busy, few enough to commit often."""


class SeqsUnaccounted(PipelineError):
    """The rows read do not add up to the range asked for, so nothing was committed. Run it again; if it fails again,
    `topics pipeline audit` says where."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f'topic "{topic}": {reason}; nothing was committed, run again')


class TopicChanged(PipelineError):
    """The topic was deleted or recreated while it was being archived. Run it again to archive what is there now."""

    def __init__(self, topic: str) -> None:
        super().__init__(f'topic "{topic}" was deleted or recreated while it was read; nothing was committed')


@dataclass(frozen=True, slots=True)
class ArchiveSpec:
    """`origin`: a server, or the files of one. Either `topics` or `prefix`. `schema`: empty, columns such as `sku
    string, total bigint`, `infer`, or `variant`. `file_mb`: megabytes of JSON text in a file, before compression."""

    origin: Server | Files
    directory: str
    topics: tuple[str, ...] = ()
    prefix: str | None = None
    schema: str = ""
    follow: bool = False
    interval_s: float = 5.0
    file_mb: int = FILE_MB_DEFAULT
    round_records: int | None = None
    """The most records in a round; by default, as many as suit the number of cores."""


class ArchivedTopic(Struct, frozen=True):
    """The part of a topic that this run added: seqs (from_seq, to_seq]."""

    topic: str
    from_seq: int
    to_seq: int
    records: int
    lost: int
    deleted: int
    files: int
    size_bytes: int


class ArchiveSummary(Struct, frozen=True):
    directory: str
    archive_id: str
    columns: str
    topics: tuple[ArchivedTopic, ...]
    records: int
    commits: int
    elapsed_ms: int
    records_per_s: int


Stop = Callable[[float], bool]
"""Waits so many seconds, and returns True when `follow` is to end."""


def archive(
    spark: SparkSession,
    spec: ArchiveSpec,
    progress: Progress | None = None,
    *,
    clock: Clock | None = None,
    stop: Stop | None = None,
) -> ArchiveSummary:
    """Raises `ArchiveInUse`, `ArchiveOfAnotherServer`, `SchemaDoesNotFit`, `TargetDiskFull`, …: see `errors`."""
    clock = clock or SystemClock()
    read = read_options(source_options(spec), Mode.BATCH)
    if spec.schema != INFER:
        columns_of(spec.schema)  # before the directory is made
    store = ArchiveTable(spec.directory, clock)
    with open_log(read) as log:
        run = _Run(archive_files.own_session(spark), spec, store, read, log, progress or Silent(), clock)
        return run.run(stop or _wait)


def source_options(spec: ArchiveSpec, **more: str) -> dict[str, str]:
    """The options of the `topics` source. The key is among them: Spark does not print options."""
    options = dict(more)
    match spec.origin:
        case Server(url, api_key):
            options["url"] = url
            if api_key is not None:
                options["apiKey"] = api_key.reveal()
        case Files(path, cold_path):
            options["path"] = path
            if cold_path is not None:
                options["coldPath"] = cold_path
    options["schema"] = "topics"
    if "subscribe" not in options:
        if spec.prefix is not None:
            options["subscribePrefix"] = spec.prefix
        else:
            options["subscribe"] = ",".join(spec.topics)
    return options


def _wait(duration_s: float) -> bool:
    threading.Event().wait(duration_s)
    return False


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        spec: ArchiveSpec,
        store: ArchiveTable,
        read: ReadOptions,
        log: Log,
        progress: Progress,
        clock: Clock,
    ) -> None:
        self._spark = spark
        self._spec = spec
        self._store = store
        self._read = read
        self._log = log
        self._progress = progress
        self._clock = clock
        self._done: dict[str, ArchivedTopic] = {}
        self._commits = 0
        self._file_records: dict[str, int] = {}

    def run(self, stop: Stop) -> ArchiveSummary:
        began_ns = self._clock.monotonic_ns()
        target = self._heads()
        self._require_archive()
        self._progress.begin("archiving", None if self._spec.follow else self._lag(target))
        while True:
            archived = self._round(target)
            if archived:
                continue
            if not self._spec.follow or stop(self._spec.interval_s):
                break
            target = self._heads()
        self._progress.end()
        elapsed_ns = max(self._clock.monotonic_ns() - began_ns, 1)
        records = sum(topic.records for topic in self._done.values())
        return ArchiveSummary(
            self._spec.directory,
            self._store.state.archive_id,
            described(self._store.state.columns),
            tuple(self._done[name] for name in sorted(self._done)),
            records,
            self._commits,
            elapsed_ns // 1_000_000,
            records * 1_000_000_000 // elapsed_ns,
        )

    def _heads(self) -> dict[str, Position]:
        ranges = self._log.ranges()
        for topic in self._spec.topics:
            if topic not in ranges:
                raise TopicNotFound(topic)
        if self._spec.prefix is not None and not ranges and not self._spec.follow:
            raise TopicNotFound(f"{self._spec.prefix}*")
        heads = {topic: Position(found.epoch, found.head_seq) for topic, found in ranges.items()}
        if self._store.exists:
            require_same_server(self._store.root, self._store.state, self._log)
            for topic, head in heads.items():
                require_same_topic(self._store.root, self._store.state, self._log, topic, head)
        return heads

    def _require_archive(self) -> None:
        """Checks that the archive is there and whole, and has the columns asked for."""
        schema = self._spec.schema
        if not self._store.exists:
            payloads = sample(self._log, limits.ARCHIVE_INFERRED_RECORDS_MAX) if schema == INFER else ()
            self._store.create(columns_of(schema, payloads), self._log.server_id())
            return
        self._store.note(self._log.server_id(), {})
        self._store.require_files()
        columns = self._store.state.columns
        require_columns(self._store.root, columns, schema)
        if schema and schema not in WORDS:
            given = columns_of(schema)
            if (given.kind, given.schema) != (columns.kind, columns.schema):
                raise SchemaDiffers(self._store.root, described(columns), described(given))

    def _source(self, ranges: Sequence[SeqRange], **more: str) -> DataFrame:
        options = source_options(
            self._spec,
            subscribe=",".join(piece.topic for piece in ranges),
            startingOffsets=_json({piece.topic: piece.start + 1 for piece in ranges}),
            endingOffsets=_json({piece.topic: piece.end + 1 for piece in ranges}),
            onDataLoss="rows",
            **more,
        )
        return self._spark.read.format("topics").options(**options).load()

    def _archived(self) -> dict[str, Position]:
        return {name: Position(cut.epoch, cut.to_seq) for name, cut in self._store.state.topics.items()}

    def _lag(self, target: Mapping[str, Position]) -> int:
        return sum(piece.size for piece in self._waiting(target, None))

    def _waiting(self, target: Mapping[str, Position], records_max: int | None) -> list[SeqRange]:
        start = {name: at for name, at in self._archived().items() if name in target}
        end = dict(target) if records_max is None else offsets.limited(start, target, records_max)
        return offsets.ranges_between(start, end)

    def _round(self, target: Mapping[str, Position]) -> bool:
        """Makes one commit. Returns False if there was nothing to do."""
        if not self._waiting(target, None):
            return False
        file_records = min(self._records_of_file(piece) for piece in self._waiting(target, None))
        round_records = self._spec.round_records or file_records * self._spark.sparkContext.defaultParallelism * WAVES
        ranges = self._waiting(target, round_records)
        with self._store.writing() as round_dir:
            written, losses = self._write(ranges, round_dir, file_records)
            cuts = [self._cut(piece, written, losses) for piece in ranges]
            self._require_unchanged(ranges)
            with self._store.placing(written) as placed:
                self._store.append(cuts, placed, losses)
        self._commits += 1
        for cut in cuts:
            self._note(cut, [entry for entry in written if entry.file.topic == cut.topic])
        self._progress.advance(sum(piece.size for piece in ranges), self._lag(target))
        return True

    def _records_of_file(self, piece: SeqRange) -> int:
        known = self._file_records.get(piece.topic)
        if known is None:
            record_bytes = self._record_bytes(piece)
            wanted = int(self._spec.file_mb * 1_000_000 / max(record_bytes, 1.0))
            known = self._file_records[piece.topic] = min(max(wanted, FILE_RECORDS_MIN), FILE_RECORDS_MAX)
        return known

    def _record_bytes(self, piece: SeqRange) -> float:
        """Estimates the size of a record from the first ones of the range."""
        few = piece._replace(end=min(piece.end, piece.start + FILE_RECORDS_MIN))
        for share in self._log.plan([few], 1, None):
            for found in self._log.read(share):
                if not isinstance(found, Gap) and len(found):
                    return float(found.data.nbytes / len(found))
        return RECORD_BYTES_GUESS

    def _write(
        self, ranges: Sequence[SeqRange], round_dir: str, file_records: int
    ) -> tuple[list[WrittenFile], list[ArchivedLoss]]:
        """Writes the records as files that are durable and read back; also returns the losses among them."""
        # Better files smaller than asked for than an idle core: `compact` merges them.
        wanted = sum(piece.size for piece in ranges) // limits.SPARK_TASK_RECORDS
        tasks = max(1, min(wanted, self._spark.sparkContext.defaultParallelism))
        columns = self._store.state.columns
        payload = payload_columns(columns)
        if payload is None:
            return self._written_by_spark(ranges, round_dir, file_records, tasks)
        shares = plan(
            self._log, replace(self._read, min_partitions=tasks, partition_records_max=file_records), [*ranges]
        )
        write = ShareWriter(self._read, self._store.place, round_dir, arrow_schema(columns), payload, columns.strict)
        context = self._spark.sparkContext
        outcomes: list[Outcome] = context.parallelize(shares, max(1, len(shares))).map(write).collect()
        for outcome in outcomes:
            if outcome.unfit is not None:
                raise SchemaDoesNotFit(*outcome.unfit, described(columns))
        written = archive_files.written_files((file for outcome in outcomes for file in outcome.files), round_dir)
        return written, _losses((topic, *gap) for outcome in outcomes for topic, gap in outcome.gaps)

    def _written_by_spark(
        self, ranges: Sequence[SeqRange], round_dir: str, file_records: int, tasks: int
    ) -> tuple[list[WrittenFile], list[ArchivedLoss]]:
        """The same, where only Spark can make the column `value`: tasks write what it made."""
        columns = self._store.state.columns
        seen = Observation("archive")
        gap = F.struct("topic", "gap_from", "gap_to", "reason")
        source = self._source(ranges, maxRecordsPerPartition=str(file_records), minPartitions=str(tasks)).observe(
            seen, F.collect_list(F.when(F.col("kind") == TOMBSTONE, gap)).alias("gaps")
        )
        records = source.where(F.col("kind") == RECORD)
        typed = with_value(records, columns)
        write = FrameWriter(self._store.place, round_dir, arrow_schema(columns))
        try:
            rows = typed.select("topic", *file_schema(columns).names).mapInArrow(write, STAGED).collect()
        except Exception as error:  # only the text of Spark's errors says what went wrong
            unfit = unfit_of(error, columns)
            if unfit is not None:
                raise unfit from None
            raise
        staged = (json.decode(row.staged, type=StagedFile) for row in rows)
        return archive_files.written_files(staged, round_dir), _losses(map(tuple, seen.get["gaps"]))

    def _cut(self, piece: SeqRange, written: Sequence[WrittenFile], losses: Sequence[ArchivedLoss]) -> TopicCut:
        """What the round adds of a topic. Raises `SeqsUnaccounted` unless every seq is accounted for."""
        files = [entry for entry in written if entry.file.topic == piece.topic]
        at = piece.start
        for entry in files:
            file = entry.file
            if file.first_seq <= at or file.count > file.last_seq - file.first_seq + 1:
                raise SeqsUnaccounted(piece.topic, f"seqs {file.first_seq} to {file.last_seq} came twice")
            at = file.last_seq
        if at > piece.end:
            raise SeqsUnaccounted(piece.topic, f"seq {at} came, but {piece.end} should be the last")
        records = sum(entry.file.count for entry in files)
        lost = lost_seqs(loss for loss in losses if loss.topic == piece.topic)
        deleted = piece.size - records - lost
        if deleted < 0:
            raise SeqsUnaccounted(piece.topic, f"{records} records and {lost} lost are more than {piece.size} seqs")
        return TopicCut(
            topic=piece.topic,
            epoch=piece.epoch,
            from_seq=piece.start,
            to_seq=piece.end,
            records=records,
            lost=lost,
            deleted=deleted,
            rows_xor=archive_files.rows_xor(files),
        )

    def _require_unchanged(self, ranges: Sequence[SeqRange]) -> None:
        now = self._log.ranges()
        for piece in ranges:
            if piece.topic not in now or now[piece.topic].epoch != piece.epoch:
                raise TopicChanged(piece.topic)

    def _note(self, cut: TopicCut, written: Sequence[WrittenFile]) -> None:
        before = self._done.get(cut.topic, ArchivedTopic(cut.topic, cut.from_seq, cut.from_seq, 0, 0, 0, 0, 0))
        self._done[cut.topic] = ArchivedTopic(
            cut.topic,
            before.from_seq,
            cut.to_seq,
            before.records + cut.records,
            before.lost + cut.lost,
            before.deleted + cut.deleted,
            before.files + len(written),
            before.size_bytes + sum(entry.file.size_bytes for entry in written),
        )


def _losses(gaps: Iterable[tuple[Any, ...]]) -> list[ArchivedLoss]:
    """Raises `TopicChanged`. A task that is tried again may report a loss twice."""
    found = []
    for topic, gap_from, gap_to, reason in set(gaps):
        if gap_to is None or reason in {"recreated", "deleted_topic"}:
            raise TopicChanged(topic)
        found.append(ArchivedLoss(topic, gap_from, gap_to, reason))
    return merged_losses(found)


def _json(value: Mapping[str, int]) -> str:
    return json.encode(value).decode()


def check_spec(spec: ArchiveSpec) -> None:
    """Checks what needs no Spark. Raises `InvalidOption`, `TopicNotFound`, and whatever opening the archive or reading
    the origin raises."""
    if bool(spec.topics) == (spec.prefix is not None):
        raise InvalidOption("topics", "name either topics or a prefix")
    if spec.file_mb < 1 or spec.interval_s <= 0 or (spec.round_records or 1) < 1:
        raise InvalidOption("file_mb", "sizes, intervals and rounds must be greater than 0")
    if spec.schema and spec.schema not in WORDS:
        require_types(spec.schema)
    place = Place.of(spec.directory)
    if place.is_local:
        require_writable(spec.directory, "to")
    store = ArchiveTable(spec.directory, SystemClock())
    if not place.is_local:
        place.require_writable()
    if store.exists:
        require_columns(spec.directory, store.state.columns, spec.schema)
    read: ReadOptions = read_options(source_options(spec), Mode.BATCH)
    with open_log(read) as log:
        ranges = log.ranges()
    for topic in spec.topics:
        if topic not in ranges:
            raise TopicNotFound(topic)
    if spec.prefix is not None and not ranges and not spec.follow:
        raise TopicNotFound(f"{spec.prefix}*")
