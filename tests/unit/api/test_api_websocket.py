"""A WebSocket over a fake connection, frame by frame; the client's end is the library's own protocol."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State

from doubles.fake_channel import FakeChannel
from doubles.live_stage import LiveStage
from doubles.manual_journal import ManualJournal
from doubles.unreadable_block import make_unreadable
from topics import limits
from topics.api.auth import ANYBODY, Key, Scope
from topics.api.handlers.websocket import check_handshake
from topics.api.http import Request
from topics.api.websocket import WebSocketConnection
from topics.errors import InvalidRequest, ShuttingDown, StorageFailed, Throttled, Unauthorized

MESSAGE_BYTES_MAX = 1000


class Stage(LiveStage):
    """With one open connection."""

    def __init__(self, key: Key = ANYBODY, journal: ManualJournal | None = None, topics_max: int = 10) -> None:
        super().__init__(journal)
        self.channel = FakeChannel()
        self.released = 0
        self.connection = WebSocketConnection(
            self.engine,
            self.hub,
            self.clock,
            key,
            self.loop.call_later,
            self._spawn,
            self._release,
            message_bytes_max=MESSAGE_BYTES_MAX,
            watch_topics_max=topics_max,
            diff_limit_max=1000,
            node_bytes_max=128,
        )
        self.client = Protocol(Side.CLIENT, state=State.OPEN, max_size=None)
        self.connection.opened(self.channel)

    def send(self, op: str, **command: Any) -> None:
        self.client.send_text(json.dumps({"op": op, **command}).encode())
        self.flush()

    def flush(self) -> None:
        for data in self.client.data_to_send():
            if data and not self.channel.closed:
                self.connection.received(data)

    def events(self) -> list[Frame]:
        """What the server has sent since the last call."""
        self.settle()
        self.client.receive_data(self.channel.take())
        events = self.client.events_received()
        self.client.data_to_send()
        assert all(isinstance(event, Frame) for event in events)
        return events  # type: ignore[return-value]

    def frames(self) -> list[dict[str, Any]]:
        events = self.events()
        assert all(event.opcode is Opcode.TEXT for event in events), events
        return [json.loads(bytes(event.data)) for event in events]

    def ask(self, op: str, **command: Any) -> list[dict[str, Any]]:
        self.send(op, **command)
        return self.frames()

    @property
    def close_code(self) -> int | None:
        self.events()
        return None if self.client.close_rcvd is None else self.client.close_rcvd.code

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.task = asyncio.get_running_loop().create_task(work)

    def _release(self) -> None:
        self.released += 1


# Commands and their answers


def test_a_ping_is_answered() -> None:
    stage = Stage()
    assert stage.ask("ping", request_id="p") == [{"op": "pong", "request_id": "p"}]
    assert stage.ask("ping") == [{"op": "pong"}]


def test_answers_are_written_byte_for_byte() -> None:
    stage = Stage()
    stage.send("ping", request_id="p")
    assert stage.channel.take() == b'\x81\x1e{"op":"pong","request_id":"p"}'


def test_a_subscription_is_confirmed_before_it_is_served() -> None:
    stage = Stage()
    stage.write(count=2)
    frames = stage.ask("subscribe", request_id="s", topic="t")
    assert [frame["op"] for frame in frames] == ["subscribed", "record", "caught_up"]
    assert frames[0]["topics"] == {"t": {"from_seq": 0, "head_seq": 2, "earliest_seq": 1}}


def test_connections_share_the_bytes_of_a_record_frame() -> None:
    one = Stage()
    one.write()
    channel = FakeChannel()
    other = WebSocketConnection(
        one.engine,
        one.hub,
        one.clock,
        ANYBODY,
        one.loop.call_later,
        lambda work: work.close(),
        lambda: None,
        message_bytes_max=MESSAGE_BYTES_MAX,
        watch_topics_max=1,
        diff_limit_max=1,
        node_bytes_max=1,
    )
    other.opened(channel)
    command = b'{"op":"subscribe","topic":"t","tail":true,"limit":1}'
    for connection in (one.connection, other):
        connection.received(Frame(Opcode.TEXT, command).serialize(mask=True))
    one.settle()
    one.write()
    one.settle()
    assert b'"record"' in channel.writes[-1]
    assert one.channel.writes[-1] is channel.writes[-1]


def test_several_commands_of_one_read_are_answered_in_order() -> None:
    stage = Stage()
    pings = [json.dumps({"op": "ping", "request_id": str(number)}).encode() for number in range(3)]
    stage.connection.received(b"".join(Frame(Opcode.TEXT, ping).serialize(mask=True) for ping in pings))
    assert [frame["request_id"] for frame in stage.frames()] == ["0", "1", "2"]


def test_a_command_may_come_byte_by_byte() -> None:
    stage = Stage()
    for byte in Frame(Opcode.TEXT, b'{"op":"ping"}').serialize(mask=True):
        stage.connection.received(bytes([byte]))
    assert stage.frames() == [{"op": "pong"}]


def test_an_ack_that_waits_for_its_sync_holds_up_nothing() -> None:
    journal = ManualJournal()
    stage = Stage(journal=journal)
    stage.configure(durability="fsync")
    journal.sync()
    assert stage.ask("publish", request_id="p", topic="t", records=[{"data": 1}]) == []
    assert stage.ask("ping") == [{"op": "pong"}]
    journal.sync()
    (ack,) = stage.frames()
    assert (ack["op"], ack["request_id"], ack["head_seq"], ack["performance"]["fsync_ms"]) == ("ack", "p", 1, 1.0)


def test_a_publish_whose_sync_fails_is_refused() -> None:
    journal = ManualJournal()
    stage = Stage(journal=journal)
    stage.configure(durability="fsync")
    journal.sync()
    stage.send("publish", request_id="p", topic="t", records=[{"data": 1}])
    journal.sync(StorageFailed("the disk is gone"))
    assert stage.frames() == [
        {"op": "error", "request_id": "p", "code": "storage_failed", "message": "the disk is gone"}
    ]


def test_a_publish_that_is_synced_after_the_connection_is_gone_tells_nobody() -> None:
    journal = ManualJournal()
    stage = Stage(journal=journal)
    stage.configure(durability="fsync")
    journal.sync()
    stage.send("publish", topic="t", records=[{"data": 1}])
    stage.connection.closed()
    journal.sync()
    assert stage.channel.take() == b""
    assert stage.engine.topic("t").log.head_seq == 1


def test_a_command_that_has_to_wait_holds_up_those_behind_it() -> None:
    journal = ManualJournal()

    async def scenario() -> None:
        stage = Stage(journal=journal)
        stage.configure()  # not durable yet: the name is closed for others
        stage.send("publish", request_id="1", topic="t", records=[{"data": 1}])
        stage.send("ping", request_id="2")
        assert stage.frames() == []
        journal.sync()
        await stage.task
        assert [(frame["op"], frame["request_id"]) for frame in stage.frames()] == [("ack", "1"), ("pong", "2")]

    asyncio.run(scenario())


def test_a_publisher_that_would_rather_wait_waits_for_the_disk() -> None:
    journal = ManualJournal()

    async def scenario() -> None:
        stage = Stage(journal=journal)
        stage.configure(durability="memory")
        journal.sync()
        journal.refusal = Throttled("the disk does not keep up", retry_after_s=1)
        records = [{"data": 1}]
        assert stage.ask("publish", request_id="1", topic="t", records=records)[0]["code"] == "throttled"
        assert stage.ask("publish", request_id="2", topic="t", records=records, disable_backpressure=True) == []
        journal.refusal = None
        stage.loop.pass_time(limits.BACKPRESSURE_RETRY_MS)
        await stage.task
        ((op, request_id),) = [(frame["op"], frame["request_id"]) for frame in stage.frames()]
        assert (op, request_id) == ("ack", "2")

    asyncio.run(scenario())


def test_a_writer_that_would_rather_wait_does_not_wait_for_ever() -> None:
    journal = ManualJournal()

    async def scenario() -> None:
        stage = Stage(journal=journal)
        stage.configure(durability="memory")
        journal.sync()
        journal.refusal = Throttled("the disk does not keep up", retry_after_s=1)
        for request_id in ("1", "2"):  # each has its own time
            stage.send("publish", request_id=request_id, topic="t", records=[{"data": 1}], disable_backpressure=True)
            waited_ms = 0
            while not (frames := [event for event in stage.events() if event.opcode is Opcode.TEXT]):
                stage.connection.received(Frame(Opcode.PONG, b"").serialize(mask=True))
                stage.loop.pass_time(limits.BACKPRESSURE_RETRY_MS)
                waited_ms += limits.BACKPRESSURE_RETRY_MS
                await stage.task
            (told,) = [json.loads(bytes(frame.data)) for frame in frames]
            assert (told["request_id"], told["code"]) == (request_id, "throttled")
            assert 0 <= waited_ms - limits.BACKPRESSURE_WAIT_MS_MAX <= 2 * limits.BACKPRESSURE_RETRY_MS

    asyncio.run(scenario())


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_the_seqs_of_an_ack_are_as_many_as_it_says(durability: str) -> None:
    journal = ManualJournal()
    stage = Stage(journal=journal)
    stage.configure(durability=durability)
    journal.sync()
    records = [{"data": number} for number in range(5)]
    for first, last in ((0, 3), (0, 3), (0, 2), (1, 3), (2, 3), (2, 4), (0, 1), (0, 4), (4, 5), (0, 5)):
        producer = {"name": "p", "sequence": first}
        stage.send("publish", topic="t", records=records[first:last], producer=producer)
    journal.sync()
    frames = stage.frames()
    assert [frame["op"] for frame in frames] == ["ack"] * 10
    assert [len(frame["seqs"]) for frame in frames] == [frame["count"] for frame in frames]
    assert [frame["count"] for frame in frames if not frame["deduped"]] == [3, 1, 1]


def test_a_command_that_waited_in_vain_is_refused_with_its_request_id() -> None:
    journal = ManualJournal()

    async def scenario() -> None:
        stage = Stage(journal=journal)
        stage.configure()
        stage.send("publish", request_id="1", topic="t", records=[{"data": 1}])
        journal.sync(StorageFailed("the disk is gone"))
        await stage.task
        ((op, request_id, code),) = [(frame["op"], frame["request_id"], frame["code"]) for frame in stage.frames()]
        assert (op, request_id, code) == ("error", "1", "storage_failed")

    asyncio.run(scenario())


def test_too_many_commands_behind_one_that_waits_end_the_connection() -> None:
    journal = ManualJournal()

    async def scenario() -> None:
        stage = Stage(journal=journal)
        stage.configure()
        stage.send("publish", topic="t", records=[{"data": 1}])
        for _ in range(limits.WEBSOCKET_COMMANDS_MAX):
            stage.send("ping")
        assert stage.close_code is None
        stage.send("ping")
        assert stage.close_code == CloseCode.POLICY_VIOLATION
        journal.sync()
        await stage.task
        assert stage.released >= 1

    asyncio.run(scenario())


def test_a_key_without_the_scope_is_refused_by_command() -> None:
    stage = Stage(Key(b"1", Scope.READ, ("",)))
    (frame,) = stage.ask("publish", request_id="p", topic="t", records=[{"data": 1}])
    assert (frame["op"], frame["code"], frame["detail"]) == ("error", "forbidden", {"scope": "write"})
    assert stage.engine.find_topic("t") is None


def test_topics_are_counted_once_for_each_connection() -> None:
    stage = Stage(topics_max=2)
    for name in ("a", "b", "c"):
        stage.configure(name)
    stage.ask("subscribe", topics={"a": {}, "b": {}})
    assert stage.ask("subscribe", topic="c")[0]["op"] == "error"
    assert stage.ask("subscribe", topic="a")[0]["op"] == "subscribed"
    stage.engine.delete_topic("b")
    assert [frame["op"] for frame in stage.frames()] == ["topic_deleted"]
    assert stage.ask("subscribe", topic="c")[0]["op"] == "subscribed"


# Deliveries


def test_pacing_is_told() -> None:
    stage = Stage()
    stage.configure(priority=-1)
    stage.ask("subscribe", topic="t")
    stage.hub.defer(True)
    (frame,) = stage.frames()
    assert (frame["op"], frame["code"]) == ("error", "throttled")
    assert frame["detail"] == {"topics": ["t"], "retry_after_ms": limits.PACED_RETRY_AFTER_MS}


def test_deliveries_wait_for_room_and_come_in_one_piece() -> None:
    stage = Stage()
    stage.configure()
    stage.ask("subscribe", topic="t")
    stage.channel.writable = False
    for _ in range(5):
        stage.write()
        stage.settle()
    assert stage.frames() == []
    stage.channel.writable = True
    stage.connection.drained()
    (frame,) = stage.frames()
    assert (frame["op"], frame["from_seq"], frame["to_seq"]) == ("record", 0, 5)


def test_a_client_that_does_not_read_its_deliveries_is_let_go() -> None:
    stage = Stage()
    stage.configure()
    stage.ask("subscribe", topic="t")
    stage.channel.writable = False
    stage.write()
    stage.settle()
    for wait_ms in (15_000, limits.SLOW_CONSUMER_TIMEOUT_MS - 15_001):
        stage.loop.pass_time(wait_ms)
        stage.connection.received(Frame(Opcode.PONG, b"").serialize(mask=True))  # silent it is not
        assert not stage.channel.closed
    stage.loop.pass_time(limits.WEBSOCKET_PING_MS)
    assert stage.channel.closed
    assert stage.close_code == CloseCode.TRY_AGAIN_LATER
    assert stage.released == 1


def test_a_client_that_does_not_read_its_answers_is_let_go() -> None:
    stage = Stage()
    stage.channel.writable = False
    answer_bytes = len(b'\x81\x7e..{"op":"pong","request_id":""}') + 900
    for _ in range(limits.WEBSOCKET_UNREAD_BYTES_MAX // answer_bytes + 2):
        if not stage.channel.closed:
            stage.send("ping", request_id="x" * 900)
    assert stage.channel.closed
    assert stage.released == 1
    assert sum(map(len, stage.channel.writes)) <= limits.WEBSOCKET_UNREAD_BYTES_MAX + 2 * answer_bytes


def test_a_delivery_larger_than_the_bound_on_answers_is_sent() -> None:
    stage = Stage()
    stage.configure()
    stage.ask("subscribe", topic="t", max_batch_bytes=limits.BATCH_BYTES_MAX)
    write = stage.channel.write

    def fills_up(data: bytes) -> None:
        write(data)
        stage.channel.writable = len(data) < limits.STREAM_BUFFER_HIGH_BYTES

    stage.channel.write = fills_up  # type: ignore[method-assign]
    stage.write(count=limits.WEBSOCKET_UNREAD_BYTES_MAX // 1_000_000 + 2, data="x" * 1_000_000)
    stage.settle()
    assert not stage.channel.closed
    assert stage.channel.writes[-1].startswith(b"\x81\x7f")


def test_a_client_that_reads_now_and_then_is_kept() -> None:
    stage = Stage()
    for _ in range(20):
        stage.channel.writable = False
        for _ in range(600):
            stage.send("ping", request_id="x" * 900)
        stage.channel.writable = True
        stage.connection.drained()
    assert not stage.channel.closed


# Pings


def test_a_silent_client_is_pinged_and_an_answer_keeps_it() -> None:
    stage = Stage()
    for _ in range(10):
        stage.loop.pass_time(limits.WEBSOCKET_PING_MS)
        assert [event.opcode for event in stage.events()] == [Opcode.PING]
        stage.connection.received(Frame(Opcode.PONG, b"").serialize(mask=True))
        stage.loop.pass_time(limits.WEBSOCKET_PING_MS)
        assert stage.close_code is None
    assert not stage.channel.closed


def test_a_client_that_answers_no_ping_is_let_go() -> None:
    stage = Stage()
    stage.loop.pass_time(3 * limits.WEBSOCKET_PING_MS)
    assert stage.close_code == CloseCode.GOING_AWAY
    assert stage.channel.closed
    assert stage.released == 1


@pytest.mark.parametrize("step_ms", [-86_400_000, 86_400_000])
def test_a_wall_clock_that_is_set_lets_nobody_go(step_ms: int) -> None:
    stage = Stage()
    stage.clock.set_wall(stage.clock.now_ms() + step_ms)
    stage.loop.pass_time(limits.WEBSOCKET_PING_MS)
    assert [event.opcode for event in stage.events()] == [Opcode.PING]
    assert not stage.channel.closed
    stage.loop.pass_time(2 * limits.WEBSOCKET_PING_MS)
    assert stage.channel.closed


def test_a_ping_of_the_client_is_answered_at_once() -> None:
    stage = Stage()
    stage.client.send_ping(b"now")
    stage.flush()
    ((opcode, data),) = [(event.opcode, event.data) for event in stage.events()]
    assert (opcode, data) == (Opcode.PONG, b"now")


# Ends


def test_a_lost_connection_leaves_nothing_behind() -> None:
    stage = Stage()
    stage.configure()
    stage.ask("subscribe", topic="t")
    stage.connection.closed()
    stage.connection.closed()
    stage.write()
    stage.loop.pass_time(limits.WEBSOCKET_PING_MS)
    assert stage.channel.take() == b""
    assert stage.hub.ready_depth == 0


def test_a_close_is_answered_with_the_same_code() -> None:
    stage = Stage()
    stage.client.send_close(4001, "enough")
    stage.flush()
    assert stage.close_code == 4001
    assert (stage.channel.closed, stage.released) == (True, 1)


def test_the_server_says_that_it_stops() -> None:
    stage = Stage()
    stage.connection.end_with(ShuttingDown("the server is shutting down"))
    error, close = stage.events()
    assert json.loads(bytes(error.data))["code"] == "shutting_down"
    assert (close.opcode, stage.close_code) == (Opcode.CLOSE, CloseCode.GOING_AWAY)
    assert stage.channel.closed


def test_the_server_says_that_the_key_is_gone() -> None:
    stage = Stage()
    stage.connection.end_with(Unauthorized.revoked())
    error, close = stage.events()
    assert json.loads(bytes(error.data))["code"] == "unauthorized"
    assert (close.opcode, stage.close_code) == (Opcode.CLOSE, CloseCode.POLICY_VIOLATION)
    assert stage.channel.closed


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([Frame(Opcode.BINARY, b"x" * (MESSAGE_BYTES_MAX + 1))], CloseCode.MESSAGE_TOO_BIG),
        ([Frame(Opcode.BINARY, b"x" * 600, fin=False), Frame(Opcode.CONT, b"x" * 600)], CloseCode.MESSAGE_TOO_BIG),
        ([Frame(Opcode.BINARY, b"{", fin=False), Frame(Opcode.TEXT, b"}")], CloseCode.PROTOCOL_ERROR),
        ([Frame(Opcode.TEXT, b"x" * (MESSAGE_BYTES_MAX + 1))], CloseCode.MESSAGE_TOO_BIG),
        ([Frame(Opcode.TEXT, b"x" * 600, fin=False), Frame(Opcode.CONT, b"x" * 600)], CloseCode.MESSAGE_TOO_BIG),
        ([Frame(Opcode.TEXT, b"\xff")], CloseCode.INVALID_DATA),
        ([Frame(Opcode.TEXT, b"\xc3", fin=False), Frame(Opcode.CONT, b"(")], CloseCode.INVALID_DATA),
        ([Frame(Opcode.CONT, b"{}")], CloseCode.PROTOCOL_ERROR),
        ([Frame(Opcode.TEXT, b"{", fin=False), Frame(Opcode.TEXT, b"}")], CloseCode.PROTOCOL_ERROR),
    ],
)
def test_what_breaks_the_rules_ends_the_connection(frames: list[Frame], code: int) -> None:
    stage = Stage()
    for frame in frames:
        if not stage.channel.closed:
            stage.connection.received(frame.serialize(mask=True))
    assert stage.close_code == code
    assert (stage.channel.closed, stage.released) == (True, 1)


def test_what_follows_a_message_that_ends_the_connection_is_not_carried_out() -> None:
    stage = Stage()
    publish = json.dumps({"op": "publish", "topic": "t", "records": [{"data": 1}]}).encode()
    frames = [Frame(Opcode.TEXT, b"\xff"), Frame(Opcode.TEXT, publish)]
    stage.connection.received(b"".join(frame.serialize(mask=True) for frame in frames))
    assert stage.close_code == CloseCode.INVALID_DATA
    assert stage.engine.find_topic("t") is None


@pytest.mark.parametrize(
    "binary",
    [
        [Frame(Opcode.BINARY, b'{"op":"ping"}')],
        [Frame(Opcode.BINARY, b"")],
        [Frame(Opcode.BINARY, b"\xff\xfe")],
        [Frame(Opcode.BINARY, b'{"op":', fin=False), Frame(Opcode.CONT, b'"ping"}')],
        [
            Frame(Opcode.BINARY, b"", fin=False),
            Frame(Opcode.CONT, b'{"op":"ping"}', fin=False),
            Frame(Opcode.PING, b""),
            Frame(Opcode.CONT, b""),
        ],
    ],
)
def test_a_binary_message_is_told_once_and_the_connection_goes_on(binary: list[Frame]) -> None:
    stage = Stage()
    after = Frame(Opcode.TEXT, b'{"op":"ping","request_id":"p"}')
    for frame in (*binary, after):
        stage.connection.received(frame.serialize(mask=True))
    events = [event for event in stage.events() if event.opcode is Opcode.TEXT]
    error, pong = (json.loads(bytes(event.data)) for event in events)
    assert (error["op"], error["code"]) == ("error", "invalid_request")
    assert "text" in error["message"]
    assert pong == {"op": "pong", "request_id": "p"}
    assert stage.close_code is None


def test_a_character_may_be_cut_in_two_by_fragments() -> None:
    stage = Stage()
    message = '{"op":"ping","request_id":"é"}'.encode()
    cut = message.index(b"\xc3") + 1
    stage.connection.received(
        Frame(Opcode.TEXT, message[:cut], fin=False).serialize(mask=True)
        + Frame(Opcode.CONT, message[cut:]).serialize(mask=True)
    )
    assert stage.frames() == [{"op": "pong", "request_id": "é"}]


# The handshake

HEADERS = {b"sec-websocket-version": b"13", b"sec-websocket-key": b"dGhlIHNhbXBsZSBub25jZQ=="}


def handshake(headers: dict[bytes, bytes], *, offers_upgrade: bool = True) -> str:
    request = Request(b"GET", b"/v0/ws", b"", headers)
    request.offers_upgrade = offers_upgrade
    return check_handshake(request)


def test_a_handshake_gives_the_key() -> None:
    assert handshake(HEADERS) == "dGhlIHNhbXBsZSBub25jZQ=="


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"sec-websocket-version": b"13"},
        {**HEADERS, b"sec-websocket-version": b"8"},
        {**HEADERS, b"sec-websocket-key": b"c2hvcnQ="},
        {**HEADERS, b"sec-websocket-key": b"\xff"},
    ],
)
def test_a_bad_handshake_is_refused(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(InvalidRequest):
        handshake(headers)


def test_a_handshake_that_offers_no_upgrade_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        handshake(HEADERS, offers_upgrade=False)


def test_a_topic_that_cannot_be_read_is_told_once_and_ends_the_connection() -> None:
    stage = Stage()
    topic = stage.configure()
    stage.write(count=6)
    block = make_unreadable(topic.log, stage.loop)
    stage.send("subscribe", topic="t", from_seq=0)
    stage.settle()
    _, told, closing = stage.events()
    frame = json.loads(bytes(told.data))
    assert closing.opcode is Opcode.CLOSE
    assert (frame["op"], frame["code"], frame["detail"]) == ("error", "storage_failed", {"topics": ["t"]})
    assert (stage.channel.closed, stage.close_code, block.fetches) == (True, CloseCode.INTERNAL_ERROR, 1)
