"""Operations as frames in the WAL, and who is told when they are durable."""

import errno
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
import pytest
from msgspec import Raw

from topics import limits
from topics.errors import StorageFailed, Throttled, TopicsError
from topics.model.config import DEFAULT_CONFIG
from topics.model.operation import (
    Appended,
    CapReached,
    Claimed,
    ClockReached,
    ConfigChanged,
    Control,
    Extended,
    Grant,
    JobsDelayed,
    JobsDeleted,
    Moved,
    Operation,
    RecordsDeleted,
    Released,
    Restarted,
    SeqsReserved,
    TopicCreated,
    TopicDeleted,
    WriteEnd,
)
from topics.model.payload import split_payload
from topics.model.record import Batch
from topics.model.tag_match import TagMatch
from topics.storage.errors import DiskFailed
from topics.storage.frame import BATCH_CONTINUES, DURABLE, HAS_NODE, HAS_TAG, FrameKind
from topics.storage.group_commit import CommitThread
from topics.storage.heads import Heads
from topics.storage.journal import DiskJournal, shard_of
from topics.storage.operation_codec import encode
from topics.storage.wal_reader import Frame
from topics.storage.wal_replay import ShardReplay
from topics.storage.wal_writer import ShardWriter
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import SimulatedServer


class Ticket:
    def __init__(self) -> None:
        self.outcome: list[TopicsError | None] = []

    def resolve(self, error: TopicsError | None, sync_ns: int) -> None:
        self.outcome.append(error)


def appended(
    topic_id: int,
    first_seq: int,
    payloads: Sequence[bytes],
    *,
    nodes: Sequence[str | None] = (),
    tags: Sequence[str | None] = (),
    key: str | None = None,
) -> Appended:
    """One write. What readers see of it is nothing to the journal."""
    nothing: list[str | None] = [None] * len(payloads)
    batch = Batch([], [], list(nodes) or nothing, list(tags) or nothing, [], 0, payloads)
    last_seq = first_seq + len(payloads) - 1
    return Appended(topic_id, first_seq, batch, [1000] * len(payloads), [WriteEnd(last_seq, key)])


class Journalled:
    """A journal over shards without threads."""

    def __init__(self, shards: int = 1, queue_writes_max: int = 100, exchange: Sequence[int] = ()) -> None:
        self.disk = FakeDisk()
        self.delivered = 0
        self.at_turn_end: list[Callable[[], None]] = []
        self.journal: DiskJournal[Ticket] = DiskJournal(Ticket, self._deliver, self.at_turn_end.append)
        self.heads = Heads(self.disk, "/meta")
        self.heads.create({})
        self.shards = [
            CommitThread(
                ShardWriter(self.disk, f"/wal/{number}", number, 5000, 0),
                FakeClock(),
                on_durable=self.journal.on_durable,
                on_failed=self.journal.on_failed,
                sync_interval_ms=10,
                write_gap_ms=1,
                queue_writes_max=queue_writes_max,
                queue_bytes_max=100_000,
            )
            for number in range(shards)
        ]
        self.journal.open(self.shards, self.heads, exchange)

    def _deliver(self, call: object) -> None:
        self.delivered += 1
        assert callable(call)
        call()

    def append(self, *, count: int = 1, gated: bool = True, key: str | None = None, topic_id: int = 7) -> Ticket | None:
        payloads = [b"%d" % seq for seq in range(1, count + 1)]
        return self.journal.submit([appended(topic_id, 1, payloads, key=key)], gated=gated)

    def append_single(self, topic_id: int = 7, seq: int = 1) -> bool:
        self.heads.make_room(topic_id)
        self.journal.admit(topic_id)
        return self.journal.append_single(topic_id, seq, 1000, None, None, Raw(b"%d" % seq))

    def end_turn(self) -> None:
        while self.at_turn_end:
            self.at_turn_end.pop(0)()

    def step(self) -> None:
        self.end_turn()
        for shard in self.shards:
            shard.step()

    def fail(self) -> None:
        """The disk refuses the next write, and with it the shard is at its end."""
        self.disk.fail_at(self.disk.mutating_calls + 1, errno.EIO)
        assert self.append() is not None
        self.step()

    def frames(self, shard: int = 0) -> list[Frame]:
        self.step()
        return list(ShardReplay(self.disk.crash_keep_all(), f"/wal/{shard}"))


@pytest.mark.parametrize("shards", [1, 2, 8])
def test_topics_made_at_the_same_time_share_a_log_and_take_turns_with_all_of_them(shards: int) -> None:
    journalled = Journalled(shards=shards)
    ids = [0]
    while ids[-1] < 16 * limits.TOPIC_IDS_TOGETHER:
        ids.append(journalled.journal.id_among(ids[-1] + 1))
    logs = [journalled.journal.lane(topic_id) for topic_id in ids[1:]]
    changes = sum(log != after for log, after in pairwise(logs))
    assert changes < 17, "each has many in a row"
    counts = Counter(logs)
    assert len(counts) == shards
    assert max(counts.values()) < 2 * min(counts.values()), "none has more than its share"


def test_a_topic_is_not_made_in_a_log_that_is_at_work_if_another_is_not() -> None:
    journalled = Journalled(shards=4)

    def log(*idle: int) -> int:
        for number, shard in enumerate(journalled.shards):
            shard.idle = number in idle
        return journalled.journal.lane(journalled.journal.id_among(1))

    assert log(0, 1, 2, 3) == 1
    assert log(0, 3) == 3
    assert log(0, 1, 3) == 3, "it is its turn now"
    assert log(0, 1) == 0
    assert log() == 0, "all are at work"
    journalled.shards[1].failure = DiskFailed("/wal/1", "sync", OSError(errno.EIO, "broken"))
    assert log(1, 2) == 2, "nothing can be made in one that has failed"


def test_the_threads_are_woken_once_a_turn_for_all_that_wait_for_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    journalled = Journalled(shards=2)
    woken: list[int] = []
    for number, shard in enumerate(journalled.shards):
        monkeypatch.setattr(shard, "wake", lambda number=number: woken.append(number))
    for topic_id in range(1, 9):
        journalled.append(topic_id=topic_id)
    assert not woken
    assert len(journalled.at_turn_end) == 1
    journalled.end_turn()
    assert woken == [0, 1]
    journalled.journal.barrier()
    journalled.end_turn()
    assert woken == [0, 1, 0, 1]


@pytest.fixture
def at() -> Journalled:
    return Journalled()


def test_a_write_is_one_batch_of_frames(at: Journalled) -> None:
    write = appended(7, 5, [b"[1]\0{}", b"2"], nodes=["n", None], tags=[None, "x"])
    at.journal.submit([write], gated=True)
    frames = at.frames()
    assert [frame[:5] for frame in frames] == [
        (FrameKind.APPEND, HAS_NODE | DURABLE | BATCH_CONTINUES, 7, 5, 1000),
        (FrameKind.APPEND, HAS_TAG | DURABLE, 7, 6, 1000),
    ]
    assert [frame[5:8] for frame in frames] == [(b"n", b"", b"[1]\0{}"), (b"", b"x", b"2")]


def test_writes_nobody_waits_for_are_submitted_together_when_the_turn_ends(at: Journalled) -> None:
    for topic_id in (7, 8):
        assert at.append_single(topic_id)
    assert (at.shards[0].queue_depth, at.shards[0].submitted_lsn) == (0, 2)
    at.end_turn()
    assert (at.shards[0].queue_depth, at.shards[0].submitted_lsn) == (1, 2)
    assert [frame[2] for frame in at.frames()] == [7, 8]


@pytest.mark.parametrize("then", ["a gated write", "a larger write", "an operation", "closing"])
def test_what_comes_next_comes_after_them(at: Journalled, then: str) -> None:
    at.append_single()
    if then == "a gated write":
        at.append(topic_id=8, gated=True)
    elif then == "a larger write":
        at.append(topic_id=8, gated=False, count=2)
    elif then == "an operation":
        at.journal.submit([SeqsReserved(topic_id=8, ts=1000, ceiling=5)], gated=False)
    else:
        at.shards[0].close()
    at.shards[0].step()
    topics = [frame[2] for frame in ShardReplay(at.disk.crash_keep_all(), "/wal/0")]
    assert topics[0] == 7
    assert set(topics[1:]) == ({8} if then != "closing" else set())
    at.end_turn()
    at.shards[0].step()


def test_a_shard_that_failed_meanwhile_has_lost_them(at: Journalled) -> None:
    at.disk.fail_at(at.disk.mutating_calls + 1, errno.EIO)
    at.shards[0].submit(b"x", 1, True, Ticket())
    assert at.append_single()
    at.shards[0].step()
    assert at.shards[0].failure is not None
    at.end_turn()
    assert at.shards[0].queue_depth == 0


def test_a_single_record_is_left_to_others_where_it_could_not_be_taken(at: Journalled) -> None:
    assert not at.journal.append_single(7, 1, 1000, None, None, Raw(b"1"))  # nothing of this topic came before
    at.journal.barrier_of(7)
    assert not at.journal.append_single(7, 1, 1000, None, None, Raw(b"1"))  # there is no place for its head
    assert at.append_single()
    at.fail()
    assert not at.journal.append_single(7, 2, 1000, None, None, Raw(b"2"))
    assert at.heads.read() == {7: 1}


def test_single_records_with_a_key_or_meta_are_submitted_in_order_with_the_others() -> None:
    at = Journalled(queue_writes_max=1)
    assert at.append_single(seq=1)
    at.journal.submit([appended(7, 2, [b"2\0{}"], tags=["ä"])], gated=False)
    assert at.shards[0].queue_depth == 0
    at.journal.submit([appended(7, 3, [b"3"], nodes=["n"], key="k")], gated=False)
    at.end_turn()
    found = [(frame[3], frame[5], frame[6], frame[7]) for frame in at.frames()]
    assert found == [(1, b"", b"", b"1"), (2, b"", "ä".encode(), b"2\0{}"), (3, b"n", b"", b"3\0\0k")]


def test_a_failure_is_told_in_the_turn_it_is_known_in(at: Journalled) -> None:
    assert at.append_single(seq=1)
    at.disk.fail_at(at.disk.mutating_calls + 1, errno.EIO)
    at.shards[0].submit_deferred()
    assert at.append_single(seq=2)
    at.shards[0].step()
    assert at.shards[0].failure is not None
    assert not at.journal.append_single(7, 3, 1000, None, None, Raw(b"3"))


def test_a_shard_that_fails_does_not_keep_others_from_their_turn() -> None:
    at = Journalled(shards=2)
    first, second = (next(each for each in range(1, 99) if shard_of(each, 2) == number) for number in (0, 1))
    assert at.append_single(first)
    assert at.append_single(second)
    at.shards[0].failure = DiskFailed("/wal/0", "write", OSError(errno.EIO, "gone"))
    at.end_turn()
    assert [shard.queue_depth for shard in at.shards] == [0, 1]


def test_a_single_record_is_not_taken_when_too_much_waits() -> None:
    at = Journalled(queue_writes_max=1)
    assert at.append_single(seq=1)
    assert at.append_single(seq=2)  # one piece with the first
    at.end_turn()
    assert not at.journal.append_single(7, 3, 1000, None, None, Raw(b"3"))
    at.step()
    assert at.append_single(seq=3)


def test_a_delay_is_part_of_its_write(at: Journalled) -> None:
    """Torn off, it would hold back whatever gets these seqs next."""
    delayed = JobsDelayed(topic_id=7, ts=1000, seqs=[5], ready_ms=1500)
    at.journal.submit([delayed, appended(7, 5, [b"1"])], gated=True)
    assert [(frame[0], frame[1] & BATCH_CONTINUES, frame[7]) for frame in at.frames()] == [
        (FrameKind.LEASE, BATCH_CONTINUES, b'{"is":"jobs-delayed","seqs":[5],"ready_ms":1500,"topic_id":7,"ts":1000}'),
        (FrameKind.APPEND, 0, b"1"),
    ]


@pytest.mark.parametrize(
    ("lease", "text"),
    [
        (
            Claimed(topic_id=7, ts=1000, grants=[Grant("w", 9, 1500, [4, 5])], cursor=6),
            b'{"is":"claimed","grants":[["w",9,1500,[4,5]]],"cursor":6,"topic_id":7,"ts":1000}',
        ),
        (Released(topic_id=7, ts=1000, seqs=[4]), b'{"is":"released","seqs":[4],"topic_id":7,"ts":1000}'),
        (
            Released(topic_id=7, ts=1000, seqs=[4], ready_ms=1700),
            b'{"is":"released","seqs":[4],"ready_ms":1700,"topic_id":7,"ts":1000}',
        ),
        (
            Extended(topic_id=7, ts=1000, seqs=[5], deadline_ms=1800),
            b'{"is":"extended","seqs":[5],"deadline_ms":1800,"topic_id":7,"ts":1000}',
        ),
    ],
)
def test_a_lease_event_is_kept_as_documented(at: Journalled, lease: Control, text: bytes) -> None:
    at.journal.submit([lease], gated=False)
    assert [(frame[0], frame[7]) for frame in at.frames()] == [(FrameKind.LEASE, text)]


def test_acked_jobs_are_one_delete(at: Journalled) -> None:
    at.journal.submit([JobsDeleted(topic_id=7, ts=1000, seqs=[4, 9], node="w")], gated=True)
    text = b'{"is":"jobs-deleted","seqs":[4,9],"node":"w","topic_id":7,"ts":1000}'
    assert [(frame[0], frame[7]) for frame in at.frames()] == [(FrameKind.DELETE, text)]


def test_a_move_is_one_batch_of_its_delete_and_its_write(at: Journalled) -> None:
    """Torn apart, the job would be in both topics, or in none."""
    deleted = JobsDeleted(topic_id=7, ts=1000, seqs=[4], dead_letters=True)
    at.journal.submit([deleted, appended(8, 1, [b"1"])], gated=True)
    assert [(frame[0], frame[1] & BATCH_CONTINUES, frame[2]) for frame in at.frames()] == [
        (FrameKind.DELETE, BATCH_CONTINUES, 7),
        (FrameKind.APPEND, 0, 8),
    ]


@pytest.mark.parametrize("count", [1, 3])
def test_the_last_record_of_a_write_carries_its_key(at: Journalled, count: int) -> None:
    at.append(count=count, key="ä")
    assert [split_payload(frame[7])[2] for frame in at.frames()] == [None] * (count - 1) + ["ä".encode()]


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        (FrameKind.TOPIC_CREATE, TopicCreated(topic_id=7, ts=1000, name="orders", config=DEFAULT_CONFIG, ceiling=64)),
        (FrameKind.CONFIG_UPDATE, ConfigChanged(topic_id=7, ts=1000, config=DEFAULT_CONFIG)),
        (FrameKind.DELETE, RecordsDeleted(topic_id=7, ts=1000, before_seq=5, match=TagMatch("x", is_prefix=True))),
        (FrameKind.HEAD_WATERMARK, SeqsReserved(topic_id=7, ts=1000, ceiling=64)),
        (FrameKind.HEAD_WATERMARK, Restarted(topic_id=7, ts=1000, head_seq=9, cursors={3: 4})),
        (FrameKind.EVICT_WATERMARK, CapReached(topic_id=7, ts=1000, through_seq=3)),
        (FrameKind.TOPIC_DELETE, TopicDeleted(topic_id=7, ts=1000)),
    ],
)
def test_an_operation_is_one_frame_with_its_body(at: Journalled, kind: FrameKind, operation: Control) -> None:
    at.journal.submit([operation], gated=True)
    (frame,) = at.frames()
    assert (frame[0], frame[2], frame[3], frame[4]) == (kind, 7, 0, 1000)
    assert msgspec.json.decode(frame[7], type=type(operation)) == operation


def test_a_ticket_is_resolved_once_its_operation_is_durable(at: Journalled) -> None:
    ticket = at.append()
    assert ticket is not None
    assert (ticket.outcome, at.delivered) == ([], 0)
    at.step()
    assert (ticket.outcome, at.delivered) == ([None], 1)
    assert len(list(ShardReplay(at.disk.crash_drop_all(), "/wal/0"))) == 1


def test_what_nobody_waits_for_has_no_ticket(at: Journalled) -> None:
    assert at.append(gated=False) is None
    at.step()
    assert at.delivered == 0


def test_a_barrier_is_resolved_when_all_before_it_is_durable() -> None:
    at = Journalled(shards=3)
    for topic_id in range(1, 20):
        at.append(topic_id=topic_id, gated=False)
    tickets = at.journal.barrier()
    assert len(tickets) == 3
    at.step()
    assert [ticket.outcome for ticket in tickets] == [[None]] * 3
    assert sum(len(list(ShardReplay(at.disk.crash_drop_all(), f"/wal/{shard}"))) for shard in range(3)) == 19


def test_a_topics_operations_all_go_to_one_shard() -> None:
    at = Journalled(shards=4)
    for topic_id in range(1, 30):
        at.append(topic_id=topic_id)
        at.journal.submit([TopicDeleted(topic_id=topic_id, ts=1000)], gated=True)
    used = set()
    for shard in range(4):
        frames = at.frames(shard)
        assert {shard_of(frame[2], 4) for frame in frames} <= {shard}
        used |= {shard} if frames else set()
    assert used == {0, 1, 2, 3}


def test_the_shard_of_a_topic_is_a_matter_of_record() -> None:
    """Logs on disk depend on it: operations of one topic in two shards would be replayed out of order."""
    assert [shard_of(topic_id, 8) for topic_id in range(1, 9)] == [6, 3, 5, 0, 4, 3, 7, 6]
    assert {shard_of(topic_id, 1) for topic_id in range(100)} == {0}


@pytest.mark.parametrize("begins", ["known", "created", "moved"])
def test_operations_of_topics_that_exchange_records_are_in_the_first_shard(begins: str) -> None:
    topic_id = next(each for each in range(1, 99) if shard_of(each, 4) == 3)
    at = Journalled(shards=4, exchange=[topic_id] if begins == "known" else [])
    first: Operation
    if begins == "created":
        first = TopicCreated(topic_id=topic_id, ts=1000, name="t", config=DEFAULT_CONFIG, exchange=True)
    elif begins == "moved":
        assert at.journal.lane(topic_id) == 3
        first = Moved(topic_id=topic_id, ts=1000)
    else:
        first = SeqsReserved(topic_id=topic_id, ts=1000, ceiling=64)
    at.journal.submit([first], gated=True)
    assert at.journal.lane(topic_id) == 0
    at.append(topic_id=topic_id, gated=False)
    assert [len(at.frames(shard)) for shard in range(4)] == [2, 0, 0, 0]


def test_the_last_seq_given_out_is_noted_before_the_write_is_on_disk(at: Journalled) -> None:
    at.journal.admit(7)
    at.append(count=3, gated=False)
    at.journal.seen(7, 3)
    assert Heads(at.disk.crash_keep_all(), "/meta").read() == {7: 3}


def test_a_full_queue_admits_nothing_until_the_disk_has_caught_up() -> None:
    at = Journalled(queue_writes_max=1)
    at.journal.admit(7)
    at.append()
    for attempt in (1, 2):
        with pytest.raises(Throttled) as refused:
            at.journal.admit(7)
        assert (refused.value.retry_after_s, refused.value.detail) == (1, {"retry_after_ms": 1000})
        assert at.journal.submit_full_total == attempt
    at.step()
    at.journal.admit(7)


def test_a_full_queue_leaves_watermarks_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a TTL has taken is gone for readers at once; the log learns of it when there is room."""
    monkeypatch.setattr(limits, "WAL_QUEUE_WRITES_MAX", 1)
    clock = FakeClock()
    server = SimulatedServer(FakeDisk(), clock, lazy=True)
    server.start()
    server.write("t", 3, config={"durability": "fsync", "ttl_ms": 1000})
    server.hand_over("other", 1, config={"durability": "fsync"})
    (shard,) = server.journal.shards
    before = shard.submitted_lsn
    clock.advance(5000)
    server.engine.expire_due()
    assert not shard.has_room
    assert shard.submitted_lsn == before
    assert server.engine.topic("t").log.count == 0
    server.step()
    server.engine.expire_due()
    assert server.read_all("t").records == {}


def test_a_failed_disk_tells_everybody_who_waits_and_admits_nothing_more(at: Journalled) -> None:
    before = at.append()
    at.step()
    at.disk.fail_at(at.disk.mutating_calls + 1, errno.EIO)
    lost = [at.append(), at.append()]
    at.step()
    assert before is not None
    assert before.outcome == [None]
    for ticket in lost:
        assert ticket is not None
        (error,) = ticket.outcome
        assert isinstance(error, StorageFailed)
        assert "Input/output" in error.message
    with pytest.raises(StorageFailed):
        at.journal.admit(7)


def test_after_a_failure_the_barrier_of_a_topic_is_never_reached(at: Journalled) -> None:
    at.fail()
    ticket = at.journal.barrier_of(7)
    at.step()
    assert ticket is not None
    assert ticket.outcome == []


def test_after_a_failure_watermarks_are_left_out(at: Journalled) -> None:
    at.fail()
    at.journal.submit([ClockReached(ts=1000, topic_ids=[7])], gated=False)
    assert at.shards[0].queue_depth == 0


def test_one_failed_shard_does_not_stop_the_others() -> None:
    at = Journalled(shards=2)
    at.fail()
    failed = shard_of(7, 2)
    other = next(topic_id for topic_id in range(1, 100) if shard_of(topic_id, 2) != failed)
    at.journal.admit(other)
    ticket = at.append(topic_id=other)
    at.step()
    assert ticket is not None
    assert ticket.outcome == [None]


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("key", [None, "k"])
def test_the_frames_of_a_large_write_are_made_by_the_thread_that_writes_them(
    gated: bool, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: list[list[Frame]] = []
    for encoded_by_loop_max in (1 << 30, 0):
        monkeypatch.setattr(limits, "ENCODED_BY_LOOP_BYTES_MAX", encoded_by_loop_max)
        at = Journalled()
        write = appended(7, 1, [b"%d" % number for number in range(100)], tags=["t"] * 100, key=key)
        write.batch.total_bytes = 1000
        moved = Moved(topic_id=7, ts=1000)
        made: list[str] = []
        monkeypatch.setattr("topics.storage.journal.encode", noting(made))
        ticket = at.journal.submit([moved, write], gated=gated)
        assert made == ([] if encoded_by_loop_max == 0 else ["encoded"])
        assert at.shards[0].submitted_lsn == 101
        at.shards[0].step()
        assert made == ["encoded"]
        assert ticket is None or ticket.outcome == [None]
        frames.append(at.frames())
    assert frames[0] == frames[1]
    assert len(frames[0]) == 101


def noting(made: list[str]) -> Callable[..., list[bytes]]:
    def encoding(operations: Sequence[Operation], *, durable: bool) -> list[bytes]:
        made.append("encoded")
        return encode(operations, durable=durable)

    return encoding
