"""`replay`: appends records of an archive to a topic, in their order, each at most once.

A replayed record's `meta` says where it comes from: archive, topic, seq and time. So the target itself says what it has
already: a job that was killed, runs again, or overlaps another one's range appends only what is missing. There is one
writer, because a topic has one order; while one request is under way, the next one is built (`replay_parts`). Memory is
bounded by rows and bytes, however large the files are. Spark finds out what is there.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, json
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from xxhash import xxh3_128_hexdigest

from topics.client.sync_client import Client
from topics.clock import Clock, SystemClock
from topics.errors import TopicNotFound
from topics.model.names import is_topic_name
from topics.spark.archive import files as archive_files
from topics.spark.archive import table
from topics.spark.archive.errors import ArchiveDiffers, TopicNotArchived
from topics.spark.archive.place import Place
from topics.spark.archive.rows import require_file, rows_of
from topics.spark.archive.state import ArchivedFile, ArchiveState
from topics.spark.errors import InvalidOption, PipelineError
from topics.spark.jobs.known_writes import Written, append_missing
from topics.spark.jobs.progress import Progress, Silent
from topics.spark.jobs.replay_parts import ARCHIVE, SEQ, TOPIC, Parts, body_of
from topics.spark.options import Server
from topics.storage.errors import DirectoryInUse
from topics.storage.fs import RealDisk

LOOK_SEQS = 1_000_000
"""How many seqs of the target the driver looks up at once: eight megabytes."""
SENT_MAX = 2
"""Parts on their way: one at the server, and one that is ready when it has answered."""


class ReplayInUse(PipelineError):
    """Another replay of the topic into the same target is running, and the two would mix. Wait for it, or stop it."""

    def __init__(self, topic: str, into: str, holder: str) -> None:
        by = f" by process {holder}" if holder else ""
        super().__init__(f'"{topic}" is being replayed into "{into}"{by}: wait for it, or stop it, then run again')


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """`topic` may be left out if the archive has only one. Seqs are inclusive; times are in ms, and `to_ts` is
    exclusive. `speed`: how many times faster than in real life; None is as fast as possible."""

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
    """How many of the selected records the target had already."""
    appended: int
    first_seq: int | None
    """The first seq of the appended records in the target."""
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
        lock = RealDisk().lock(table.replay_lock_path(spec.directory, topic, spec.into))
    except DirectoryInUse as error:
        raise ReplayInUse(topic, spec.into, error.holder) from None
    try:
        session = archive_files.own_session(spark)
        return _Run(session, spec, state, topic, progress or Silent(), clock, pause_s or _pause).run()
    finally:
        lock.release()


def check_spec(spec: ReplaySpec) -> tuple[ArchiveState, str]:
    """The archive and the topic to replay. Checks what needs no Spark."""
    state = table.load(spec.directory)
    if not is_topic_name(spec.into):
        raise InvalidOption("into", f"{spec.into[:80]!r} is not a topic name")
    if spec.speed is not None and spec.speed <= 0:
        raise InvalidOption("speed", "must be greater than 0; leave it out for as fast as it goes")
    if spec.from_seq < 1:
        raise InvalidOption("from_seq", f"is the first seq to replay; seqs begin at 1, so {spec.from_seq} is not one")
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
        self._place = Place.of(spec.directory)
        self._state = state
        self._topic = topic
        self._progress = progress
        self._clock = clock
        self._pause_s = pause_s
        self._selected = 0
        self._appended = 0
        self._looked_seq = 0
        """The head of the target when its content was read."""
        self._first_seq: int | None = None
        self._last_seq: int | None = None
        self._began: tuple[int, int] | None = None
        self._sent: deque[Future[Written]] = deque()

    def run(self) -> ReplaySummary:
        began_ns = self._clock.monotonic_ns()
        files = self._files()
        self._progress.begin("replaying", sum(self._span(file) for file in files), unit="seqs")
        with self._spec.server.client() as client, ThreadPoolExecutor(1, "replay") as sender:
            present = _Present(self._present(client))
            parts = Parts(self._spec.speed is not None)
            for file in files:
                for rows in self._missing(file, present):
                    for part in parts.add(rows):
                        self._append(client, sender, part)
            for part in parts.rest():
                self._append(client, sender, part)
            while self._sent:
                self._take_written()
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

    def _span(self, file: ArchivedFile) -> int:
        """How many of the file's seqs are asked for."""
        spec = self._spec
        last = file.last_seq if spec.to_seq is None else min(file.last_seq, spec.to_seq)
        return last - max(file.first_seq, spec.from_seq) + 1

    def _present(self, client: Client) -> DataFrame | None:
        """The seqs of this archive's topic that the target has."""
        try:
            self._looked_seq = client.topic(self._spec.into).head_seq
        except TopicNotFound:
            return None
        if not self._looked_seq:
            return None
        options = {"url": self._spec.server.url, "subscribe": self._spec.into, "onDataLoss": "warn"}
        options |= {"includeData": "false", "schema": "topics"}
        if self._spec.server.api_key is not None:
            options["apiKey"] = self._spec.server.api_key.reveal()
        target = self._spark.read.format("topics").options(**options).load()
        mine = (F.col("meta")[ARCHIVE] == self._state.archive_id) & (F.col("meta")[TOPIC] == self._topic)
        found = target.where(mine).select(F.col("meta")[SEQ].cast("bigint").alias("seq")).distinct()
        # Read once: only this job appends from now on.
        return found.localCheckpoint()

    def _missing(self, file: ArchivedFile, present: "_Present") -> Iterator[pa.RecordBatch]:
        """The selected rows of a file that the target does not have."""
        spec = self._spec
        path = require_file(self._place, file)
        at = max(file.first_seq, spec.from_seq) - 1
        end = at + self._span(file)
        found = 0
        for batch in rows_of(self._place, path, spec.from_seq, spec.to_seq):
            last = batch.column("seq")[-1].as_py()
            found += batch.num_rows
            wanted = self._wanted(batch)
            self._selected += wanted.num_rows
            if wanted.num_rows:
                missing = wanted.filter(pa.array(~present.among(wanted.column("seq").to_numpy())))
                if missing.num_rows:
                    yield missing
            self._progress.advance(last - at)
            at = last
        self._progress.advance(end - at)
        is_whole = file.first_seq >= spec.from_seq and (spec.to_seq is None or file.last_seq <= spec.to_seq)
        if is_whole and found != file.count:
            raise ArchiveDiffers(self._place.at(path), f"{found} records, expected {file.count}")

    def _wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        spec = self._spec
        times = pc.cast(pc.cast(batch.column("ts"), pa.timestamp("ms", "UTC")), pa.int64())
        batch = batch.set_column(batch.schema.get_field_index("ts"), "ts", times)
        if spec.from_ts is not None:
            batch = batch.filter(pc.greater_equal(batch.column("ts"), spec.from_ts))
        if spec.to_ts is not None:
            batch = batch.filter(pc.less(batch.column("ts"), spec.to_ts))
        if spec.tag is not None:
            batch = batch.filter(pc.equal(batch.column("tag"), spec.tag))
        return batch

    def _append(self, client: Client, sender: ThreadPoolExecutor, rows: pa.RecordBatch) -> None:
        """Returns without waiting for it: while it is sent, the next part is built."""
        # A request of a killed job may still be on its way: the same part has the same key.
        origin = json.encode((self._topic, rows.column("seq").to_pylist()))
        key = f"replay/{self._state.archive_id}/{xxh3_128_hexdigest(origin)}"
        body = body_of(rows, self._state.archive_id, self._topic)
        self._wait_for(rows.column("ts")[0].as_py())
        if len(self._sent) == SENT_MAX:
            self._take_written()
        before = self._sent[-1] if self._sent else None
        self._sent.append(sender.submit(self._send, before, client, body, rows.num_rows, key))

    def _send(self, before: Future[Written] | None, client: Client, body: bytes, count: int, key: str) -> Written:
        """After the part before; nothing comes behind one that failed."""
        if before is not None:
            before.result()
        return append_missing(client, self._spec.into, body, count, key, self._looked_seq)

    def _take_written(self) -> None:
        written = self._sent.popleft().result()
        self._appended += written.added
        self._first_seq = self._first_seq or written.first_seq
        self._last_seq = written.last_seq or self._last_seq

    def _wait_for(self, ts: int) -> None:
        if self._spec.speed is None:
            return
        now_ms = self._clock.monotonic_ns() // 1_000_000
        if self._began is None:
            self._began = (now_ms, ts)
        due_ms = self._began[0] + (ts - self._began[1]) / self._spec.speed
        if due_ms > now_ms:
            self._pause_s((due_ms - now_ms) / 1000)


class _Present:
    """Which seqs the target has, looked up `LOOK_SEQS` at a time."""

    def __init__(self, found: DataFrame | None) -> None:
        self._found = found
        self._to_seq = 0
        self._seqs: NDArray[np.int64] = np.empty(0, np.int64)

    def among(self, seqs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the target has each of `seqs`, which must ascend within a call and from call to call."""
        if self._found is None:
            return np.zeros(len(seqs), bool)
        if seqs[-1] > self._to_seq:
            self._to_seq = int(max(seqs[0] + LOOK_SEQS, seqs[-1]))
            between = self._found.where(F.col("seq").between(int(seqs[0]), self._to_seq))
            self._seqs = between.toArrow().column("seq").to_numpy()
        return np.isin(seqs, self._seqs)
