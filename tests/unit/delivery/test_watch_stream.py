"""One SSE stream over a fake connection: what it writes, when it ends, and what its session knows after that."""

import json
import re
from typing import Any

import pytest

from doubles.fake_channel import FakeChannel
from doubles.live_stage import LiveStage, read_options
from doubles.unreadable_block import make_unreadable
from topics import limits
from topics.delivery.cursor_ids import decode_id
from topics.delivery.watch_session import Position, WatchOptions, WatchSession, WatchSessions
from topics.delivery.watch_stream import WatchStream
from topics.errors import ShuttingDown, Unauthorized

HEARTBEAT_MS = 15_000


class Stage(LiveStage):
    """With sessions, and streams whose slots are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = WatchSessions(self.clock, 0)
        self.released = 0

    def session(self, *names: str, own: tuple[str, ...] = ()) -> WatchSession:
        positions = {name: Position(self.engine.topic(name).topic_id, 0) for name in names}
        options = WatchOptions(read_options(own=own), HEARTBEAT_MS, strong=False)
        return self.sessions.create(b"", options, positions)

    def stream(self, session: WatchSession, resume_from: dict[str, int] | None = None) -> WatchStream:
        return WatchStream(
            self.engine, self.hub, self.clock, self.sessions, session, self.loop.call_later, self._release, resume_from
        )

    def open(self, session: WatchSession, resume_from: dict[str, int] | None = None) -> tuple[WatchStream, FakeChannel]:
        stream, channel = self.stream(session, resume_from), FakeChannel()
        stream.opened(channel)
        return stream, channel

    def frames(self, channel: FakeChannel) -> list[Any]:
        """What came since the last call: (event, data, cursors), and heartbeats as their text."""
        self.settle()
        return [_parse(frame) for frame in channel.take().decode().split("\n\n") if frame]

    def _release(self) -> None:
        self.released += 1


def _parse(frame: str) -> Any:
    if not frame.startswith(("id", "event")):
        return frame
    found = re.fullmatch(r"(?:id: (?P<id>\S+)\n)?event: (?P<event>\S+)\ndata: (?P<data>.*)", frame)
    assert found is not None, frame
    return found["event"], json.loads(found["data"]), None if found["id"] is None else decode_id(found["id"])


def record(head_seq: int, from_seq: int = 0) -> Any:
    """Matches a record frame of the topic t that reaches its head."""
    return ("record", from_seq, head_seq, {"t": head_seq, "$t": 1})


def gist(frames: list[Any]) -> list[Any]:
    """Record frames as `record` has them, the others as they are."""
    return [
        ("record", frame[1]["from_seq"], frame[1]["to_seq"], frame[2]) if frame[0] == "record" else frame
        for frame in frames
    ]


def test_a_stream_begins_with_its_retry() -> None:
    stage = Stage()
    stage.configure()
    _, channel = stage.open(stage.session("t"))
    assert stage.frames(channel) == ["retry: 2000", ("caught-up", {"topic": "t", "head_seq": 0}, {"t": 0, "$t": 1})]


def test_records_come_with_the_cursors_of_all_topics() -> None:
    stage = Stage()
    stage.configure("a")
    stage.configure("b")
    _, channel = stage.open(stage.session("a", "b"))
    stage.frames(channel)
    stage.write("b", 2)
    ((event, data, cursors),) = stage.frames(channel)
    assert (event, data["topic"], cursors) == ("record", "b", {"a": 0, "$a": 1, "b": 2, "$b": 2})
    stage.write("a")
    assert stage.frames(channel)[0][2] == {"a": 1, "$a": 1, "b": 2, "$b": 2}


def test_a_tombstone_says_where_reading_goes_on() -> None:
    stage = Stage()
    stage.configure(cap_records=2)
    stage.write(count=5)
    _, channel = stage.open(stage.session("t"))
    data = {"topic": "t", "reason": "from_seq_too_old", "gap_from": 1, "gap_to": 3, "earliest_seq": 4, "head_seq": 5}
    assert stage.frames(channel)[1] == ("tombstone", data, {"t": 3, "$t": 1})
    stage.write(count=3)
    assert [(event, data["reason"], cursors) for event, data, cursors in stage.frames(channel)[:1]] == [
        ("tombstone", "cap", {"t": 6, "$t": 1})
    ]


# Heartbeats


def test_an_idle_stream_has_a_heartbeat_when_it_is_due() -> None:
    stage = Stage()
    stage.configure()
    _, channel = stage.open(stage.session("t"))
    stage.frames(channel)
    stage.loop.pass_time(HEARTBEAT_MS - 1)
    assert stage.frames(channel) == []
    stage.loop.pass_time(1)
    assert stage.frames(channel) == [f": hb {stage.clock.now_ms()}"]
    stage.loop.pass_time(3 * HEARTBEAT_MS)
    assert len(stage.frames(channel)) == 3


def test_a_stream_with_something_to_say_has_no_heartbeat() -> None:
    stage = Stage()
    stage.configure()
    _, channel = stage.open(stage.session("t"))
    stage.frames(channel)
    for _ in range(10):
        stage.loop.pass_time(HEARTBEAT_MS - 1)
        stage.write()
        assert [frame[0] for frame in stage.frames(channel)] == ["record"]
    stage.loop.pass_time(HEARTBEAT_MS)
    assert stage.frames(channel) == [f": hb {stage.clock.now_ms()}"]


@pytest.mark.parametrize("step_ms", [-86_400_000, 86_400_000])
def test_a_wall_clock_that_is_set_moves_no_heartbeat(step_ms: int) -> None:
    stage = Stage()
    stage.configure()
    _, channel = stage.open(stage.session("t"))
    stage.frames(channel)
    stage.clock.set_wall(stage.clock.now_ms() + step_ms)
    stage.loop.pass_time(HEARTBEAT_MS - 1)
    assert stage.frames(channel) == []
    stage.loop.pass_time(1)
    assert len(stage.frames(channel)) == 1


def test_an_own_record_is_nothing_to_say() -> None:
    stage = Stage()
    stage.configure()
    _, channel = stage.open(stage.session("t", own=("me",)))
    stage.frames(channel)
    stage.loop.pass_time(HEARTBEAT_MS - 1)
    stage.write(node="me")
    stage.loop.pass_time(1)
    assert len(stage.frames(channel)) == 1


# Slow consumers


def test_a_stream_that_is_not_read_ends_after_30_seconds_and_its_session_lives() -> None:
    stage = Stage()
    stage.configure()
    session = stage.session("t")
    _, channel = stage.open(session)
    stage.frames(channel)
    channel.writable = False
    stage.write()
    stage.loop.pass_time(limits.SLOW_CONSUMER_TIMEOUT_MS - 1)
    assert (stage.frames(channel), channel.closed) == ([], False)
    stage.loop.pass_time(limits.STREAM_CHECK_MS)
    ((event, data, cursors),) = stage.frames(channel)
    assert (event, data["code"], cursors) == ("error", 408, None)
    assert channel.closed
    assert stage.released == 1
    assert stage.sessions.find(session.wid) is session
    _, again = stage.open(session)
    assert gist(stage.frames(again))[1] == record(1)


@pytest.mark.parametrize("step_ms", [-86_400_000, 86_400_000])
def test_a_wall_clock_that_is_set_cuts_nobody_off(step_ms: int) -> None:
    stage = Stage()
    stage.configure()
    _, channel = stage.open(stage.session("t"))
    stage.frames(channel)
    channel.writable = False
    stage.write()
    stage.settle()
    stage.clock.set_wall(stage.clock.now_ms() + step_ms)
    stage.loop.pass_time(limits.SLOW_CONSUMER_TIMEOUT_MS - 1)
    assert not channel.closed
    stage.loop.pass_time(limits.STREAM_CHECK_MS)
    assert channel.closed


def test_a_stream_that_is_read_in_time_goes_on() -> None:
    stage = Stage()
    stage.configure()
    stream, channel = stage.open(stage.session("t"))
    stage.frames(channel)
    for seq in range(3):
        channel.writable = False
        stage.write()
        stage.loop.pass_time(limits.SLOW_CONSUMER_TIMEOUT_MS - limits.STREAM_CHECK_MS)
        channel.writable = True
        stream.drained()
        assert gist(stage.frames(channel)) == [record(seq + 1, seq)]
    assert not channel.closed


def test_what_gathers_while_nobody_reads_comes_in_one_piece() -> None:
    stage = Stage()
    stage.configure()
    stream, channel = stage.open(stage.session("t"))
    stage.frames(channel)
    channel.writable = False
    for _ in range(10):
        stage.write()
        stage.settle()
    assert stage.frames(channel) == []
    channel.writable = True
    stream.drained()
    assert gist(stage.frames(channel)) == [record(10)]


def test_a_stream_that_has_no_room_gets_no_heartbeat_and_is_let_go() -> None:
    stage = Stage()
    stage.configure()
    _, channel = stage.open(stage.session("t"))
    stage.frames(channel)
    channel.writable = False
    stage.loop.pass_time(HEARTBEAT_MS + limits.SLOW_CONSUMER_TIMEOUT_MS + limits.STREAM_CHECK_MS)
    assert [frame[0] for frame in stage.frames(channel)] == ["error"]
    assert channel.closed


def test_pacing_is_told_and_the_stream_stays() -> None:
    stage = Stage()
    stage.configure(priority=-1)
    _, channel = stage.open(stage.session("t"))
    stage.frames(channel)
    stage.hub.defer(True)
    ((event, data, cursors),) = stage.frames(channel)
    assert (event, data["code"], data["topics"], cursors) == ("error", 429, ["t"], None)
    assert data["retry_after_ms"] == limits.PACED_RETRY_AFTER_MS
    assert not channel.closed


# Ends


def test_a_lost_connection_gives_its_slot_back_and_leaves_nothing_behind() -> None:
    stage = Stage()
    topic = stage.configure()
    session = stage.session("t")
    stream, channel = stage.open(session)
    stage.frames(channel)
    stream.closed()
    assert (stage.released, session.close_stream) == (1, None)
    stage.write()
    stage.loop.pass_time(HEARTBEAT_MS)
    assert channel.take() == b""
    assert stage.hub.ready_depth == 0
    assert topic.strong_readers == 0


def test_a_connection_that_never_came_gives_its_slot_back() -> None:
    stage = Stage()
    stage.configure()
    stage.stream(stage.session("t")).closed()
    assert stage.released == 1


def test_a_connection_that_never_came_does_not_end_the_one_there_is() -> None:
    stage = Stage()
    stage.configure()
    session = stage.session("t")
    _, channel = stage.open(session)
    stage.frames(channel)
    stage.stream(session).closed()  # HEAD, say
    assert session.close_stream is not None
    stage.write()
    assert gist(stage.frames(channel)) == [record(1)]


def test_a_second_stream_ends_the_first() -> None:
    stage = Stage()
    stage.configure()
    stage.write(count=2)
    session = stage.session("t")
    first, old = stage.open(session)
    stage.frames(old)
    _, new = stage.open(session)
    assert old.closed
    assert stage.released == 1
    assert stage.frames(new) == ["retry: 2000", ("caught-up", {"topic": "t", "head_seq": 2}, {"t": 2, "$t": 1})]
    first.closed()  # the transport reports the loss of the old one
    stage.write()
    assert gist(stage.frames(new)) == [record(3, 2)]
    assert stage.frames(old) == []


def test_the_server_says_that_it_stops() -> None:
    stage = Stage()
    stage.configure()
    stream, channel = stage.open(stage.session("t"))
    stage.frames(channel)
    stream.end_with(ShuttingDown("the server is shutting down"))
    ((event, data, cursors),) = stage.frames(channel)
    assert (event, data["code"], cursors) == ("error", 503, None)
    assert (channel.closed, stage.released) == (True, 1)


def test_the_server_says_that_the_key_is_gone() -> None:
    stage = Stage()
    stage.configure()
    stream, channel = stage.open(stage.session("t"))
    stage.frames(channel)
    stream.end_with(Unauthorized.revoked())
    ((event, data, cursors),) = stage.frames(channel)
    assert (event, data["code"], cursors) == ("error", 401, None)
    assert (channel.closed, stage.released) == (True, 1)


def test_a_session_lives_from_the_end_of_its_stream() -> None:
    stage = Stage()
    stage.configure()
    session = stage.session("t")
    stream, _ = stage.open(session)
    stage.loop.pass_time(2 * limits.SESSION_TTL_MS)
    assert stage.sessions.find(session.wid) is session
    stream.closed()
    stage.clock.advance(limits.SESSION_TTL_MS)
    assert stage.sessions.find(session.wid) is session
    stage.clock.advance(1)
    assert stage.sessions.find(session.wid) is None


# Topics that end and come again


def test_the_end_of_a_topic_is_told_with_where_the_others_are() -> None:
    stage = Stage()
    stage.configure("a")
    stage.configure("b")
    stage.write("a", 2)
    _, channel = stage.open(stage.session("a", "b"))
    stage.frames(channel)
    stage.engine.delete_topic("b")
    assert stage.frames(channel) == [
        (
            "topic-deleted",
            {"topic": "b", "head_seq": 0, "reason": "deleted"},
            {"a": 2, "$a": 1, "b": 0, "$b": 2},
        )
    ]
    stage.write("a")
    assert [frame[0] for frame in stage.frames(channel)] == ["record"]


def test_a_topic_that_was_recreated_is_read_from_its_beginning() -> None:
    stage = Stage()
    stage.configure()
    stage.write(count=3)
    session = stage.session("t")
    stream, channel = stage.open(session)
    stage.frames(channel)
    stream.closed()
    stage.engine.delete_topic("t")
    stage.write(count=5)
    _, channel = stage.open(session)
    frames = stage.frames(channel)
    assert [frame[0] for frame in frames[1:]] == ["tombstone", "record", "caught-up"]
    assert (frames[1][1]["reason"], frames[1][2]) == ("recreated", {"t": 0, "$t": 2})


def test_a_client_that_lost_the_tombstone_of_a_recreated_topic_gets_it_again() -> None:
    stage = Stage()
    stage.configure()
    stage.write(count=3)
    session = stage.session("t")
    stream, channel = stage.open(session)
    before = stage.frames(channel)[-1][2]
    stream.closed()
    stage.engine.delete_topic("t")
    stage.write(count=5)
    stream, channel = stage.open(session)
    after = stage.frames(channel)[-1][2]
    stream.closed()
    assert (before, after) == ({"t": 3, "$t": 1}, {"t": 5, "$t": 2})
    stream, channel = stage.open(session, after)
    assert [frame[0] for frame in stage.frames(channel)[1:]] == ["caught-up"]
    stream.closed()
    _, channel = stage.open(session, before)
    assert [frame[0] for frame in stage.frames(channel)[1:]] == ["tombstone", "record", "caught-up"]


def test_a_topic_that_was_recreated_is_told_of_even_if_a_stream_ends_before_it_could() -> None:
    stage = Stage()
    stage.configure()
    stage.write(count=3)
    session = stage.session("t")
    stream, channel = stage.open(session)
    stage.frames(channel)
    stream.closed()
    stage.engine.delete_topic("t")
    stage.write(count=5)
    stream, _ = stage.open(session)
    stream.closed()  # before its first turn
    _, channel = stage.open(session)
    frames = stage.frames(channel)
    assert [frame[0] for frame in frames[1:]] == ["tombstone", "record", "caught-up"]
    assert gist(frames)[2] == ("record", 0, 5, {"t": 5, "$t": 2})


def test_a_topic_that_is_recreated_while_its_end_waits_for_room() -> None:
    stage = Stage()
    stage.configure()
    stage.write(count=3)
    session = stage.session("t")
    stream, channel = stage.open(session)
    stage.frames(channel)
    channel.writable = False
    stage.engine.delete_topic("t")
    stage.write(count=5)
    stage.settle()
    stream.closed()
    _, channel = stage.open(session)
    assert [frame[0] for frame in stage.frames(channel)[1:]] == ["tombstone", "record", "caught-up"]


# Epochs


def test_a_new_session_resumed_with_an_old_id_is_told_that_the_topic_was_recreated() -> None:
    stage = Stage()
    stage.configure()
    stage.write(count=10)
    _, channel = stage.open(stage.session("t"))
    old_id = stage.frames(channel)[-1][2]
    stage.engine.delete_topic("t")
    stage.write(count=20)
    session = stage.session("t")
    session.positions["t"].left(old_id["$t"], old_id["t"])
    _, channel = stage.open(session)
    frames = stage.frames(channel)
    assert [frame[0] for frame in frames[1:]] == ["tombstone", "record", "caught-up"]
    assert frames[1][1]["reason"] == "recreated"
    assert gist(frames)[2][1:3] == (0, 20)


def test_a_topic_that_cannot_be_read_is_told_once_and_ends_the_stream() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=6)
    block = make_unreadable(topic.log, stage.loop)
    session = stage.session("t")
    _, channel = stage.open(session)
    (_, (event, data, cursors)) = stage.frames(channel)
    assert (event, data["code"], data["topics"], cursors) == ("error", 500, ["t"], None)
    assert (channel.closed, stage.released, block.fetches) == (True, 1, 1)
    block.error = None
    _, channel = stage.open(session)
    assert gist(stage.frames(channel))[1] == record(6)
