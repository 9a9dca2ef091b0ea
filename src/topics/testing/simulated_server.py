"""A whole server on a fake disk, without threads, sockets or an event loop: for tests of what survives a crash.

    disk, clock = FakeDisk(), FakeClock()
    server = SimulatedServer(disk, clock, segment_events_max=4)
    server.start()
    server.write("orders", 3, config={"durability": "fsync"})
    ...
    server = SimulatedServer(disk.crash_drop_all(), clock)     # a power cut
    server.start()
    assert sorted(server.read_all("orders").records) == [1, 2, 3]

Every call returns when its operation is acknowledged, as a client would see it. What the class of a topic does not
make durable before that stays where it is in a running server: written but not synced, or, with `lazy`, still in the
queue of the WAL writer. `sync` makes it durable.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from msgspec import Raw, convert, structs

from topics.engine.engine import Appended, DeletedRecords, DeletedTopic, PutTopic, Write
from topics.engine.journal import Busy, Commit
from topics.engine.queues import Claim, Claimer, Settled
from topics.engine.routers import PutRouter
from topics.errors import StorageFailed
from topics.model.config import TopicConfigPatch
from topics.model.gap import Gap
from topics.model.producer import Producer
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.model.router import RouterSettings
from topics.model.tag_match import parse_match
from topics.server.assembly import assemble_core
from topics.server.settings import read_settings
from topics.storage.errors import StorageError
from topics.storage.fs import Disk
from topics.testing.fake_clock import FakeClock

SERVER_NUMBER = 7
"""The id of a new directory, and of its cold tier: the same every time, as everything here."""

Result = TypeVar("Result")
Config = Mapping[str, object]

DATA_DIR = "/data"
COLD_DIR = "/cold"
_READ_LIMIT = 7  # small, so that reading a topic takes several batches
_READ_BYTES = 1 << 20
_CHECKPOINTS_A_FOLD = 3


class Reading(NamedTuple):
    """A topic as a reader from the beginning sees it: texts by seq (tags included), and the tombstones in order."""

    records: dict[int, bytes]
    gaps: list[Gap]
    head_seq: int

    def missing(self) -> Iterable[int]:
        """The seqs up to the head that were neither delivered nor inside a tombstone."""
        lost = {seq for gap in self.gaps for seq in range(gap.gap_from, gap.gap_to + 1)}
        return (seq for seq in range(1, self.head_seq + 1) if seq not in self.records and seq not in lost)


class SimulatedServer:
    """`overrides` are fields of `topics.server.settings.Settings`."""

    def __init__(
        self,
        disk: Disk,
        clock: FakeClock,
        *,
        wal_file_bytes: int = 1 << 16,
        lazy: bool = False,
        server_number: int = SERVER_NUMBER,
        **overrides: object,
    ) -> None:
        self._at_turn_end: list[Callable[[], None]] = []
        self._stopped = False
        self._checkpoints = 0
        settings = read_settings(
            {"TOPICS_DATA_DIR": DATA_DIR, "TOPICS_WAL_SHARDS": "1", "TOPICS_SEAL_PROCESS": "false"}
        )
        settings = structs.replace(settings, **overrides)
        self.engine, self.journal, self.store = assemble_core(
            settings,
            clock,
            disk,
            lambda call: call(),
            self._at_turn_end.append,
            wal_file_bytes=wal_file_bytes,
            new_id=lambda: f"{server_number:032x}",
        )
        self.queues = self.engine.queues
        self.lazy = lazy
        self.checkpointer = self.store.checkpointer

    # The life of a server

    def start(self, *, serve_first: bool = False) -> None:
        """Recovers what is on the disk. Raises what makes a server refuse to start. `serve_first`: stops where the real
        one begins to serve, which may be before its first checkpoint."""
        self.store.acquire()
        replayed = self.store.replay(lambda _: None)
        checkpoints = self.store.open(replayed)
        self.store.restart(replayed)
        self.sync()
        if serve_first and self.checkpointer.first_checkpoints == 1:
            # As the real one, which serves from here on, while the first checkpoint is made.
            return
        for _ in range(self.checkpointer.first_checkpoints):
            if not self.checkpoint():
                assert self.checkpointer.last_failure is not None
                raise self.checkpointer.last_failure
        checkpoints.remove_orphans()

    def stop(self) -> bool:
        """Stops in order, as after SIGTERM. False when the disk did not take everything."""
        self.seal()  # the real one has done that as soon as it was due
        clean = self.checkpoint(clean=True)
        if clean and self.checkpointer.has_listed:
            clean = self.checkpoint(clean=True)
        self.store.sealer.close()
        self.checkpointer.close()
        for shard in self.journal.shards:
            shard.close()
        self.store.release()
        return clean and self.journal.failure is None

    def checkpoint(self, *, clean: bool = False, during: Callable[[str], None] | None = None) -> bool:
        """False when the disk refused it. Blocks that are due are sealed first, and after every few the increments are
        folded. `during` is called between the steps with the name of the one just done: "instant", "topic" for each
        that was captured, "capture" when all are, "barrier", "write"; what it does then happens while the checkpoint
        runs."""
        between = during or (lambda _: None)
        if (failure := self.journal.failure) is not None:
            self.checkpointer.last_failure = failure
            return False
        if not clean:
            self.seal()
        checkpointer = self.checkpointer
        progress = checkpointer.begin(clean=clean)
        try:
            self.wait(progress.captured)
            checkpointer.write_head(progress)
            between("instant")
            more = True
            while more:
                more = checkpointer.capture_some(progress, topics_max=1)
                captures, progress.captures = progress.captures, []
                checkpointer.write(captures)
                between("topic")
            checkpointer.write(progress.captures)
            progress.captures = []
            between("capture")
            self.sync()
            between("barrier")
            result = checkpointer.commit(progress)
        except (StorageError, StorageFailed) as error:
            checkpointer.give_up(progress, error)
            return False
        between("write")
        checkpointer.settle(progress, result)
        self.step()
        self._checkpoints += 1
        if self._checkpoints % _CHECKPOINTS_A_FOLD == 0:
            checkpointer.folds.fold()
        return True

    def seal(self) -> bool:
        """Seals the blocks that are due. False when the disk refused it."""
        sealer = self.store.sealer
        while jobs := sealer.begin():
            written = sealer.write(jobs)
            sealer.remove(sealer.settle(jobs, written))
            if written.failure is not None:
                return False
        return True

    # Operations

    def put(self, topic: str, config: Config) -> PutTopic:
        patch = convert(config, TopicConfigPatch)
        put = self._done(lambda: self.engine.put_topic(topic, patch))
        self.wait(put.commit)
        return put

    def delete_topic(self, topic: str) -> DeletedTopic:
        deleted = self._done(lambda: self.engine.delete_topic(topic))
        self.wait(deleted.commit)
        return deleted

    def put_router(self, name: str, source: str, dest: str, settings: RouterSettings | None = None) -> PutRouter:
        chosen = settings or RouterSettings()
        put = self._done(lambda: self.engine.put_router(name, source, dest, chosen, create_dest=True))
        self.wait(put.commit)
        return put

    def delete_router(self, name: str) -> bool:
        deleted, commit = self._done(lambda: self.engine.delete_router(name))
        self.wait(commit)
        return deleted

    def write(
        self,
        topic: str,
        records: int | list[NewRecord],
        *,
        key: str | Producer | None = None,
        node: str | None = None,
        config: Config | None = None,
    ) -> Appended:
        """Appends the records; a number stands for that many small ones."""
        appended = self.hand_over(topic, records, key=key, node=node, config=config)
        self.wait(appended.commit)
        return appended

    def hand_over(
        self,
        topic: str,
        records: int | list[NewRecord],
        *,
        key: str | Producer | None = None,
        node: str | None = None,
        config: Config | None = None,
    ) -> Appended:
        """Like `write`, but does not wait for a commit: the write may be in flight."""
        if isinstance(records, int):
            records = [NewRecord(Raw(b'{"n":%d}' % number)) for number in range(records)]
        patch = None if config is None else convert(config, TopicConfigPatch)
        known_as = {"producer" if isinstance(key, Producer) else "idempotency_key": key}
        write = Write(records, node=node, config=patch, **known_as)  # type: ignore[arg-type]
        return self._done(lambda: self.engine.append(topic, write))

    def delete_records(self, topic: str, *, before_seq: int | None = None, match: object = None) -> DeletedRecords:
        parsed = None if match is None else parse_match(match)
        deleted = self._done(lambda: self.engine.delete_records(topic, before_seq, parsed))
        self.wait(deleted.commit)
        return deleted

    def read_all(self, topic: str) -> Reading:
        if self.engine.topic(topic).in_flight and not self.lazy:
            self.step()  # copies that have to be durable before they are seen
        options = ReadOptions(_READ_LIMIT, _READ_BYTES, include_tags=True)
        records: dict[int, bytes] = {}
        gaps: list[Gap] = []
        from_seq = 0
        while True:
            found, batch = self.engine.read(topic, from_seq, options)
            for fragment in batch.fragments:
                records[_seq_of(fragment)] = fragment
            if batch.gap is not None:
                gaps.append(batch.gap)
            if batch.next_from_seq >= found.log.head_seq:
                return Reading(records, gaps, found.log.head_seq)
            assert batch.next_from_seq > from_seq, f"a reader of {topic!r} is stuck at {from_seq}"
            from_seq = batch.next_from_seq

    # Operations of queues

    def claim(self, topic: str, *claimers: Claimer) -> list[Claim]:
        """One pass for all claimers. Dead letters it meets are where they belong when it returns, or stayed."""
        claims = self._done(lambda: self.queues.claim(self.engine.topic(topic), claimers))
        for claim in claims:
            self.wait(claim.commit)
        if claims and (moved := claims[0].moved) is not None:
            while not moved.done:
                self.step()
        return claims

    def ack(self, topic: str, node: str, seqs: list[int], lease_ids: list[str] | None = None) -> Settled:
        return self._settled(lambda: self.queues.ack(topic, node, seqs, lease_ids))

    def nack(
        self, topic: str, node: str, seqs: list[int], lease_ids: list[str] | None = None, *, delay_ms: int = 0
    ) -> Settled:
        return self._settled(lambda: self.queues.nack(topic, node, seqs, lease_ids, delay_ms))

    def extend(
        self, topic: str, node: str, seqs: list[int], lease_ids: list[str] | None = None, *, lease_ms: int
    ) -> Settled:
        return self._settled(lambda: self.queues.extend(topic, node, seqs, lease_ids, lease_ms))

    def disconnect(self, topic: str, connection: int) -> None:
        """A stream that jobs were pushed to has ended."""
        self.queues.release(self.engine.topic(topic), connection)
        self.wait(None)

    def redrive(self, topic: str) -> int:
        """Sends all dead letters of the queue back to it; returns how many."""
        queue = self.engine.topic(topic)
        redriven = after_seq = 0
        head_seq = self.queues.dead_letter_head(queue)
        while after_seq < head_seq:
            chunk = self._done(lambda: self.queues.redrive(queue, after_seq, head_seq, 1 << 32, None))  # noqa: B023
            self.wait(chunk.commit)
            redriven += chunk.moving
            after_seq = chunk.last_seq
        return redriven

    def _settled(self, call: Callable[[], Settled]) -> Settled:
        settled = self._done(call)
        self.wait(settled.commit)
        return settled

    # What the threads would do

    def sync(self) -> None:
        """Makes everything handed over so far durable. Raises if a shard cannot."""
        for commit in self.journal.barrier():
            self.wait(commit)

    def step(self) -> None:
        """One turn of every WAL shard, after one of the loop. None after the disk has stopped in the middle of one."""
        if self._stopped:
            return
        self._stopped = True
        calls = self._at_turn_end.copy()
        self._at_turn_end.clear()
        for call in calls:
            call()
        for shard in self.journal.shards:
            shard.step()
        self._stopped = False

    def wait(self, commit: Commit | None) -> None:
        """Until an operation that was handed over is acknowledged. Raises its error if it failed."""
        if commit is None:
            if not self.lazy:
                self.step()
            return
        while not commit.done:
            self.step()
        if commit.error is not None:
            raise commit.error

    def _done(self, call: Callable[[], Result]) -> Result:
        while True:
            try:
                return call()
            except Busy as busy:
                while not busy.commit.done:
                    self.step()


def _seq_of(fragment: bytes) -> int:
    return int(fragment[len(b'{"$seq":') : fragment.index(b",")])
