"""Server-sent events, byte for byte."""

import pytest

from doubles.live_stage import LiveStage, read_options
from topics.delivery import sse
from topics.delivery.shared_batches import SharedBatches
from topics.delivery.subscriber import Feed
from topics.model.gap import Gap, GapReason


def test_an_event_has_its_id_first() -> None:
    assert sse.event(b"caught-up", b'{"a":1}', b"abc") == b'id: abc\nevent: caught-up\ndata: {"a":1}\n\n'


def test_an_event_without_an_id_has_no_id_line() -> None:
    assert sse.event(b"error", b"{}") == b"event: error\ndata: {}\n\n"


@pytest.mark.parametrize("line_break", [b"\n", b"\r", b"\r\n"])
def test_a_line_break_begins_a_new_line_of_data(line_break: bytes) -> None:
    assert sse.event(b"e", b"[1,~2]".replace(b"~", line_break)) == b"event: e\ndata: [1,\ndata: 2]\n\n"


def test_empty_lines_of_data_do_not_end_the_event() -> None:
    assert sse.event(b"e", b"[\n\n\r\r\n]") == b"event: e\ndata: [\ndata: \ndata: \ndata: \ndata: ]\n\n"


def test_a_heartbeat_is_a_comment() -> None:
    assert sse.heartbeat(1748467205000) == b": hb 1748467205000\n\n"


def test_the_retry_is_two_seconds() -> None:
    assert sse.RETRY == b"retry: 2000\n\n"


def test_an_error_has_its_code_and_what_else_there_is() -> None:
    assert sse.error_event(429, "slow", retry_after_ms=1500, topics=["a"]) == (
        b'event: error\ndata: {"code":429,"error":"slow","retry_after_ms":1500,"topics":["a"]}\n\n'
    )


def test_a_tombstone_has_its_range_and_where_reading_goes_on() -> None:
    assert sse.tombstone_data("t", Gap(1, 7, GapReason.CAP), "cap", 8, 10) == (
        b'{"topic":"t","reason":"cap","gap_from":1,"gap_to":7,"earliest_seq":8,"head_seq":10}'
    )


def test_a_record_event_is_made_once() -> None:
    stage = LiveStage()
    topic = stage.configure()
    stage.write(count=2)
    feed = Feed(topic, 0, read_options())
    shared = SharedBatches(topic).read(0, feed.options)
    ts = stage.clock.now_ms()
    event = sse.record_event(feed, shared, 0, 2)
    assert event == (
        b'event: record\ndata: {"topic":"t","records":[{"$seq":1,"$ts":%d,"data":0},{"$seq":2,"$ts":%d,"data":0}],'
        b'"from_seq":0,"to_seq":2,"head_seq":2}\n\n' % (ts, ts)
    )
    assert sse.record_event(feed, shared, 0, 2) is event
