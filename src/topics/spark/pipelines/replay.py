"""`replay`: records of an archive into a topic, in their order, each at most once.

A replayed record says where it comes from in its `meta`: archive, topic, seq and time. So the target itself tells what
it has already: a job that was killed, or is run again, or has a range that overlaps another one's, appends only what is
missing. There is one writer, because a topic has one order; Spark reads, filters and finds what is missing.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from msgspec import Struct, json
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from xxhash import xxh3_128_hexdigest

from topics import limits
from topics.client.calls import NewRecord
from topics.client.sync_client import Client
from topics.clock import Clock, SystemClock
from topics.errors import TopicNotFound
from topics.model.names import is_topic_name
from topics.spark.errors import InvalidOption
from topics.spark.options import Server
from topics.spark.pipelines import archive_files, manifest
from topics.spark.pipelines import archive_layout as layout
from topics.spark.pipelines.errors import ArchiveDiffers, ReplayInUse, TopicNotArchived
from topics.spark.pipelines.known_writes import append_missing
from topics.spark.pipelines.manifest import ArchivedFile, ArchiveState
from topics.spark.pipelines.progress import Progress, Silent
from topics.spark.writer import record_size_bytes, records_of
from topics.storage.errors import DirectoryInUse
from topics.storage.fs import RealDisk

ARCHIVE, TOPIC, SEQ, TS = "replay_archive", "replay_topic", "replay_seq", "replay_ts"
STEP_RECORDS = 500_000
"""Records of the files that are read at once: what the driver holds."""
CHUNK_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """`topic` may be left out when the archive has one. Seqs are inclusive; times are ms, the end exclusive. `speed`:
    how many times faster than it happened; None is as fast as it goes."""

    directory: str
    server: Server
    into: str
    topic: str | None = None
    from_seq: int = 1
    to_seq: int | None = None
    from_ts: int | None = None
    to_ts: int | None = None
    tag: str | None = None
    speed: float | None = None


class ReplaySummary(Struct, frozen=True):
    directory: str
    topic: str
    into: str
    selected: int
    present: int
    """Of the selected, those the target had already."""
    appended: int
    first_seq: int | None
    """Where the appended begin in the target."""
    last_seq: int | None
    elapsed_ms: int


def replay(
    spark: SparkSession,
    spec: ReplaySpec,
    progress: Progress | None = None,
    *,
    clock: Clock | None = None,
    pause_s: Callable[[float], None] | None = None,
) -> ReplaySummary:
    """Raises `NotAnArchive`, `TopicNotArchived`, `ReplayInUse`, `ArchiveDiffers`."""
    state, topic = check_spec(spec)
    clock = clock or SystemClock()
    try:
        lock = RealDisk().lock(layout.replay_lock_path(spec.directory, topic, spec.into))
    except DirectoryInUse as error:
        raise ReplayInUse(topic, spec.into, error.holder) from None
    try:
        session = archive_files.own_session(spark)
        return _Run(session, spec, state, topic, progress or Silent(), clock, pause_s or _pause).run()
    finally:
        lock.release()


def check_spec(spec: ReplaySpec) -> tuple[ArchiveState, str]:
    """The archive and the topic to replay; what can be told without Spark."""
    state = manifest.load(spec.directory)
    if not is_topic_name(spec.into):
        raise InvalidOption("into", f"{spec.into[:80]!r} is not a topic name")
    if spec.speed is not None and spec.speed <= 0:
        raise InvalidOption("speed", "must be greater than 0; leave it out for as fast as it goes")
    if spec.from_seq < 1:
        raise InvalidOption("from_seq", f"is the first seq to replay, and seqs begin at 1; {spec.from_seq} is none")
    if spec.to_seq is not None and spec.to_seq < spec.from_seq:
        raise InvalidOption("to_seq", "is before from_seq")
    if spec.from_ts is not None and spec.to_ts is not None and spec.to_ts <= spec.from_ts:
        raise InvalidOption("to_time", "is not after from_time")
    topic = spec.topic
    if topic is None:
        if len(state.topics) != 1:
            raise InvalidOption("topic", f"the archive has {len(state.topics)} topics; name the one to replay")
        topic = next(iter(state.topics))
    if topic not in state.topics:
        raise TopicNotArchived(spec.directory, topic, sorted(state.topics))
    return state, topic


def _pause(duration_s: float) -> None:
    threading.Event().wait(duration_s)


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        spec: ReplaySpec,
        state: ArchiveState,
        topic: str,
        progress: Progress,
        clock: Clock,
        pause_s: Callable[[float], None],
    ) -> None:
        self._spark = spark
        self._spec = spec
        self._state = state
        self._topic = topic
        self._progress = progress
        self._clock = clock
        self._pause_s = pause_s
        self._selected = 0
        self._appended = 0
        self._looked_seq = 0
        """The head of the target when it was looked at for what it has."""
        self._first_seq: int | None = None
        self._last_seq: int | None = None
        self._began: tuple[int, int] | None = None

    def run(self) -> ReplaySummary:
        began_ns = self._clock.monotonic_ns()
        files = self._files()
        self._progress.begin("replaying", sum(file.count for file in files))
        with self._spec.server.client() as client:
            present = self._present(client)
            for step in _steps(files):
                self._replay(client, step, present)
        self._progress.end()
        return ReplaySummary(
            self._spec.directory,
            self._topic,
            self._spec.into,
            self._selected,
            self._selected - self._appended,
            self._appended,
            self._first_seq,
            self._last_seq,
            (self._clock.monotonic_ns() - began_ns) // 1_000_000,
        )

    def _files(self) -> list[ArchivedFile]:
        spec = self._spec
        return [
            file
            for file in self._state.files_of(self._topic, spec.from_seq, spec.to_seq)
            if (spec.from_ts is None or file.last_ts >= spec.from_ts)
            and (spec.to_ts is None or file.first_ts < spec.to_ts)
        ]

    def _present(self, client: Client) -> DataFrame | None:
        """The seqs of this archive's topic that the target has."""
        try:
            self._looked_seq = client.topic(self._spec.into).head_seq
        except TopicNotFound:
            return None
        options = {"url": self._spec.server.url, "subscribe": self._spec.into, "onDataLoss": "warn"}
        options |= {"includeData": "false", "schema": "topics"}
        if self._spec.server.api_key is not None:
            options["apiKey"] = self._spec.server.api_key.reveal()
        target = self._spark.read.format("topics").options(**options).load()
        mine = (F.col("meta")[ARCHIVE] == self._state.archive_id) & (F.col("meta")[TOPIC] == self._topic)
        found = target.where(mine).select(F.col("meta")[SEQ].cast("bigint").alias("seq")).distinct()
        # Looked at once: what is appended from now on is ours.
        return found.localCheckpoint()

    def _replay(self, client: Client, files: Sequence[ArchivedFile], present: DataFrame | None) -> None:
        spec = self._spec
        rows = archive_files.read_files(self._spark, spec.directory, files, self._state.columns)
        wanted = rows.where(F.col("seq") >= spec.from_seq)
        if spec.to_seq is not None:
            wanted = wanted.where(F.col("seq") <= spec.to_seq)
        if spec.from_ts is not None:
            wanted = wanted.where(F.unix_millis("ts") >= spec.from_ts)
        if spec.to_ts is not None:
            wanted = wanted.where(F.unix_millis("ts") < spec.to_ts)
        if spec.tag is not None:
            wanted = wanted.where(F.col("tag") == spec.tag)
        wanted = wanted.select("seq", F.unix_millis("ts").alias("ts_ms"), "node", "tag", self._meta(), "data")
        missing = wanted if present is None else wanted.join(present, "seq", "left_anti")
        table: pa.Table = missing.sort("seq").toArrow()
        selected = table.num_rows if present is None else wanted.count()
        if not self._is_filtered():
            self._require_all(files, selected)
        self._selected += selected
        done = 0
        for chunk in _chunks(table):
            done += chunk.num_rows
            self._append(client, chunk)
            self._progress.advance(chunk.num_rows)
        self._progress.advance(sum(file.count for file in files) - done)

    def _is_filtered(self) -> bool:
        spec = self._spec
        return spec.from_seq > 1 or any(part is not None for part in (spec.to_seq, spec.from_ts, spec.to_ts, spec.tag))

    def _require_all(self, files: Sequence[ArchivedFile], selected: int) -> None:
        due = sum(file.count for file in files)
        if selected != due:
            raise ArchiveDiffers(f"{self._spec.directory}/{files[0].path}", f"{selected} records where {due} are due")

    def _meta(self) -> Column:
        own = F.create_map(
            F.lit(ARCHIVE),
            F.lit(self._state.archive_id),
            F.lit(TOPIC),
            F.lit(self._topic),
            F.lit(SEQ),
            F.col("seq").cast("string"),
            F.lit(TS),
            F.unix_millis("ts").cast("string"),
        )
        before = F.coalesce(F.col("meta"), F.create_map().cast("map<string,string>"))
        # A record that was replayed before has its newest origin only.
        kept = F.map_filter(before, lambda name, _: ~name.isin(ARCHIVE, TOPIC, SEQ, TS))
        return F.map_concat(kept, own).alias("meta")

    def _append(self, client: Client, chunk: pa.Table) -> None:
        seqs, times = chunk.column("seq").to_pylist(), chunk.column("ts_ms").to_pylist()
        batch = chunk.drop_columns(["seq", "ts_ms"]).combine_chunks().to_batches()[0]
        records = [record for _, record in records_of(batch, self._spec.into)]
        for part in self._paced(list(zip(seqs, times, records, strict=True))):
            # A request of a killed job may still be on its way: the same part has the same key.
            origin = json.encode((self._topic, [seq for seq, _, _ in part]))
            key = f"replay/{self._state.archive_id}/{xxh3_128_hexdigest(origin)}"
            body = json.encode([record for _, _, record in part])
            written = append_missing(client, self._spec.into, body, len(part), key, self._looked_seq)
            self._appended += written.added
            self._first_seq = self._first_seq or written.first_seq
            self._last_seq = written.last_seq or self._last_seq

    def _paced(self, rows: list[tuple[int, int, NewRecord]]) -> Iterator[list[tuple[int, int, NewRecord]]]:
        """Parts of what fits into one write; with a speed, each when it is due."""
        part: list[tuple[int, int, NewRecord]] = []
        size_bytes = 0
        for row in rows:
            size = record_size_bytes(row[2])
            late = part and self._spec.speed is not None and row[1] > part[0][1]
            if part and (late or size_bytes + size > limits.SPARK_CHUNK_BYTES):
                self._wait_for(part[0][1])
                yield part
                part, size_bytes = [], 0
            part.append(row)
            size_bytes += size
        if part:
            self._wait_for(part[0][1])
            yield part

    def _wait_for(self, ts: int) -> None:
        if self._spec.speed is None:
            return
        now_ms = self._clock.monotonic_ns() // 1_000_000
        if self._began is None:
            self._began = (now_ms, ts)
        due_ms = self._began[0] + (ts - self._began[1]) / self._spec.speed
        if due_ms > now_ms:
            self._pause_s((due_ms - now_ms) / 1000)


def _steps(files: Sequence[ArchivedFile]) -> Iterator[list[ArchivedFile]]:
    """Files that follow each other, together not much more than `STEP_RECORDS`."""
    step: list[ArchivedFile] = []
    for file in files:
        if step and sum(member.count for member in step) + file.count > STEP_RECORDS:
            yield step
            step = []
        step.append(file)
    if step:
        yield step


def _chunks(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, CHUNK_RECORDS):
        yield table.slice(start, CHUNK_RECORDS)
