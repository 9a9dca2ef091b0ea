"""A WebSocket: deliveries, pings, ends, the handshake."""

import json

import pytest
from websocket_stage import MESSAGE_BYTES_MAX, Stage
from websockets.frames import CloseCode, Frame, Opcode

from doubles.unreadable_block import make_unreadable
from topics import limits
from topics.api.handlers.websocket import check_handshake
from topics.api.http import Request
from topics.errors import InvalidRequest, ShuttingDown, Unauthorized

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
        stage.channel.writable = len(data) < limits.STREAM_TURN_BYTES_MAX

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
