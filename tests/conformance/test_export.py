"""Extension: the export of a range, as lines of JSON and as an Arrow stream. Both say the same."""

import json
import socket
from typing import Any

import pyarrow as pa
import pytest

from conformance.client import Topic, assert_error, eventually, to_json
from conformance.conftest import StartServer
from conformance.sse import open_connections

LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"

Exported = tuple[list[dict[str, Any]], dict[str, Any]]
"""The records, and what the export ended with."""


def as_lines(topic: Topic, query: str = "") -> Exported:
    reply = topic.api.get(f"{topic.path}/export{query}", headers={"Accept": LINES})
    assert (reply.status, reply.media_type) == (200, LINES)
    *records, last = [json.loads(line) for line in reply.body.splitlines()]
    return records, last["$end"]


def as_arrow(topic: Topic, query: str = "") -> Exported:
    """What the Arrow stream says, in the words of the other one."""
    reply = topic.api.get(f"{topic.path}/export{query}", headers={"Accept": ARROW})
    assert (reply.status, reply.media_type) == (200, ARROW)
    rows = pa.ipc.open_stream(pa.py_buffer(reply.body)).read_all().to_pylist()
    records = [_record(row) for row in rows if row["kind"] == "record"]
    gaps = [
        {name: row[name] for name in ("gap_from", "gap_to", "reason")} for row in rows if row["kind"] == "tombstone"
    ]
    end = rows[-1]
    assert end["kind"] == "end"
    told = {"next_from_seq": end["seq"], "tombstones": gaps}
    return records, told if end["reason"] is None else told | {"error": end["reason"]}


def _record(row: dict[str, Any]) -> dict[str, Any]:
    fields = {"$seq": row["seq"], "$ts": round(row["ts"].timestamp() * 1000), "data": json.loads(row["data"])}
    meta = None if row["meta_json"] is None else json.loads(row["meta_json"])
    assert (None if row["meta"] is None else dict(row["meta"])) == texts(meta)
    optional = {"$node": row["node"], "$tag": row["tag"], "meta": meta}
    return fields | {name: value for name, value in optional.items() if value is not None}


def texts(meta: dict[str, Any] | None) -> dict[str, str] | None:
    """As maps of texts have it: what is no string is its JSON text."""
    if meta is None:
        return None
    return {name: value if isinstance(value, str) else to_json(value).decode() for name, value in meta.items()}


def both(topic: Topic, query: str = "") -> Exported:
    lines, arrow = as_lines(topic, query), as_arrow(topic, query)
    assert lines == arrow
    return lines


def unchunked(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        whole, body = whole + body[:length], body[length + 2 :]
        if not length:
            assert body == b""
    return whole


def seqs(exported: Exported) -> list[int]:
    return [record["$seq"] for record in exported[0]]


@pytest.mark.parametrize("accept", [LINES, ARROW])
def test_an_export_says_that_it_ends_its_connection_and_a_request_behind_it_costs_no_byte(
    topic: Topic, accept: str
) -> None:
    topic.fill(50)
    whole = topic.api.get(f"{topic.path}/export", headers={"Accept": accept}).body
    with topic.api.connection() as connection:
        export = connection.head(f"GET {topic.path}/export", f"Accept: {accept}")
        connection.send(export + connection.head("GET /v0/health"))
        head, _, chunks = connection.stream.read().partition(b"\r\n\r\n")  # to the end, without a reset
    assert b"\r\nconnection: close\r\n" in head + b"\r\n"
    assert unchunked(chunks) == whole


@pytest.mark.parametrize("accept", [LINES, ARROW])
def test_a_client_that_shuts_its_sending_side_gets_the_whole_export(topic: Topic, accept: str) -> None:
    for _ in range(8):
        topic.write(*({"data": "x" * 4096} for _ in range(500)))
    whole = topic.api.get(f"{topic.path}/export", headers={"Accept": accept}).body
    with topic.api.connection() as connection:
        connection.send(connection.head(f"GET {topic.path}/export", f"Accept: {accept}"))
        connection.sock.shutdown(socket.SHUT_WR)
        _, _, chunks = connection.stream.read().partition(b"\r\n\r\n")
    assert unchunked(chunks) == whole


def test_a_number_in_meta_and_its_text_stay_apart(topic: Topic) -> None:
    metas = [{"k": 1}, {"k": "1"}, {"k": [1, {"a": None}], "l": True}, {}]
    topic.write(*({"data": 0, "meta": meta} for meta in metas))
    records, _ = both(topic)
    assert [record["meta"] for record in records] == metas


def test_every_field_of_a_record_is_exported(topic: Topic) -> None:
    topic.write({"data": {"a": [1.5, "ü"]}, "tag": "t", "node": "n", "meta": {"k": "v"}}, {"data": None})
    records, end = both(topic)
    assert records == topic.diff(include_tags=True)["records"]
    assert (records[0]["$node"], records[0]["$tag"], records[0]["meta"]) == ("n", "t", {"k": "v"})
    assert end == {"next_from_seq": 2, "tombstones": []}


def test_a_payload_with_line_breaks_is_one_line(topic: Topic) -> None:
    assert topic.api.post_bytes(topic.path, b'{"records":[{"data":{"a":\n\r\n1}}]}').status == 201
    assert as_lines(topic)[0][0]["data"] == {"a": 1}


def test_arrow_keeps_a_payload_byte_for_byte(topic: Topic) -> None:
    payload = '{"b": 1.0, "a":\n1e400}'
    topic.api.post_bytes(topic.path, b'{"records":[{"data":%b}]}' % payload.encode())
    reply = topic.api.get(f"{topic.path}/export", headers={"Accept": ARROW})
    table = pa.ipc.open_stream(pa.py_buffer(reply.body)).read_all()
    assert table.column("data")[0].as_py() == payload
    assert table.schema.metadata == {b"topic": topic.name.encode()}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [*range(1, 11)]),
        ("?from_seq=0&to_seq=0", []),
        ("?from_seq=0&to_seq=1", [1]),
        ("?from_seq=4&to_seq=6", [5, 6]),
        ("?from_seq=6&to_seq=4", []),
        ("?from_seq=9", [10]),
        ("?from_seq=10", []),
        ("?to_seq=18446744073709551615", [*range(1, 11)]),
    ],
)
def test_a_range_is_exclusive_at_its_start_and_inclusive_at_its_end(
    topic: Topic, query: str, expected: list[int]
) -> None:
    topic.fill(10)
    assert seqs(both(topic, query)) == expected


@pytest.mark.parametrize("query", ["?from_seq=11", "?from_seq=-1", "?from_seq=x", "?to_seq=1.0", "?to_seq="])
def test_a_bad_range_is_refused(topic: Topic, query: str) -> None:
    topic.fill(10)
    assert_error(topic.api.get(f"{topic.path}/export{query}"), 400, "invalid_request", query[1:].partition("=")[0])


def test_an_unknown_topic_is_refused(topic: Topic) -> None:
    assert_error(topic.api.get(f"{topic.path}/export"), 404, "topic_not_found")


def test_deleted_records_are_silent_and_lost_ones_are_told(topic: Topic) -> None:
    topic.configure(cap_records=6)
    topic.write(*({"data": number, "tag": f"k{number % 2}"} for number in range(10)))
    topic.delete_records(match="k1")
    records, end = both(topic)
    assert [record["$seq"] for record in records] == [5, 7, 9]
    assert end == {"next_from_seq": 10, "tombstones": [{"gap_from": 1, "gap_to": 4, "reason": "cap"}]}
    assert both(topic, "?from_seq=1&to_seq=3") == (
        [],
        {"next_from_seq": 3, "tombstones": [{"gap_from": 2, "gap_to": 3, "reason": "cap"}]},
    )


def test_a_large_export_is_whole(topic: Topic) -> None:
    for _ in range(3):
        topic.fill(10_000)
    assert seqs(both(topic)) == list(range(1, 30_001))


def test_an_arrow_batch_has_a_bounded_number_of_records(topic: Topic) -> None:
    topic.fill(10_000)
    reply = topic.api.get(f"{topic.path}/export", headers={"Accept": ARROW})
    batches = list(pa.ipc.open_stream(pa.py_buffer(reply.body)))
    assert max(batch.num_rows for batch in batches) <= 1000


@pytest.mark.parametrize("accept", ["*/*", "application/*", f"{ARROW};q=0.5, */*", f"{ARROW}, {LINES}"])
def test_lines_are_what_those_get_who_do_not_ask_for_arrow(topic: Topic, accept: str) -> None:
    topic.fill(1)
    reply = topic.api.get(f"{topic.path}/export", headers={"Accept": accept})
    assert reply.media_type == LINES
    assert reply.headers["Vary"] == "accept"


def test_a_client_that_takes_neither_is_refused(topic: Topic) -> None:
    topic.fill(1)
    reply = topic.api.get(f"{topic.path}/export", headers={"Accept": "text/html"})
    assert_error(reply, 406, "not_acceptable", LINES)


def test_a_head_request_has_no_body(topic: Topic) -> None:
    topic.fill(1)
    reply = topic.api.request("HEAD", f"{topic.path}/export", headers={"Accept": ARROW})
    assert (reply.status, reply.media_type, reply.body) == (200, ARROW, b"")


def test_a_key_needs_the_scope_and_the_name(server: StartServer) -> None:
    api = server(TOPICS_API_KEYS="all,writer:write,other:read:b.,own:read:a.").api
    Topic(api.with_key("all"), "a.t").fill(1)
    path = "/v0/topics/a.t/export"
    assert api.with_key("own").get(path).status == 200
    assert_error(api.get(path), 401, "unauthorized")
    assert_error(api.with_key("writer").get(path), 403, "forbidden")
    assert_error(api.with_key("other").get(path), 403, "forbidden")


def test_a_slow_reader_gets_everything_and_delays_nobody(server: StartServer) -> None:
    api = server().api
    topic = Topic(api, "large")
    for _ in range(4):
        topic.write(*({"data": "x" * 4000} for _ in range(1000)))
    with api.connection() as slow:
        slow.send(slow.head("GET /v0/topics/large/export"))
        while slow.stream.readline() != b"\r\n":
            pass
        eventually(lambda: open_connections(api) == 1)
        # It reads nothing more, and the others go on.
        for _ in range(50):
            Topic(api, "other").fill(1)
        assert open_connections(api) == 1
        body = slow.stream.read()
    assert body.count(b'"$seq"') == 4000
    assert b'{"$end":{"next_from_seq":4000,"tombstones":[]}}' in body
    eventually(lambda: open_connections(api) == 0)


def test_a_client_that_leaves_frees_its_slot(server: StartServer) -> None:
    api = server(TOPICS_MAX_SSE_CONNECTIONS="1").api
    topic = Topic(api, "large")
    for _ in range(8):
        topic.write(*({"data": "x" * 4000} for _ in range(1000)))
    with api.connection() as leaving:
        leaving.send(leaving.head("GET /v0/topics/large/export"))
        leaving.stream.readline()
        detail = assert_error(api.get("/v0/topics/large/export"), 429, "throttled")
        assert detail["limit"] == "max_sse_connections"
    eventually(lambda: api.get("/v0/topics/large/export").status == 200)


@pytest.mark.parametrize("accept", [LINES, ARROW])
def test_a_topic_deleted_meanwhile_is_told_in_the_end(server: StartServer, accept: str) -> None:
    api = server().api
    topic = Topic(api, "large")
    for _ in range(8):
        topic.write(*({"data": "x" * 4000} for _ in range(1000)))
    with api.connection() as reader:
        reader.send(reader.head("GET /v0/topics/large/export", f"Accept: {accept}"))
        while reader.stream.readline() != b"\r\n":
            pass
        topic.remove()
        body = reader.stream.read()
    assert b"the topic was deleted" in body
    assert body.count(b"x" * 4000) < 8000
