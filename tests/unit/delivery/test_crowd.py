"""Watchers that keep asking for the same at the same place: they move as one, and nobody loses anything by it."""

import pytest
from test_watch_stream import HEARTBEAT_MS, Stage, gist, record

from doubles.fake_channel import FakeChannel
from topics import limits
from topics.delivery.watch_session import WatchSession
from topics.delivery.watch_stream import WatchStream

Opened = tuple[WatchSession, WatchStream, FakeChannel]


def crowd_of(stage: Stage, count: int) -> list[Opened]:
    """Streams that have had two records, and are a crowd."""
    stage.configure()
    sessions = [stage.session("t") for _ in range(count)]
    opened = [(session, *stage.open(session)) for session in sessions]
    for _ in range(2):
        stage.settle()
        stage.write()
    stage.settle()
    for _, _, channel in opened:
        channel.take()
        channel.sent_at_once = 0
    return opened


def test_a_crowd_gets_every_further_text_at_once_and_the_same() -> None:
    stage = Stage()
    crowd = crowd_of(stage, limits.CROWD_MEMBERS_MAX + 2)
    stage.write(count=3)
    stage.settle()
    assert [channel.sent_at_once for _, _, channel in crowd] == [1] * len(crowd)
    assert len({channel.writes[-1] for _, _, channel in crowd}) == 1
    assert gist(stage.frames(crowd[0][2])) == [record(5, 2)]


def test_who_comes_later_joins_where_the_crowd_is() -> None:
    stage = Stage()
    crowd = crowd_of(stage, 3)
    late = stage.session("t")
    _, channel = stage.open(late)
    stage.settle()
    stage.write()
    stage.settle()
    stage.write()
    stage.settle()
    assert channel.sent_at_once == 2
    assert channel.writes[-1] is crowd[0][2].writes[-1]


def test_a_stream_that_ends_leaves_its_session_behind_what_the_crowd_has_sent() -> None:
    stage = Stage()
    (session, stream, _), *others = crowd_of(stage, 3)
    stage.write(count=2)
    stage.settle()
    stream.closed()
    assert [frame[0] for frame in stage.frames(stage.open(session)[1])[1:]] == ["caught-up"]
    stage.write()
    assert gist(stage.frames(others[0][2]))[-1] == record(5, 4)


def test_a_text_that_did_not_leave_comes_again_after_a_crowd() -> None:
    stage = Stage()
    (session, stream, channel), *_ = crowd_of(stage, 3)
    channel.stuck = True
    stage.write(count=2)
    stage.settle()
    stream.closed()
    assert gist(stage.frames(stage.open(session)[1]))[1] == record(4, 2)


def test_who_does_not_read_is_alone_and_the_crowd_goes_on() -> None:
    stage = Stage()
    (_, stream, slow), (_, _, quick), *_ = crowd_of(stage, 3)
    slow.writable = False
    for _ in range(3):
        stage.write()
        stage.settle()
    assert gist(stage.frames(slow)) == []
    assert [frame[2] for frame in gist(stage.frames(quick))] == [3, 4, 5]
    slow.writable = True
    stream.drained()
    assert gist(stage.frames(slow)) == [record(5, 2)]


def test_a_member_that_does_not_read_is_cut_in_the_end() -> None:
    stage = Stage()
    (_, _, slow), *_ = crowd_of(stage, 3)
    slow.writable = False
    stage.write()
    stage.settle()
    stage.loop.pass_time(limits.SLOW_CONSUMER_TIMEOUT_MS + 2 * limits.STREAM_CHECK_MS)
    assert slow.closed


def test_what_was_deleted_while_a_crowd_is_served_is_not_sent_to_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    crowd = crowd_of(stage, 3)
    monkeypatch.setattr(limits, "CROWD_MEMBERS_MAX", 1)
    monkeypatch.setattr(limits, "DELIVERY_TURN_BYTES_MAX", 1)
    stage.write(data="deleted")
    stage.write(data="kept")
    stage.loop.turn()
    stage.engine.delete_records("t", 4, None)
    stage.settle()
    texts = [channel.take() for _, _, channel in crowd]
    assert sorted(text.count(b"deleted") for text in texts) == [0, 0, 1]
    assert [text.count(b"kept") for text in texts] == [1, 1, 1]


def test_a_write_while_a_crowd_is_served_reaches_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    crowd = crowd_of(stage, 3)
    monkeypatch.setattr(limits, "CROWD_MEMBERS_MAX", 1)
    monkeypatch.setattr(limits, "DELIVERY_TURN_BYTES_MAX", 1)
    stage.write()
    stage.loop.turn()
    stage.write()
    for _, _, channel in crowd:
        assert gist(stage.frames(channel)) == [record(3, 2), record(4, 3)]


def test_a_crowd_with_something_to_say_has_no_heartbeat() -> None:
    stage = Stage()
    crowd = crowd_of(stage, 3)
    for _ in range(5):
        stage.loop.pass_time(HEARTBEAT_MS - 1)
        stage.write()
        assert [frame[0] for _, _, channel in crowd for frame in stage.frames(channel)] == ["record"] * 3
    stage.loop.pass_time(HEARTBEAT_MS)
    assert [stage.frames(channel) for _, _, channel in crowd] == [[f": hb {stage.clock.now_ms()}"]] * 3
    stage.write()
    assert [gist(stage.frames(channel)) for _, _, channel in crowd] == [[record(8, 7)]] * 3


def test_the_end_of_a_topic_is_told_to_each_of_a_crowd() -> None:
    stage = Stage()
    crowd = crowd_of(stage, 3)
    stage.engine.delete_topic("t")
    for _, _, channel in crowd:
        assert [frame[0] for frame in stage.frames(channel)] == ["topic-deleted"]


def test_a_crowd_is_still_known_as_the_watchers_it_is_made_of() -> None:
    stage = Stage()
    crowd = crowd_of(stage, 3)
    topic = stage.engine.topic("t")
    assert len(stage.hub.watchers_of(topic)) == 3
    for _, stream, _ in crowd:
        stream.closed()
    assert not stage.hub.watchers_of(topic)
