"""A producer's records on their way: numbers, batches, what is answered for which record, and the end of it all."""

from typing import Any

import pytest

from topics.client.errors import ProducerFailed
from topics.client.producing import Options, Pending, call_back, record_text
from topics.errors import InvalidRequest, TopicFull
from topics.wire.responses import Performance, WriteResponse


def pending(next_number: int = 0, **options: Any) -> Pending:
    return Pending("t", "p", Options(**options), next_number)


def written(first_seq: int, count: int) -> WriteResponse:
    return WriteResponse("t", first_seq, first_seq + count - 1, 99, count, False, False, Performance(0.1))


def test_records_are_numbered_and_cut_into_batches() -> None:
    producer = pending(5, batch_records=2)
    for number in range(5):
        producer.add(b"%d" % number, None, 0)
    assert [(batch.first_number, batch.texts) for batch in producer.full] == [(5, [b"0", b"1"]), (7, [b"2", b"3"])]
    assert producer.open is not None
    assert producer.open.first_number == 9
    body = producer.call(producer.full[0]).body
    assert body == b'{"records":[0,1],"producer":{"name":"p","sequence":5}}'


def test_a_batch_ends_before_it_is_too_large() -> None:
    producer = pending(batch_bytes=10)
    for text in (b"x" * 6, b"x" * 6, b"x" * 20, b"x"):
        producer.add(text, None, 0)
    assert [len(batch.texts) for batch in producer.full] == [1, 1, 1]


def test_numbers_of_ones_own_may_leave_gaps_and_never_fall() -> None:
    producer = pending()
    producer.add(b"1", 10, 0)
    producer.add(b"2", 12, 0)
    assert [batch.first_number for batch in producer.full] == [10]
    assert producer.next_number == 13
    with pytest.raises(InvalidRequest, match="the next must be at least 13"):
        producer.add(b"3", 12, 0)


def test_a_batch_waits_for_others_only_for_a_while() -> None:
    producer = pending(linger_s=0.005)
    assert producer.linger_left_s(0) is None
    producer.add(b"1", None, 1_000_000)
    assert producer.linger_left_s(2_000_000) == pytest.approx(0.004)
    assert producer.linger_left_s(9_000_000) == 0


@pytest.mark.parametrize(
    ("reply", "seqs"),
    [
        (written(7, 3), [7, 8, 9]),
        (written(7, 2), [None, 7, 8]),  # one was there
        (written(7, 0), [None, None, None]),
        (written(5, 5), [7, 8, 9]),  # all were, in a larger write
    ],
)
def test_every_record_gets_its_seq(reply: WriteResponse, seqs: list[int | None]) -> None:
    producer = pending(batch_records=3)
    for _ in range(3):
        batch, _ = producer.add(b"1", None, 0)
    told: list[object] = []
    batch.callbacks += [(index, lambda seq, error: told.append(seq)) for index in range(3)]
    assert producer.acknowledge(batch, reply) == [batch]
    call_back(batch)
    assert told == seqs == [batch.outcome(index) for index in range(3)]
    assert producer.is_empty
    assert producer.buffered_bytes == 0


def test_a_failure_ends_it_with_everything_that_waits() -> None:
    producer = pending(batch_records=1)
    batches = [producer.add(b"1", None, 0)[0] for _ in range(3)]
    assert producer.fail(TopicFull("full")) == batches
    with pytest.raises(ProducerFailed, match="3 records not acknowledged: full"):
        producer.check()
    with pytest.raises(ProducerFailed):
        batches[2].outcome(0)


def test_the_buffer_has_a_bound() -> None:
    producer = pending(buffer_bytes=3)
    producer.add(b"12", None, 0)
    assert producer.has_room
    producer.add(b"34", None, 0)
    assert not producer.has_room


@pytest.mark.parametrize(
    "options", [{"batch_records": 0}, {"batch_records": 10_001}, {"batch_bytes": 0}, {"linger_s": -1}]
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        pending(**options)


def test_data_that_is_no_json_is_refused_where_it_is_appended() -> None:
    with pytest.raises(InvalidRequest, match="data: cannot be written as JSON"):
        record_text(object(), None, None, None, 0)
