"""Commands over a WebSocket and their answers."""

import asyncio
import json

import pytest
from websocket_stage import MESSAGE_BYTES_MAX, Stage
from websockets.frames import CloseCode, Frame, Opcode

from doubles.fake_channel import FakeChannel
from doubles.manual_journal import ManualJournal
from topics import limits
from topics.api.auth import ANYBODY, Key, Scope
from topics.api.websocket import WebSocketConnection
from topics.errors import StorageFailed, Throttled


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


@pytest.fixture
def _small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITE_TURN_BYTES_MAX", 300)
    monkeypatch.setattr(limits, "DECODE_SLICE_BYTES", 100)
    monkeypatch.setattr(limits, "ADMIT_SLICE_RECORDS", 5)


@pytest.mark.usefixtures("_small_turns")
def test_a_large_publish_lets_others_in_between_and_holds_up_those_behind_it() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.configure(durability="memory")
        records = [{"data": number} for number in range(40)]
        assert stage.ask("publish", request_id="large", topic="t", records=records) == []
        assert not stage.channel.reading
        assert stage.ask("ping", request_id="behind") == []
        turns = 0
        while not stage.task.done():
            turns += 1
            if turns == 5:
                stage.write()
            await asyncio.sleep(0)
        assert turns > 10
        ack, pong = stage.frames()
        assert (ack["op"], ack["request_id"], ack["seqs"]) == ("ack", "large", [*range(2, 42)])
        assert (pong["op"], pong["request_id"]) == ("pong", "behind")
        assert stage.channel.reading

    asyncio.run(scenario())


@pytest.mark.usefixtures("_small_turns")
@pytest.mark.parametrize(
    ("wrong", "code"), [({"data": 1, "tag": 5}, "invalid_request"), ({"data": 1, "node": "n" * 200}, "invalid_request")]
)
def test_a_large_publish_that_is_wrong_is_refused_and_changes_nothing(wrong: dict[str, object], code: str) -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.configure(durability="memory")
        stage.send("publish", request_id="r", topic="t", records=[{"data": "x" * 10}] * 20 + [wrong])
        await stage.task
        (refused,) = stage.frames()
        assert (refused["op"], refused["request_id"], refused["code"]) == ("error", "r", code)
        assert stage.engine.topic("t").log.head_seq == 0

    asyncio.run(scenario())


@pytest.mark.usefixtures("_small_turns")
def test_a_large_publish_whose_client_is_gone_is_not_carried_out() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.configure(durability="memory")
        stage.send("publish", topic="t", records=[{"data": number} for number in range(40)])
        stage.connection.closed()
        await stage.task
        assert stage.engine.topic("t").log.head_seq == 0

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
