"""/v0/ws: the handshake, the commands, the frames, and how a connection ends."""

import contextlib
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from conformance.client import TIMEOUT_S, Api, Reply, Topic, assert_error, eventually
from conformance.conftest import StartServer
from conformance.process import ServerProcess
from conformance.sse import open_connections, torn

NewTopic = Callable[..., Topic]

UPGRADE = [
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
]
HANDSHAKE = "".join(f"{line}\r\n" for line in ["GET /v0/ws HTTP/1.1", "Host: h", *UPGRADE, ""]).encode()


class Client:
    """Commands out, frames in. A frame that does not come fails the test."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, op: str, **command: Any) -> None:
        self.connection.send(json.dumps({"op": op, **command}))

    def frame(self) -> dict[str, Any]:
        message = self.connection.recv(TIMEOUT_S)
        assert isinstance(message, str)
        value = json.loads(message)
        assert isinstance(value, dict)
        return value

    def ask(self, op: str, **command: Any) -> dict[str, Any]:
        self.send(op, **command)
        return self.frame()

    def error(self, op: str, **command: Any) -> tuple[str, str | None]:
        """The code and request id of the error a command is answered with."""
        frame = self.ask(op, **command)
        assert frame["op"] == "error", frame
        assert isinstance(frame["message"], str)
        assert frame["message"]
        return frame["code"], frame.get("request_id")

    def subscribe(self, **command: Any) -> list[dict[str, Any]]:
        """Subscribes to one topic; the frames up to caught_up."""
        assert self.ask("subscribe", **command)["op"] == "subscribed"
        frames = [self.frame()]
        while frames[-1]["op"] != "caught_up":
            frames.append(self.frame())
        return frames

    def close_code(self) -> int:
        """The next thing that comes must be the server's close."""
        with pytest.raises(ConnectionClosed) as closed:
            self.connection.recv(TIMEOUT_S)
        assert closed.value.rcvd is not None, "the server went without a word"
        return closed.value.rcvd.code


@contextlib.contextmanager
def connected(api: Api) -> Iterator[Client]:
    headers = {} if api.key is None else {"Authorization": f"Bearer {api.key}"}
    with connect(
        f"ws://{api.host}:{api.port}/v0/ws",
        additional_headers=headers,
        open_timeout=TIMEOUT_S,
        close_timeout=TIMEOUT_S,
        max_size=None,
        proxy=None,
    ) as connection:
        yield Client(connection)


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    with connected(api) as client:
        yield client


def seqs(frame: dict[str, Any]) -> list[int]:
    assert frame["op"] == "record", frame
    return [record["$seq"] for record in frame["records"]]


def gist(frames: list[dict[str, Any]]) -> list[Any]:
    return [seqs(frame) if frame["op"] == "record" else frame["op"] for frame in frames]


# The handshake


def handshake(api: Api, *lines: str, method: str = "GET") -> Reply:
    with api.connection() as connection:
        connection.send(connection.head(f"{method} /v0/ws", *lines))
        return connection.reply(to_head=method == "HEAD")


def test_the_handshake_is_answered_with_the_key_of_the_protocol(api: Api) -> None:
    reply = handshake(api, *UPGRADE)
    assert reply.status == 101
    assert reply.headers["Upgrade"].lower() == "websocket"
    assert reply.headers["Connection"].lower() == "upgrade"
    assert reply.headers["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert reply.headers["Sec-WebSocket-Extensions"] is None


@pytest.mark.parametrize("lines", [[], ["Upgrade: h2c", "Connection: Upgrade"], ["Connection: keep-alive"]])
def test_a_plain_request_is_told_to_upgrade(api: Api, lines: list[str]) -> None:
    reply = handshake(api, *lines)
    assert_error(reply, 426, "upgrade_required")
    assert reply.headers["Upgrade"] == "websocket"


def test_head_is_told_to_upgrade(api: Api) -> None:
    assert handshake(api, method="HEAD").status == 426
    assert handshake(api, *UPGRADE, method="HEAD").status == 426


def test_only_get_opens_a_websocket(api: Api) -> None:
    assert_error(api.post("/v0/ws"), 405, "method_not_allowed")


@pytest.mark.parametrize(
    "replaced",
    [
        {"Sec-WebSocket-Key": None},
        {"Sec-WebSocket-Key": "too-short"},
        {"Sec-WebSocket-Key": "!GhlIHNhbXBsZSBub25jZQ=="},
        {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZXhY"},
        {"Sec-WebSocket-Version": None},
        {"Sec-WebSocket-Version": "12"},
        {"Sec-WebSocket-Version": "13, 8"},
        {"Connection": None},
        {"Connection": "keep-alive"},
    ],
)
def test_a_bad_handshake_is_refused(api: Api, replaced: dict[str, str | None]) -> None:
    fields = dict(line.split(": ", 1) for line in UPGRADE)
    lines = [f"{name}: {replaced.get(name, value)}" for name, value in fields.items() if replaced.get(name, value)]
    assert_error(handshake(api, *lines), 400, "invalid_request")


def test_a_connection_header_with_more_in_it_is_fine(api: Api) -> None:
    lines = [line.replace("Connection: Upgrade", "Connection: keep-alive, UPGRADE") for line in UPGRADE]
    assert handshake(api, *lines).status == 101


# Subscribing


def test_a_subscription_is_confirmed_and_then_served(client: Client, topic: Topic) -> None:
    topic.write({"data": {"a": 1}, "node": "n", "tag": "t", "meta": {"m": "1"}}, {"data": 2})
    stamps = [record["$ts"] for record in topic.diff()["records"]]
    assert client.ask("subscribe", request_id="s1", topic=topic.name) == {
        "op": "subscribed",
        "request_id": "s1",
        "topics": {topic.name: {"from_seq": 0, "head_seq": 2, "earliest_seq": 1}},
    }
    assert client.frame() == {
        "op": "record",
        "topic": topic.name,
        "records": [
            {"$seq": 1, "$ts": stamps[0], "$node": "n", "data": {"a": 1}, "meta": {"m": "1"}},
            {"$seq": 2, "$ts": stamps[1], "data": 2},
        ],
        "from_seq": 0,
        "to_seq": 2,
        "head_seq": 2,
    }
    assert client.frame() == {"op": "caught_up", "topic": topic.name, "head_seq": 2}
    topic.fill(1)
    assert seqs(client.frame()) == [3]


def test_what_has_no_request_id_is_answered_without(client: Client, topic: Topic) -> None:
    topic.configure()
    assert "request_id" not in client.ask("subscribe", topic=topic.name)


@pytest.mark.parametrize(
    ("options", "first"),
    [({"from_seq": 2}, [3, 4]), ({"tail": True}, "caught_up"), ({"tail": True, "from_seq": 1}, "caught_up")],
)
def test_a_subscription_begins_where_it_is_told(
    client: Client, topic: Topic, options: dict[str, Any], first: Any
) -> None:
    topic.fill(4)
    assert gist(client.subscribe(topic=topic.name, **options))[0] == first


def test_a_map_subscribes_to_many_topics(client: Client, new_topic: NewTopic) -> None:
    names = [new_topic() for _ in range(2)]
    for topic in names:
        topic.fill(3)
    one, two = (topic.name for topic in names)
    reply = client.ask("subscribe", request_id="m", topics={one: {"from_seq": 1}, two: {"tail": True}})
    assert {name: place["from_seq"] for name, place in reply["topics"].items()} == {one: 1, two: 3}
    frames = [client.frame() for _ in range(3)]
    assert {(frame["topic"], frame["op"]) for frame in frames} == {
        (one, "record"),
        (one, "caught_up"),
        (two, "caught_up"),
    }


def test_topic_and_map_go_together(client: Client, new_topic: NewTopic) -> None:
    one, two = new_topic(), new_topic()
    one.fill(2)
    two.fill(2)
    reply = client.ask("subscribe", topic=one.name, from_seq=1, topics={two.name: {}})
    assert {name: place["from_seq"] for name, place in reply["topics"].items()} == {one.name: 1, two.name: 0}


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, {"$seq": 1, "$node": "n", "data": [1], "meta": {"m": "v"}}),
        ({"include_tags": True}, {"$seq": 1, "$node": "n", "$tag": "t", "data": [1], "meta": {"m": "v"}}),
        ({"include_meta": False}, {"$seq": 1, "$node": "n", "data": [1]}),
        ({"include_data": False}, {"$seq": 1, "$node": "n"}),
    ],
)
def test_a_subscription_says_what_it_wants_of_a_record(
    client: Client, topic: Topic, options: dict[str, bool], shown: dict[str, Any]
) -> None:
    topic.write({"data": [1], "tag": "t", "node": "n", "meta": {"m": "v"}})
    (record,) = client.subscribe(topic=topic.name, **options)[0]["records"]
    assert isinstance(record.pop("$ts"), int)
    assert record == shown


def test_a_subscription_has_a_limit(client: Client, topic: Topic) -> None:
    topic.fill(5)
    assert gist(client.subscribe(topic=topic.name, limit=2)) == [[1, 2], [3, 4], [5], "caught_up"]


def test_a_subscription_has_bytes_of_a_frame(client: Client, topic: Topic) -> None:
    topic.write(*({"data": "x" * 1000} for _ in range(3)))
    assert gist(client.subscribe(topic=topic.name, max_batch_bytes=2500)) == [[1, 2], [3], "caught_up"]


@pytest.mark.parametrize(("node", "expected"), [("a", [2, 3]), (["a", "b"], [3])])
def test_a_subscriber_does_not_get_its_own_records(
    client: Client, topic: Topic, node: Any, expected: list[int]
) -> None:
    topic.write({"data": 1, "node": "a"}, {"data": 2, "node": "b"}, {"data": 3})
    frame = client.subscribe(topic=topic.name, node=node)[0]
    assert (seqs(frame), frame["to_seq"]) == (expected, 3)


def test_subscribing_again_begins_anew(client: Client, topic: Topic) -> None:
    topic.fill(2)
    assert gist(client.subscribe(topic=topic.name)) == [[1, 2], "caught_up"]
    assert gist(client.subscribe(topic=topic.name, from_seq=1)) == [[2], "caught_up"]
    topic.fill(1)
    assert seqs(client.frame()) == [3]
    assert client.ask("ping")["op"] == "pong"  # and not the record a second time


def test_payloads_may_have_line_breaks(client: Client, topic: Topic) -> None:
    assert topic.api.post_bytes(topic.path, b'{"records":[{"data":[1,\r\n2,\r3,\n4]}]}').status == 201
    assert client.subscribe(topic=topic.name)[0]["records"][0]["data"] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({}, "invalid_request"),
        ({"topics": {}}, "invalid_request"),
        ({"topic": "not a name"}, "invalid_request"),
        ({"topic": 5}, "invalid_request"),
        ({"topics": {"a": None}}, "invalid_request"),
        ({"topics": {"a": {"from_seq": -1}}}, "invalid_request"),
        ({"topic": "a", "from_seq": -1}, "invalid_request"),
        ({"topic": "a", "from_seq": 2**64}, "invalid_request"),
        ({"topic": "a", "tail": 1}, "invalid_request"),
        ({"topic": "a", "limit": "1"}, "invalid_request"),
        ({"topic": "a", "node": "n" * 129}, "invalid_request"),
        ({"topics": {f"absent-{number}": {} for number in range(257)}}, "invalid_request"),
        ({"topic": "absent-from-this-server"}, "topic_not_found"),
    ],
)
def test_a_subscription_is_refused_with_its_request_id(client: Client, command: dict[str, Any], code: str) -> None:
    assert client.error("subscribe", request_id="r", **command) == (code, "r")
    assert client.ask("ping")["op"] == "pong"


def test_one_unknown_topic_refuses_the_whole_map(client: Client, topic: Topic) -> None:
    topic.fill(1)
    assert client.error("subscribe", topics={topic.name: {}, "absent-from-this-server": {}})[0] == "topic_not_found"
    topic.fill(1)
    assert client.ask("ping")["op"] == "pong"  # and no record


def test_an_unknown_topic_is_named_in_the_detail(client: Client) -> None:
    frame = client.ask("subscribe", request_id="r", topic="absent-from-this-server")
    assert frame["detail"] == {"topic": "absent-from-this-server"}


# Unsubscribing


def test_what_is_unsubscribed_is_not_served(client: Client, topic: Topic) -> None:
    topic.configure()
    client.subscribe(topic=topic.name)
    assert client.ask("unsubscribe", request_id="u", topic=topic.name) == {
        "op": "unsubscribed",
        "request_id": "u",
        "topic": topic.name,
    }
    topic.fill(1)
    assert client.ask("ping", request_id="p") == {"op": "pong", "request_id": "p"}


def test_the_other_topics_stay_subscribed(client: Client, new_topic: NewTopic) -> None:
    one, two = new_topic(), new_topic()
    for topic in (one, two):
        topic.configure()
        client.subscribe(topic=topic.name)
    client.ask("unsubscribe", topic=one.name)
    one.fill(1)
    two.fill(1)
    assert client.frame()["topic"] == two.name


def test_what_was_never_subscribed_can_be_unsubscribed(client: Client) -> None:
    assert client.ask("unsubscribe", topic="absent-from-this-server")["op"] == "unsubscribed"


def test_unsubscribing_names_a_topic(client: Client) -> None:
    assert client.error("unsubscribe", request_id="u") == ("invalid_request", "u")


# Publishing


def test_a_publish_is_acknowledged_with_its_seqs(client: Client, topic: Topic) -> None:
    ack = client.ask("publish", request_id="p", topic=topic.name, records=[{"data": 1}, {"data": 2}])
    performance = ack.pop("performance")
    assert ack == {
        "op": "ack",
        "request_id": "p",
        "topic": topic.name,
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": True,
        "deduped": False,
    }
    assert performance["fsync_ms"] == 0.0
    assert client.ask("publish", topic=topic.name, records=[{"data": 3}])["created"] is False
    assert [record["data"] for record in topic.diff()["records"]] == [1, 2, 3]


def test_seqs_can_be_left_out(client: Client, topic: Topic) -> None:
    ack = client.ask("publish", topic=topic.name, records=[{"data": 1}], return_seqs=False)
    assert (ack["first_seq"], ack["last_seq"], "seqs" in ack) == (1, 1, False)


def test_records_have_all_their_fields(client: Client, topic: Topic) -> None:
    records = [{"data": None, "tag": "t", "meta": {"m": "v"}}, {"data": [1], "node": "own"}]
    client.ask("publish", topic=topic.name, node="batch", records=records)
    found = topic.diff(include_tags=True)["records"]
    assert [{name: record[name] for name in record if name != "$ts"} for record in found] == [
        {"$seq": 1, "$node": "batch", "$tag": "t", "data": None, "meta": {"m": "v"}},
        {"$seq": 2, "$node": "own", "data": [1]},
    ]


def test_a_payload_is_kept_as_it_was_sent(client: Client, topic: Topic) -> None:
    client.connection.send(f'{{"op":"publish","topic":"{topic.name}","records":[{{"data":{{"n": 1.0,\n"n":1e400}}}}]}}')
    assert client.frame()["op"] == "ack"
    assert b'"data":{"n": 1.0,\n"n":1e400}' in topic.api.post(f"{topic.path}/diff", {}).body


def test_a_publish_with_a_key_appends_once(client: Client, topic: Topic) -> None:
    first = client.ask("publish", topic=topic.name, records=[{"data": 1}], idempotency_key="k")
    again = client.ask("publish", topic=topic.name, records=[{"data": 1}], idempotency_key="k")
    assert (first["deduped"], again["deduped"], again["seqs"]) == (False, True, [1])
    assert topic.state()["head_seq"] == 1


def test_a_publish_may_configure_the_topic_it_makes(client: Client, topic: Topic) -> None:
    client.ask("publish", topic=topic.name, records=[{"data": 1}], config={"cap_records": 7})
    assert topic.state()["config"]["cap_records"] == 7


def test_a_publish_may_refuse_to_make_a_topic(client: Client, topic: Topic) -> None:
    code = client.error("publish", request_id="p", topic=topic.name, records=[{"data": 1}], create=False)
    assert code == ("topic_not_found", "p")
    assert not topic.exists()


def test_a_durable_publish_is_acknowledged_once_it_is_synced(client: Client, topic: Topic) -> None:
    topic.configure(durability="fsync")
    ack = client.ask("publish", topic=topic.name, records=[{"data": 1}])
    assert (ack["op"], ack["last_seq"], ack["head_seq"]) == ("ack", 1, 1)
    assert ack["performance"]["fsync_ms"] > 0


def test_publishes_are_appended_in_the_order_they_are_sent(client: Client, topic: Topic) -> None:
    for number in range(50):
        client.send("publish", request_id=str(number), topic=topic.name, records=[{"data": number}])
    acks = [client.frame() for _ in range(50)]
    assert [(ack["request_id"], ack["last_seq"]) for ack in acks] == [(str(seq - 1), seq) for seq in range(1, 51)]
    assert [record["data"] for record in topic.diff()["records"]] == list(range(50))


def test_backpressure_may_be_disabled(client: Client, topic: Topic) -> None:
    ack = client.ask("publish", topic=topic.name, records=[{"data": 1}], disable_backpressure=True)
    assert ack["op"] == "ack"


def test_a_publisher_may_subscribe_too(client: Client, topic: Topic) -> None:
    topic.configure()
    client.subscribe(topic=topic.name)
    client.send("publish", request_id="p", topic=topic.name, records=[{"data": 1}])
    assert {client.frame()["op"], client.frame()["op"]} == {"ack", "record"}


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({}, "invalid_request"),
        ({"records": []}, "invalid_request"),
        ({"records": [{}]}, "invalid_request"),
        ({"records": [{"data": 1, "meta": [1]}]}, "invalid_request"),
        ({"records": [{"data": 1, "tag": "t" * 257}]}, "invalid_request"),
        ({"records": [{"data": 1}], "config": {"ttl_ms": -1}}, "invalid_request"),
        ({"records": [{"data": 1}], "return_seqs": "no"}, "invalid_request"),
        ({"records": [{"data": 1}], "idempotency_key": "k" * 257}, "invalid_request"),
        ({"records": [{"data": 1}] * 10_001}, "batch_too_large"),
        ({"records": [{"data": "x" * (1 << 20)}]}, "record_too_large"),
    ],
)
def test_a_publish_is_refused_with_its_request_id(
    client: Client, topic: Topic, command: dict[str, Any], code: str
) -> None:
    assert client.error("publish", request_id="p", topic=topic.name, **command) == (code, "p")
    assert not topic.exists()
    assert client.ask("ping")["op"] == "pong"


def test_a_publish_needs_a_topic(client: Client) -> None:
    assert client.error("publish", request_id="p", records=[{"data": 1}]) == ("invalid_request", "p")


def test_a_full_topic_refuses_a_publish(client: Client, topic: Topic) -> None:
    topic.configure(cap_records=1, discard="reject")
    topic.fill(1)
    frame = client.ask("publish", request_id="p", topic=topic.name, records=[{"data": 1}])
    assert (frame["op"], frame["code"], frame["request_id"]) == ("error", "topic_full", "p")
    assert frame["detail"]["cap_records"] == 1


# Losses and ends of topics


def test_a_gap_is_a_tombstone(client: Client, topic: Topic) -> None:
    topic.configure(cap_records=3)
    topic.fill(10)
    frames = client.subscribe(topic=topic.name)
    assert frames[0] == {
        "op": "tombstone",
        "topic": topic.name,
        "reason": "cap",
        "gap_from": 1,
        "gap_to": 7,
        "earliest_seq": 8,
        "head_seq": 10,
    }
    assert gist(frames[1:]) == [[8, 9, 10], "caught_up"]


def test_what_a_cap_takes_before_it_is_pushed_is_a_tombstone(client: Client, topic: Topic) -> None:
    topic.configure(cap_records=3)
    client.subscribe(topic=topic.name)
    topic.fill(10)
    tombstone = client.frame()
    assert (tombstone["op"], tombstone["reason"], tombstone["gap_to"]) == ("tombstone", "cap", 7)
    assert seqs(client.frame()) == [8, 9, 10]


def test_a_cursor_beyond_the_head_means_the_topic_was_recreated(client: Client, topic: Topic) -> None:
    topic.fill(2)
    frames = client.subscribe(topic=topic.name, from_seq=9)
    assert (frames[0]["op"], frames[0]["reason"]) == ("tombstone", "recreated")
    assert gist(frames[1:]) == [[1, 2], "caught_up"]


def test_a_deleted_prefix_is_silent(client: Client, topic: Topic) -> None:
    topic.fill(5)
    topic.delete_records(before_seq=4)
    assert gist(client.subscribe(topic=topic.name)) == [[4, 5], "caught_up"]


def test_the_end_of_a_topic_is_told_and_ends_nothing_else(client: Client, new_topic: NewTopic) -> None:
    one, two = new_topic(), new_topic()
    for topic in (one, two):
        topic.fill(1)
        client.subscribe(topic=topic.name)
    one.remove()
    assert client.frame() == {"op": "topic_deleted", "topic": one.name, "head_seq": 1, "reason": "deleted"}
    one.fill(1)
    two.fill(1)
    assert client.frame()["topic"] == two.name
    assert gist(client.subscribe(topic=one.name)) == [[1], "caught_up"]


# Messages that are none


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "nonsense",
        "[]",
        "null",
        "7",
        "{}",
        '{"op":"dance"}',
        '{"op":7}',
        '{"op":"ping","request_id":7}',
        '{"topic":"a"}',
        "[" * 100_000,
    ],
)
def test_what_is_no_command_is_refused_and_the_connection_stays(client: Client, message: str) -> None:
    client.connection.send(message)
    frame = client.frame()
    assert (frame["op"], frame["code"]) == ("error", "invalid_request")
    assert client.ask("ping", request_id="p") == {"op": "pong", "request_id": "p"}


def test_an_unknown_command_is_refused_with_its_request_id(client: Client) -> None:
    assert client.error("dance", request_id="d") == ("invalid_request", "d")


def test_unknown_fields_are_ignored_and_told(client: Client) -> None:
    pong = {"op": "pong", "request_id": "p"}
    assert client.ask("ping", request_id="p", more=[1]) == pong | {"warnings": ["unknown field more was ignored"]}
    assert client.ask("ping", request_id="p") == pong


def test_a_binary_message_gets_an_error_and_the_connection_stays_open(client: Client) -> None:
    client.connection.send(b'{"op":"ping"}')
    error = client.frame()
    assert (error["op"], error["code"]) == ("error", "invalid_request")
    assert client.ask("ping", request_id="p") == {"op": "pong", "request_id": "p"}


def test_text_that_is_not_utf_8_ends_the_connection(client: Client) -> None:
    client.connection.send(b'{"op":"ping","request_id":"\xff"}', text=True)
    assert client.close_code() == 1007


def test_a_message_in_fragments_is_one_command(client: Client) -> None:
    client.connection.send(iter(['{"op":"pi', "", 'ng","request', '_id":"é"}']))
    assert client.frame() == {"op": "pong", "request_id": "é"}


def test_a_ping_of_the_protocol_is_answered(client: Client) -> None:
    assert client.connection.ping(b"hello").wait(TIMEOUT_S)


def test_a_ping_between_fragments_is_answered(api: Api) -> None:
    with raw_connection(api) as connection:
        connection.send(client_frame(0x01, b'{"op":') + client_frame(0x89, b"now"))
        assert server_frame(connection.stream) == (0x8A, b"now")
        connection.send(client_frame(0x80, b'"ping"}'))
        assert server_frame(connection.stream) == (0x81, b'{"op":"pong"}')


def test_the_connection_is_closed_as_the_client_asks(client: Client) -> None:
    client.connection.close(4001, "enough")
    assert client.connection.close_code == 4001


def test_a_client_that_does_not_mask_is_let_go(api: Api) -> None:
    with raw_connection(api) as connection:
        connection.send(b"\x81\x02{}")
        opcode, payload = server_frame(connection.stream)
        assert (opcode, struct.unpack("!H", payload[:2])[0]) == (0x88, 1002)
        assert connection.is_closed_by_server()


def test_a_command_right_behind_the_handshake_is_heard(api: Api) -> None:
    with api.connection() as connection:
        connection.send(connection.head("GET /v0/ws", *UPGRADE) + client_frame(0x81, b'{"op":"ping"}'))
        assert connection.reply().status == 101
        assert server_frame(connection.stream) == (0x81, b'{"op":"pong"}')


@contextlib.contextmanager
def raw_connection(api: Api) -> Iterator[Any]:
    """A connection after its handshake, for what the library would not send."""
    with api.connection() as connection:
        connection.send(connection.head("GET /v0/ws", *UPGRADE))
        assert connection.reply().status == 101
        yield connection


def client_frame(first_byte: int, payload: bytes) -> bytes:
    """A short masked frame; the mask is all zeros."""
    assert len(payload) < 126
    return bytes([first_byte, 0x80 | len(payload)]) + bytes(4) + payload


def server_frame(stream: Any) -> tuple[int, bytes]:
    """The first byte and the payload of a short frame."""
    first_byte, length = stream.read(2)
    assert length < 126
    return first_byte, stream.read(length)


@pytest.fixture(scope="module")
def small(server: StartServer) -> ServerProcess:
    """Takes short messages and few topics on a connection."""
    return server(TOPICS_MAX_BODY_BYTES="1000", TOPICS_MAX_WATCH_TOPICS="2", TOPICS_MAX_SSE_CONNECTIONS="2")


def test_a_message_of_the_largest_size_is_taken(small: ServerProcess) -> None:
    with connected(small.api) as client:
        client.connection.send('{"op":"ping"}'.ljust(1000))
        assert client.frame() == {"op": "pong"}


def test_a_message_that_is_too_large_ends_the_connection(small: ServerProcess) -> None:
    with connected(small.api) as client:
        client.connection.send("x" * 1001)
        assert client.close_code() == 1009


def test_fragments_that_are_too_large_together_end_the_connection(small: ServerProcess) -> None:
    with connected(small.api) as client:
        with contextlib.suppress(ConnectionClosed):  # it may be over before the last frame, an empty one, is sent
            client.connection.send(iter(["x" * 600, "x" * 600]))
        assert client.close_code() == 1009


def test_a_connection_has_no_more_topics_than_the_cap(small: ServerProcess) -> None:
    for name in ["a", "b", "c"]:
        Topic(small.api, name).configure()
    with connected(small.api) as client:
        client.subscribe(topic="a")
        client.subscribe(topic="b")
        assert client.error("subscribe", request_id="c", topic="c") == ("invalid_request", "c")
        client.subscribe(topic="b")  # one it has already
        client.ask("unsubscribe", topic="a")
        client.subscribe(topic="c")


# Keys


@pytest.fixture(scope="module")
def guarded(server: StartServer) -> ServerProcess:
    return server(
        TOPICS_API_KEYS="root-secret,read-secret:read,write-secret:write,maker-secret:write+admin,"
        "delete-secret:delete,tenant-secret::t42:",
        TOPICS_MAX_SSE_CONNECTIONS_PER_KEY="1",
    )


@pytest.fixture
def keyed(guarded: ServerProcess) -> Callable[[str], Api]:
    root = Topic(guarded.api.with_key("root-secret"), "a")
    root.fill(1)

    def api(name: str) -> Api:
        own = guarded.api.with_key(f"{name}-secret")
        eventually(lambda: open_connections(root.api) == 0)  # each key has one at a time
        return own

    return api


@pytest.mark.parametrize("key", [None, "wrong"])
def test_a_connection_needs_a_key(guarded: ServerProcess, key: str | None) -> None:
    with pytest.raises(InvalidStatus) as refused, connected(guarded.api.with_key(key)):
        pass
    assert refused.value.response.status_code == 401


@pytest.mark.parametrize("key", ["read", "write", "delete", "maker", "tenant"])
def test_every_key_may_connect(keyed: Callable[[str], Api], key: str) -> None:
    with connected(keyed(key)) as client:
        assert client.ask("ping")["op"] == "pong"


def test_subscribing_needs_the_read_scope(keyed: Callable[[str], Api]) -> None:
    with connected(keyed("write")) as client:
        assert client.error("subscribe", request_id="s", topic="a") == ("forbidden", "s")
    with connected(keyed("read")) as client:
        assert gist(client.subscribe(topic="a"))[-1] == "caught_up"


def test_publishing_needs_the_write_scope(keyed: Callable[[str], Api]) -> None:
    with connected(keyed("read")) as client:
        assert client.error("publish", request_id="p", topic="a", records=[{"data": 1}]) == ("forbidden", "p")
    with connected(keyed("write")) as client:
        assert client.ask("publish", topic="a", records=[{"data": 1}])["op"] == "ack"


@pytest.mark.parametrize("topic", ["a", "config-of-a-new-topic"])
def test_publishing_with_a_config_needs_the_admin_scope(keyed: Callable[[str], Api], topic: str) -> None:
    command: dict[str, Any] = {"topic": topic, "records": [{"data": 1}], "config": {"ttl_ms": 60_000}}
    with connected(keyed("write")) as client:
        assert client.error("publish", request_id="p", **command) == ("forbidden", "p")
    with connected(keyed("maker")) as client:
        assert client.ask("publish", **command)["op"] == "ack"


def test_topics_are_within_the_keys_prefixes(keyed: Callable[[str], Api]) -> None:
    with connected(keyed("tenant")) as client:
        assert client.ask("publish", topic="t42:own", records=[{"data": 1}])["op"] == "ack"
        assert gist(client.subscribe(topic="t42:own")) == [[1], "caught_up"]
        assert client.error("publish", request_id="p", topic="a", records=[{"data": 1}]) == ("forbidden", "p")
        assert client.error("subscribe", request_id="s", topic="a") == ("forbidden", "s")
        assert client.error("subscribe", request_id="m", topics={"t42:own": {}, "a": {}}) == ("forbidden", "m")
        config = {"type": "queue", "dead_letter": "elsewhere"}
        refused = client.error("publish", request_id="d", topic="t42:q", records=[{"data": 1}], config=config)
        assert refused == ("forbidden", "d")


def test_a_key_has_no_more_connections_than_its_cap(keyed: Callable[[str], Api]) -> None:
    api = keyed("read")
    with connected(api) as client:
        reply = handshake(api, *UPGRADE)
        assert assert_error(reply, 429, "throttled") == {"limit": "max_sse_connections_per_key", "max": 1}
        assert int(reply.headers["Retry-After"]) >= 1
        assert client.ask("ping")["op"] == "pong"


# Slots


def test_there_are_no_more_connections_than_the_cap(small: ServerProcess) -> None:
    with connected(small.api), connected(small.api) as client:
        reply = handshake(small.api, *UPGRADE)
        detail = assert_error(reply, 429, "throttled")
        assert detail == {"limit": "max_sse_connections", "max": 2}
        assert client.ask("ping")["op"] == "pong"
    eventually(lambda: open_connections(small.api) == 0)


def test_a_refused_handshake_keeps_no_slot(small: ServerProcess) -> None:
    eventually(lambda: open_connections(small.api) == 0)
    for lines in ([], UPGRADE[:-1], UPGRADE[:1] + UPGRADE[2:]):
        assert handshake(small.api, *lines).status in {400, 426}
    assert handshake(small.api, *UPGRADE, method="HEAD").status == 426
    assert open_connections(small.api) == 0


@pytest.mark.parametrize("message", ["close", b"binary" * 500, "x" * 2000])
def test_a_connection_that_ends_gives_its_slot_back(small: ServerProcess, message: str | bytes) -> None:
    for _ in range(3):
        with connected(small.api) as client:
            if message == "close":
                client.connection.close()
            else:
                client.connection.send(message)
        eventually(lambda: open_connections(small.api) == 0)


def test_a_connection_that_is_torn_down_gives_its_slot_back(small: ServerProcess) -> None:
    for _ in range(3):
        with torn(small.api, HANDSHAKE):
            assert open_connections(small.api) == 1
        eventually(lambda: open_connections(small.api) == 0)


# The server stops


def test_a_server_that_stops_says_so_and_goes_away(server: StartServer) -> None:
    process = server()
    with connected(process.api) as client:
        assert client.ask("ping")["op"] == "pong"
        process.stop()
        frame = client.frame()
        assert (frame["op"], frame["code"]) == ("error", "shutting_down")
        assert client.close_code() == 1001


def test_a_place_of_an_earlier_topic_is_told_by_its_epoch(client: Client, topic: Topic) -> None:
    topic.fill(3)
    first = topic.state()["epoch"]
    topic.api.delete(topic.path)
    topic.fill(5)
    client.ask("subscribe", topic=topic.name, from_seq=2, epoch=first)
    frame = client.frame()
    assert (frame["op"], frame["reason"], frame["gap_to"]) == ("tombstone", "recreated", 5)
    assert seqs(client.frame()) == [1, 2, 3, 4, 5]
