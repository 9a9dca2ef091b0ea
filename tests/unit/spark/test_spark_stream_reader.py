"""The streaming reader's offsets, with a log that is a dictionary: what is reachable, and what is refused."""

import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from topics.client.errors import ServerUnreachable
from topics.errors import Forbidden, StorageFailed, Throttled, TopicsError
from topics.spark import stream_reader
from topics.spark.offsets import Position, SeqRange, TopicRange
from topics.spark.options import Mode, ReadOptions, TableSchema, read_options
from topics.spark.schema import SPARK, table_of
from topics.spark.stream_reader import JsonOffsets, TopicsStreamReader
from topics.spark.tasks import TopicsPartition
from topics.spark.telling import TopicsException
from topics.testing.fake_clock import FakeClock

EVERYTHING = ReadAllAvailable()


class FakeLog:
    """Topics with an epoch and a head."""

    def __init__(self, **topics: tuple[int, int]) -> None:
        self.topics = topics
        self.stored: list[tuple[str, dict[str, Position]]] = []
        self.refusal: TopicsError | None = None

    def ranges(self) -> dict[str, TopicRange]:
        return {name: TopicRange(epoch, 1, head) for name, (epoch, head) in self.topics.items()}

    def store_cursor(self, name: str, offsets: dict[str, Position]) -> None:
        self.stored.append((name, offsets))
        if self.refusal is not None:
            raise self.refusal

    def plan(self, ranges: list[SeqRange], pieces_min: int, records_max: int | None) -> list[SeqRange]:
        return ranges


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> FakeLog:
    fake = FakeLog()

    def open_fake(read: ReadOptions) -> FakeLog:
        return fake

    monkeypatch.setattr(stream_reader, "open_log", open_fake)
    return fake


def reader(clock: FakeClock | None = None, **options: str) -> TopicsStreamReader:
    given = {"url": "http://x", "subscribePrefix": "t"} | options
    read = read_options(given, Mode.STREAMING)
    return TopicsStreamReader(read, table_of(SPARK[TableSchema.TOPICS], read), clock)


def at(**topics: tuple[int, int]) -> JsonOffsets:
    return {name: {"epoch": epoch, "seq": seq} for name, (epoch, seq) in topics.items()}


def test_a_new_query_begins_at_the_heads(log: FakeLog) -> None:
    log.topics = {"t1": (1, 5)}
    assert reader().initialOffset() == at(t1=(1, 5))
    assert reader(startingOffsets="earliest").initialOffset() == at(t1=(1, 0))


def test_the_limit_of_the_options_is_spark_s_to_apply(log: FakeLog) -> None:
    log.topics = {"t1": (1, 50)}
    limited = reader(maxOffsetsPerTrigger="10")
    assert limited.getDefaultReadLimit() == ReadMaxRows(10)
    assert limited.latestOffset(at(t1=(1, 5)), ReadMaxRows(10)) == at(t1=(1, 15))
    assert limited.latestOffset(at(t1=(1, 5)), EVERYTHING) == at(t1=(1, 50))
    assert reader().getDefaultReadLimit() == EVERYTHING


def test_what_comes_after_an_available_now_query_began_is_left_for_the_next(log: FakeLog) -> None:
    log.topics = {"t1": (1, 5), "t2": (2, 3)}
    query = reader(onDataLoss="rows")
    query.prepareForTriggerAvailableNow()
    log.topics = {"t1": (1, 9), "t2": (7, 4), "t3": (8, 1)}
    start = at(t1=(1, 2), t2=(2, 1))
    assert query.latestOffset(start, EVERYTHING) == at(t1=(1, 5), t2=(2, 1))
    assert query.latestOffset(at(t1=(1, 5), t2=(2, 1)), EVERYTHING) == at(t1=(1, 5), t2=(2, 1))


def test_a_topic_that_was_recreated_is_refused_or_begun_anew(log: FakeLog) -> None:
    log.topics = {"t1": (2, 4)}
    with pytest.raises(TopicsException, match="from seq 10 on"):
        reader().latestOffset(at(t1=(1, 9)), EVERYTHING)
    query = reader(onDataLoss="rows")
    end = query.latestOffset(at(t1=(1, 9)), EVERYTHING)
    assert end == at(t1=(2, 4))
    [partition] = query.partitions(at(t1=(1, 9)), end)
    assert isinstance(partition, TopicsPartition)
    assert partition.shares == (SeqRange("t1", 2, 0, 4, lost_from=10),)


def test_a_topic_that_was_deleted_is_refused_or_waited_for(log: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TopicsException, match="deleted_topic"):
        reader().latestOffset(at(t1=(1, 9)), EVERYTHING)
    query = reader(onDataLoss="warn")
    for _ in range(3):
        assert query.latestOffset(at(t1=(1, 9)), EVERYTHING) == at(t1=(1, 9))
    assert [record.getMessage() for record in caplog.records] == ['topic "t1" was deleted; it was read up to seq 9']


def test_files_behind_the_offsets_are_waited_for_and_a_head_of_a_server_that_went_back_is_a_loss(log: FakeLog) -> None:
    log.topics = {"t1": (1, 4)}
    read = read_options({"path": "data", "subscribePrefix": "t"}, Mode.STREAMING)
    of_files = TopicsStreamReader(read, table_of(SPARK[TableSchema.TOPICS], read))
    assert of_files.latestOffset(at(t1=(1, 9)), EVERYTHING) == at(t1=(1, 9))
    with pytest.raises(TopicsException, match="from seq 10 on"):
        reader().latestOffset(at(t1=(1, 9)), EVERYTHING)


def test_a_reader_travels_without_what_it_has_open(log: FakeLog) -> None:
    query = reader(apiKey="s3cret")
    query.initialOffset()
    assert pickle.loads(pickle.dumps(query)).__dict__["_log"] is None


def test_progress_is_stored_only_under_a_name_that_was_given(log: FakeLog) -> None:
    reader().commit(at(t1=(1, 5)))
    assert log.stored == []


def test_only_what_moved_is_stored(log: FakeLog) -> None:
    named = reader(cursor="copier")
    named.commit(at(t1=(1, 5), t2=(2, 7)))
    named.commit(at(t1=(1, 9), t2=(2, 7)))
    assert log.stored == [
        ("copier", {"t1": Position(1, 5), "t2": Position(2, 7)}),
        ("copier", {"t1": Position(1, 9)}),
    ]


@pytest.mark.parametrize(
    "refusal", [Forbidden("no write"), Throttled("too many", retry_after_s=1), StorageFailed("the disk is full")]
)
def test_a_cursor_that_cannot_be_stored_does_not_stop_the_query(
    log: FakeLog, refusal: TopicsError, caplog: pytest.LogCaptureFixture
) -> None:
    named = reader(cursor="copier")
    log.refusal = refusal
    named.commit(at(t1=(1, 5)))
    named.commit(at(t1=(1, 6)))
    assert len(log.stored) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f'the cursor "copier" is not stored any more in this run: {refusal.message}'
    ]


def test_a_server_that_is_gone_stops_the_query(log: FakeLog) -> None:
    log.refusal = ServerUnreachable("nobody there")
    with pytest.raises(TopicsException, match="nobody there"):
        reader(cursor="copier").commit(at(t1=(1, 5)))


def test_a_batch_waits_for_enough_or_for_its_time(log: FakeLog) -> None:
    clock = FakeClock()
    query = reader(clock, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    limit = query.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    log.topics = {"t1": (1, 2)}
    assert query.latestOffset(at(t1=(1, 0)), limit) == at(t1=(1, 2)), "the first batch waits for nothing"
    log.topics = {"t1": (1, 5)}
    assert query.latestOffset(at(t1=(1, 2)), limit) == at(t1=(1, 2))
    log.topics = {"t1": (1, 12)}
    assert query.latestOffset(at(t1=(1, 2)), limit) == at(t1=(1, 12))
    log.topics = {"t1": (1, 13)}
    assert query.latestOffset(at(t1=(1, 12)), limit) == at(t1=(1, 12))
    assert query.latestOffset(at(t1=(1, 12)), EVERYTHING) == at(t1=(1, 13)), "Trigger.Once waits for nothing"
    clock.advance(60_000)
    assert query.latestOffset(at(t1=(1, 12)), limit) == at(t1=(1, 13))


def test_available_now_waits_for_nothing(log: FakeLog) -> None:
    query = reader(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="20")
    log.topics = {"t1": (1, 2)}
    query.prepareForTriggerAvailableNow()
    assert query.latestOffset(at(t1=(1, 0)), query.getDefaultReadLimit()) == at(t1=(1, 2))
    log.topics = {"t1": (1, 5)}
    assert query.latestOffset(at(t1=(1, 2)), query.getDefaultReadLimit()) == at(t1=(1, 2))
