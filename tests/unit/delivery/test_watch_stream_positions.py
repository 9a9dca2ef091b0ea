"""Where a session stands when its stream breaks off: behind the bytes that have left the process, no further."""

import pytest
from msgspec import Raw
from test_watch_stream import Stage, gist, record

from topics import limits
from topics.delivery.shared_batches import SharedBatches
from topics.engine.engine import Write
from topics.engine.topic import Topic
from topics.model.record import NewRecord


class NeverServed:
    """Watches a topic, and sends nothing."""

    def serve(self, topic: Topic, shared: SharedBatches) -> int:
        return 0

    def pace(self, topics: list[str], retry_after_ms: int) -> None: ...


def test_a_frame_that_never_left_comes_again() -> None:
    stage = Stage()
    stage.configure()
    session = stage.session("t")
    stream, channel = stage.open(session)
    stage.frames(channel)
    channel.stuck = True
    stage.write(count=3)
    stage.settle()
    stream.closed()
    _, channel = stage.open(session)
    assert gist(stage.frames(channel))[1] == record(3)


def test_a_frame_of_which_every_byte_has_left_does_not_come_again() -> None:
    stage = Stage()
    stage.configure()
    session = stage.session("t")
    stream, channel = stage.open(session)
    stage.frames(channel)
    stage.write(count=3)
    stage.settle()
    channel.stuck = True
    stage.write(count=2)
    stage.settle()
    stream.closed()
    _, channel = stage.open(session)
    assert gist(stage.frames(channel))[1] == record(5, 3)


def test_a_client_that_shows_the_id_of_a_frame_has_it_also_where_that_was_not_known_to_have_left() -> None:
    stage = Stage()
    stage.configure()
    session = stage.session("t")
    stream, channel = stage.open(session)
    stage.frames(channel)
    channel.stuck = True
    stage.write(count=3)
    stage.settle()
    stream.closed()
    _, channel = stage.open(session, {"t": 3, "$t": 1})
    assert [frame[0] for frame in stage.frames(channel)[1:]] == ["caught-up"]
    _, channel = stage.open(session, {"t": 4, "$t": 1})  # nobody was told of that
    assert [frame[0] for frame in stage.frames(channel)[1:]] == ["caught-up"]


def test_watchers_at_the_same_place_get_the_same_text_at_once() -> None:
    stage = Stage()
    stage.configure()
    sessions = [stage.session("t") for _ in range(limits.CROWD_MEMBERS_MAX + 2)]
    channels = [stage.open(session)[1] for session in sessions]
    behind = stage.open(stage.session("t"))[1]
    behind.writable = False
    for channel in channels:
        stage.frames(channel)
    stage.write(count=3)
    assert [gist(stage.frames(channel)) for channel in channels] == [[record(3)]] * len(channels)
    # The first one is served like anybody, which makes the text of the others.
    assert [channel.sent_at_once for channel in channels] == [0] + [1] * (len(channels) - 1)
    assert stage.frames(behind) == ["retry: 2000"]
    for session in sessions:
        assert [frame[0] for frame in stage.frames(stage.open(session)[1])[1:]] == ["caught-up"]


def test_a_text_is_the_same_whether_it_is_sent_to_a_crowd_or_to_one_after_the_other() -> None:
    texts = []
    for other_topic_at_the_same_time in (False, True):
        stage = Stage()
        stage.configure()
        stage.hub.watch(stage.configure("other", priority=-1), NeverServed())
        channels = [stage.open(stage.session("t"))[1] for _ in range(3)]
        stage.settle()
        for channel in channels:
            channel.take()
        stage.write(count=2)
        if other_topic_at_the_same_time:
            stage.write("other")
        stage.settle()
        texts.append([channel.take() for channel in channels])
        sent_at_once = 0 if other_topic_at_the_same_time else 1
        assert [channel.sent_at_once for channel in channels] == [0, sent_at_once, sent_at_once]
    assert texts[0] == texts[1]


class Failing(NeverServed):
    def serve(self, topic: Topic, shared: SharedBatches) -> int:
        raise RuntimeError("a mistake")


def test_a_crowd_is_sent_to_also_when_somebody_served_after_it_fails() -> None:
    stage = Stage()
    topic = stage.configure()
    channels = [stage.open(stage.session("t"))[1] for _ in range(3)]
    stage.settle()
    for channel in channels:
        channel.take()
    stage.hub.watch(topic, Failing())
    stage.write()
    with pytest.raises(RuntimeError, match="a mistake"):
        stage.settle()
    assert [b"event: record" in channel.take() for channel in channels] == [True] * 3


def test_of_a_crowd_only_those_whose_bytes_have_left_move_on() -> None:
    stage = Stage()
    stage.configure()
    sessions = [stage.session("t") for _ in range(3)]
    streams = [stage.open(session) for session in sessions]
    stage.settle()
    streams[1][1].stuck = True
    stage.write(count=3)
    stage.settle()
    for stream, _ in streams:
        stream.closed()
    frames = [gist(stage.frames(stage.open(session)[1]))[1] for session in sessions]
    assert [frame[0] for frame in frames] == ["caught-up", "record", "caught-up"]


def test_what_was_held_back_has_left_when_a_later_frame_has() -> None:
    stage = Stage()
    stage.configure()
    stage.open(stage.session("t"))  # so that the other one is of a crowd
    session = stage.session("t")
    stream, channel = stage.open(session)
    stage.frames(channel)
    channel.stuck = True
    stage.write(count=3)
    stage.settle()
    channel.stuck = False
    stage.write(count=2)
    stage.settle()
    stream.closed()
    _, channel = stage.open(session)
    assert [frame[0] for frame in stage.frames(channel)[1:]] == ["caught-up"]


def test_a_stream_that_takes_over_goes_on_behind_what_the_one_before_has_sent() -> None:
    stage = Stage()
    stage.configure()
    session = stage.session("t")
    _, old = stage.open(session)
    stage.frames(old)
    stage.write(count=2)
    stage.settle()
    _, new = stage.open(session, {"t": 1, "$t": 1})
    assert old.closed
    assert gist(stage.frames(new))[1] == record(2, 1)


def test_a_client_that_reads_slowly_is_not_one_that_does_not_read() -> None:
    stage = Stage()
    stage.configure()
    _, channel = stage.open(stage.session("t"))
    stage.frames(channel)
    stage.write(data="x" * 1000)
    stage.settle()
    channel.writable = False
    channel.unsent_bytes = 900
    stage.write()
    for _ in range(20):
        stage.loop.pass_time(limits.SLOW_CONSUMER_TIMEOUT_MS // 2)
        channel.unsent_bytes -= 1
        assert not channel.closed
    stage.loop.pass_time(limits.SLOW_CONSUMER_TIMEOUT_MS + 2 * limits.STREAM_CHECK_MS)
    assert channel.closed


def test_a_batch_is_as_large_as_it_was_asked_to_be_once_it_is_sent() -> None:
    stage = Stage()
    stage.configure()
    lines = Raw(b"[" + b"\n" * 5000 + b"1]")
    stage.engine.append("t", Write([NewRecord(lines)] * 10))
    session = stage.session("t")
    session.options = session.options._replace(read=session.options.read._replace(bytes_max=100_000))
    _, channel = stage.open(session)
    stage.settle()
    frames = [write for write in channel.writes if b"event: record" in write]
    assert len(frames) == 5
    assert max(map(len, frames)) < 101_000
