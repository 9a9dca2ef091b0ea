"""One connection's subscriptions: what is sent for each topic, and what is held back."""

import pytest

from doubles.live_stage import LiveStage, read_options
from doubles.manual_journal import ManualJournal
from doubles.unreadable_block import make_unreadable
from topics import limits
from topics.delivery.shared_batches import NOBODY, Crowd, SharedBatch, SharedBatches
from topics.delivery.subscriber import Feed, Subscriber
from topics.engine.block import Block
from topics.engine.journal import Busy, Commit
from topics.engine.topic import Topic
from topics.errors import StorageFailed, TopicsError
from topics.model.gap import Gap
from topics.model.read_options import ReadOptions


class RecordingSink:
    def __init__(self) -> None:
        self.room = limits.U32_MAX  # how many more deliveries it takes
        self.seen: list[tuple[object, ...]] = []

    @property
    def writable(self) -> bool:
        return self.room > 0

    def take(self) -> list[tuple[object, ...]]:
        seen, self.seen = self.seen, []
        return seen

    def records(self, feed: Feed, shared: SharedBatch, from_seq: int, head_seq: int) -> int:
        self.room -= 1
        self.seen.append(("records", feed.topic.name, from_seq, shared.batch.next_from_seq, head_seq))
        return sum(map(len, shared.batch.fragments))

    def join(self, crowd: Crowd) -> int:
        return 0

    def tombstone(self, feed: Feed, gap: Gap, earliest_seq: int, head_seq: int, *, first: bool) -> None:
        self.seen.append(("tombstone", gap.reason.value, gap.gap_from, gap.gap_to, first))

    def caught_up(self, feed: Feed, head_seq: int) -> None:
        self.seen.append(("caught_up", feed.topic.name, head_seq))

    def topic_deleted(self, feed: Feed, head_seq: int) -> None:
        self.seen.append(("topic_deleted", feed.topic.name, head_seq))

    def failed(self, feed: Feed, error: TopicsError) -> None:
        self.seen.append(("failed", feed.topic.name, error.message))

    def paced(self, topics: list[str], retry_after_ms: int) -> None:
        self.seen.append(("paced", topics, retry_after_ms))


class Stage(LiveStage):
    """With one subscriber."""

    def __init__(self, journal: ManualJournal | None = None) -> None:
        super().__init__(journal)
        self.sink = RecordingSink()
        self.subscriber = Subscriber(self.engine, self.hub, self.sink)

    def subscribe(
        self,
        topic: Topic,
        from_seq: int = 0,
        options: ReadOptions | None = None,
        *,
        strong: bool = False,
        recreated: bool = False,
    ) -> Feed:
        feed = Feed(topic, from_seq, options or read_options(), strong=strong, recreated=recreated)
        self.subscriber.add(feed)
        return feed

    def seen(self) -> list[tuple[object, ...]]:
        self.settle()
        return self.sink.take()


def test_what_is_there_comes_before_what_follows() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=3)
    stage.subscribe(topic, 1)
    assert stage.sink.seen == []  # nothing from within `add`
    assert stage.seen() == [("records", "t", 1, 3, 3), ("caught_up", "t", 3)]
    stage.write()
    assert stage.seen() == [("records", "t", 3, 4, 4)]


def test_nothing_is_sent_while_there_is_no_room() -> None:
    stage = Stage()
    stage.subscribe(stage.configure())
    stage.seen()
    stage.sink.room = 0
    stage.write(count=5)
    assert stage.seen() == []
    stage.sink.room = 10
    stage.subscriber.drained()
    assert stage.seen() == [("records", "t", 0, 5, 5)]  # in one piece: it coalesced


def test_sending_stops_where_the_room_ends() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=5)
    stage.sink.room = 2
    stage.subscribe(topic, options=read_options(limit=1))
    assert stage.seen() == [("records", "t", 0, 1, 5), ("records", "t", 1, 2, 5)]
    stage.sink.room = 10
    stage.subscriber.drained()
    assert stage.seen()[0] == ("records", "t", 2, 3, 5)


def test_a_topic_that_has_said_nothing_yet_is_heard_when_there_is_room() -> None:
    stage = Stage()
    stage.sink.room = 0  # another topic's backlog took it
    stage.subscribe(stage.configure("empty"))
    stage.subscribe(stage.configure("recreated"), recreated=True)
    stage.subscribe(stage.configure("behind"), 7)
    assert stage.seen() == []
    stage.sink.room = 10
    stage.subscriber.drained()
    assert sorted(map(str, stage.seen())) == [
        "('caught_up', 'behind', 0)",
        "('caught_up', 'empty', 0)",
        "('caught_up', 'recreated', 0)",
        "('tombstone', 'recreated', 1, 0, True)",
        "('tombstone', 'recreated', 1, 0, True)",
    ]


def test_draining_asks_for_no_turn_when_there_is_nothing_to_send() -> None:
    stage = Stage()
    stage.subscribe(stage.configure())
    stage.seen()
    turns = len(stage.loop.delays_s)
    stage.subscriber.drained()
    assert len(stage.loop.delays_s) == turns


def test_a_long_backlog_lets_others_in_between() -> None:
    stage = Stage()
    for name in ("long", "short"):
        stage.configure(name, priority=100)
        stage.write(name, count=2 * limits.BATCHES_PER_SERVING_MAX)
    stage.subscribe(stage.engine.topic("long"), options=read_options(limit=1))
    stage.subscribe(stage.engine.topic("short"))
    names = [delivery[1] for delivery in stage.seen() if delivery[0] == "records"]
    assert names.index("short") == limits.BATCHES_PER_SERVING_MAX
    assert names.count("long") == 2 * limits.BATCHES_PER_SERVING_MAX


def test_what_the_log_lost_while_there_was_no_room_is_a_tombstone() -> None:
    stage = Stage()
    stage.subscribe(stage.configure(cap_records=2))
    stage.seen()
    stage.sink.room = 0
    stage.write(count=5)
    stage.settle()
    stage.sink.room = 10
    stage.subscriber.drained()
    assert stage.seen() == [("tombstone", "cap", 1, 3, False), ("records", "t", 3, 5, 5)]


def test_the_first_thing_a_subscription_says_is_marked() -> None:
    stage = Stage()
    topic = stage.configure(cap_records=2)
    stage.write(count=5)
    stage.subscribe(topic)
    assert stage.seen()[0] == ("tombstone", "cap", 1, 3, True)


def test_what_expires_while_there_was_no_room_is_a_tombstone() -> None:
    stage = Stage()
    stage.subscribe(stage.configure(ttl_ms=1000))
    stage.seen()
    stage.sink.room = 0
    stage.write(count=2)
    stage.settle()
    stage.clock.advance(1001)
    stage.sink.room = 10
    stage.subscriber.drained()
    assert stage.seen() == [("tombstone", "ttl", 1, 2, False)]


def test_deleted_records_are_passed_over() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=5)
    stage.engine.delete_records("t", 4, None)
    stage.subscribe(topic)
    assert stage.seen() == [("records", "t", 0, 5, 5), ("caught_up", "t", 5)]


def test_a_readers_own_records_move_its_cursor_and_send_nothing() -> None:
    stage = Stage()
    feed = stage.subscribe(stage.configure(), options=read_options(own=("me",)))
    stage.seen()
    stage.write(count=3, node="me")
    assert stage.seen() == []
    assert feed.cursor == 3


def test_a_topic_that_dedupes_nothing_sends_a_reader_its_own_records() -> None:
    stage = Stage()
    stage.subscribe(stage.configure(dedupe_node=False), options=read_options(own=("me",)))
    stage.seen()
    stage.write(node="me")
    assert stage.seen() == [("records", "t", 0, 1, 1)]


def test_caught_up_is_said_again_after_a_backlog_only() -> None:
    stage = Stage()
    stage.subscribe(stage.configure(), options=read_options(limit=2))
    assert stage.seen() == [("caught_up", "t", 0)]
    stage.write(count=2)
    assert stage.seen() == [("records", "t", 0, 2, 2)]
    stage.write(count=3)
    assert stage.seen() == [("records", "t", 2, 4, 5), ("records", "t", 4, 5, 5), ("caught_up", "t", 5)]


def test_the_end_of_a_topic_is_the_last_thing_said_of_it() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=2)
    stage.subscribe(topic)
    stage.seen()
    stage.engine.delete_topic("t")
    stage.write(count=1)  # another topic of the same name
    assert stage.seen() == [("topic_deleted", "t", 2)]
    assert stage.subscriber.feeds == {}


def test_the_end_of_a_topic_waits_for_room() -> None:
    stage = Stage()
    stage.subscribe(stage.configure())
    stage.seen()
    stage.sink.room = 0
    stage.engine.delete_topic("t")
    assert stage.seen() == []
    stage.sink.room = 1
    stage.subscriber.drained()
    assert stage.seen() == [("topic_deleted", "t", 0)]


def test_a_recreated_topic_is_read_from_its_beginning() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=5)
    stage.engine.delete_records("t", 3, None)
    stage.subscribe(topic, 4, recreated=True)
    assert stage.seen() == [
        ("tombstone", "recreated", 1, 5, True),
        ("records", "t", 2, 5, 5),
        ("caught_up", "t", 5),
    ]


def test_a_cursor_beyond_the_head_is_read_from_the_beginning() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=2)
    stage.subscribe(topic, 9)
    assert stage.seen() == [
        ("tombstone", "recreated", 1, 2, True),
        ("records", "t", 0, 2, 2),
        ("caught_up", "t", 2),
    ]


def test_subscribing_again_takes_the_place_of_the_first() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=2)
    stage.subscribe(topic)
    stage.subscribe(topic, 1)
    assert stage.seen() == [("records", "t", 1, 2, 2), ("caught_up", "t", 2)]


def test_what_is_removed_is_not_sent() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.subscribe(topic)
    stage.write()
    assert stage.subscriber.remove(topic) is True
    assert stage.subscriber.remove(topic) is False
    assert stage.seen() == []


def test_a_closed_subscriber_is_sent_nothing() -> None:
    stage = Stage()
    one, two = stage.configure("a"), stage.configure("b")
    stage.subscribe(one)
    stage.subscribe(two)
    stage.subscriber.close()
    stage.write("a")
    assert stage.seen() == []
    assert stage.hub.ready_depth == 0


def test_pacing_is_handed_on() -> None:
    stage = Stage()
    stage.subscribe(stage.configure(priority=-1))
    stage.hub.defer(True)
    assert stage.sink.take() == [("paced", ["t"], limits.PACED_RETRY_AFTER_MS)]


# Strong readers


def strong_stage(durability: str, cap_records: int = 0) -> tuple[Stage, ManualJournal, Topic]:
    journal = ManualJournal()
    stage = Stage(journal)
    topic = stage.configure(durability=durability, cap_records=cap_records)
    journal.sync()
    return stage, journal, topic


def test_a_strong_reader_sees_a_record_once_it_is_synced() -> None:
    stage, journal, topic = strong_stage("disk")
    stage.write()
    journal.sync()
    eventual = RecordingSink()
    Subscriber(stage.engine, stage.hub, eventual).add(Feed(topic, 0, read_options()))
    stage.subscribe(topic, strong=True)
    assert stage.seen() == []  # what is durable is not known before the first sync
    journal.sync()
    assert stage.seen() == [("records", "t", 0, 1, 1), ("caught_up", "t", 1)]
    eventual.take()
    stage.write()
    assert stage.seen() == []
    assert eventual.take() == [("records", "t", 1, 2, 2)]
    journal.sync()
    assert stage.seen() == [("records", "t", 1, 2, 2)]


def test_a_strong_reader_sees_a_write_that_its_writer_waited_for() -> None:
    stage, journal, topic = strong_stage("disk")
    stage.subscribe(topic, strong=True)
    journal.sync()
    stage.seen()
    stage.write(count=limits.SEQ_RESERVATION_MIN + 1)  # beyond the seqs reserved
    assert stage.seen() == []
    journal.sync()
    assert stage.seen() == [("records", "t", 0, 65, 65)]


def test_a_strong_reader_sees_a_write_that_was_waiting_when_it_came() -> None:
    stage, journal, topic = strong_stage("disk")
    stage.write(count=limits.SEQ_RESERVATION_MIN + 1)
    stage.subscribe(topic, strong=True)
    assert stage.seen() == [("caught_up", "t", 0)]
    journal.sync()
    assert stage.seen() == [("records", "t", 0, 65, 65)]


def test_a_strong_reader_never_sees_what_was_not_synced() -> None:
    stage, journal, topic = strong_stage("disk")
    stage.subscribe(topic, strong=True)
    journal.sync()
    assert stage.seen() == [("caught_up", "t", 0)]
    stage.write()
    journal.sync(StorageFailed("no"))
    assert stage.seen() == []


def test_a_strong_reader_of_an_fsync_topic_sees_what_is_published() -> None:
    stage, journal, topic = strong_stage("fsync")
    stage.subscribe(topic, strong=True)
    stage.seen()
    stage.write()
    assert stage.seen() == []
    journal.sync()
    assert stage.seen() == [("records", "t", 0, 1, 1)]


def test_a_strong_reader_of_an_ephemeral_topic_waits_for_nothing() -> None:
    stage, _, topic = strong_stage("ephemeral")
    stage.subscribe(topic, strong=True)
    stage.write()
    assert stage.seen() == [("records", "t", 0, 1, 1), ("caught_up", "t", 1)]


def test_a_strong_reader_is_told_of_a_gap_once() -> None:
    stage, journal, topic = strong_stage("disk", cap_records=2)
    stage.write(count=5)
    journal.sync()
    stage.subscribe(topic, strong=True)
    assert stage.seen() == [("tombstone", "cap", 1, 3, True)]
    journal.sync()
    assert stage.seen() == [("records", "t", 3, 5, 5), ("caught_up", "t", 5)]


def test_writers_wait_for_nobody_once_the_strong_readers_are_gone() -> None:
    stage, journal, topic = strong_stage("disk")
    stage.subscribe(topic, strong=True)
    stage.subscriber.close()
    assert topic.strong_readers == 0
    journal.sync()
    assert stage.seen() == []


# Records that have to be fetched first


class SlowBatches(SharedBatches):
    """The first reading has to wait."""

    def __init__(self, topic: Topic, commit: Commit) -> None:
        super().__init__(topic)
        self._commit = commit

    def read(self, from_seq: int, options: ReadOptions, own_nodes: frozenset[str] = NOBODY) -> SharedBatch:
        if not self._commit.done:
            raise Busy(self._commit)
        return super().read(from_seq, options, own_nodes)


def test_a_reading_that_has_to_wait_is_done_again() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=2)
    feed = stage.subscribe(topic)
    commit = Commit()
    stage.subscriber.serve(topic, SlowBatches(topic, commit))
    assert (stage.sink.take(), feed.cursor) == ([], 0)
    commit.resolve(None, 0)
    assert stage.seen() == [("records", "t", 0, 2, 2), ("caught_up", "t", 2)]


def test_a_reading_that_comes_too_late_wakes_nobody() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=2)
    stage.subscribe(topic)
    commit = Commit()
    stage.subscriber.serve(topic, SlowBatches(topic, commit))
    stage.subscriber.close()
    commit.resolve(None, 0)
    assert stage.seen() == []
    assert stage.hub.ready_depth == 0


def test_a_segment_that_cannot_be_had_is_told_once_and_the_others_go_on() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=6)
    block = make_unreadable(topic.log, stage.loop)
    stage.subscribe(topic)
    other = RecordingSink()
    Subscriber(stage.engine, stage.hub, other).add(Feed(topic, 6, read_options()))
    assert stage.seen() == [("failed", "t", "the cold tier cannot be read")]
    assert block.fetches == 1
    stage.write()
    assert stage.seen() == []
    assert other.seen == [("caught_up", "t", 6), ("records", "t", 6, 7, 7)]


def test_a_file_that_cannot_be_opened_is_told_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=6)
    stage.subscribe(topic)
    other = RecordingSink()
    Subscriber(stage.engine, stage.hub, other).add(Feed(topic, 6, read_options()))

    def no_files_left(block: Block, chosen: object, options: object) -> list[bytes]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Block, "render", no_files_left)
    assert [seen[0] for seen in stage.seen()] == ["failed"]
    assert other.seen == [("caught_up", "t", 6)]


def test_one_serving_sends_no_more_than_so_many_bytes_and_goes_on_later() -> None:
    stage = Stage()
    topic = stage.configure()
    for _ in range(20):
        stage.write(data="x" * 300_000)
    feed = stage.subscribe(topic, options=read_options(limit=1))
    sent = stage.subscriber.serve(topic, SharedBatches(topic))
    assert limits.SERVING_BYTES_MAX <= sent <= limits.SERVING_BYTES_MAX + 301_000
    stage.settle()
    assert feed.cursor == 20
