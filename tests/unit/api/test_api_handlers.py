"""The handlers behind the route table, called through the assembled application without a socket."""

import asyncio
import gzip
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from topics import limits
from topics.api.http import Request, Response, Waiting
from topics.api.readiness import Phase
from topics.api.routing import Answer
from topics.delivery.export_format import ArrowStream
from topics.server.assembly import assemble
from topics.server.settings import read_settings
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.version import VERSION


class Served:
    """The whole server but its sockets and threads, on a disk in memory."""

    def __init__(self, **environment: str) -> None:
        self.clock = FakeClock()
        self.disk = FakeDisk()
        settings = read_settings({"TOPICS_DATA_DIR": "/data", "TOPICS_WAL_SHARDS": "1", **environment})
        self.server = assemble(settings, self.clock, self.disk, self._run, self.at_turn_end, self._call_later)
        self.server.store._wal_file_bytes = 1 << 16  # a disk in memory has no room to waste
        self.server.store.acquire()
        self.server.store.open(self.server.store.replay(lambda _: None))
        self.wal = self.server.store._journal.shards[0]
        self.server.readiness.phase = Phase.READY

    @staticmethod
    def _run(call: Callable[[], None]) -> None:
        call()

    def at_turn_end(self, call: Callable[[], None]) -> None:
        """Every call is a turn of its own."""
        call()

    @staticmethod
    def _call_later(delay_s: float, call: Callable[[], None]) -> object:
        return asyncio.get_running_loop().call_later(delay_s, call)

    def handle(self, target: str, body: object = None, **headers: str) -> Answer:
        return self.server.application.handle(self.request(target, body, **headers))

    async def finished(self, answer: Answer) -> Response:
        """The answer, with the disk doing its work meanwhile."""
        if isinstance(answer, Response):
            return answer
        task = asyncio.ensure_future(answer)
        while not task.done():
            self.wal.step()
            await asyncio.sleep(0)
        return task.result()

    def request(self, target: str, body: object = None, **headers: str) -> Request:
        method, path = target.split(" ", 1)
        path, _, query = path.partition("?")
        sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        request = Request(method.encode(), path.encode(), query.encode(), sent)
        if body is not None:
            request.headers.setdefault(b"content-type", b"application/json")
            request.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        request.received_ns = self.clock.monotonic_ns()
        return request

    def reply(self, target: str, body: object = None, **headers: str) -> Response:
        answer = self.handle(target, body, **headers)
        return answer if isinstance(answer, Response) else asyncio.run(self.finished(answer))

    def call(self, target: str, body: object = None, **headers: str) -> tuple[int, dict[str, Any]]:
        reply = self.reply(target, body, **headers)
        return reply.status, json.loads(reply.body)

    def ok(self, target: str, body: object = None, **headers: str) -> dict[str, Any]:
        status, decoded = self.call(target, body, **headers)
        assert status in {200, 201}, decoded
        return decoded

    def error(self, target: str, body: object = None, **headers: str) -> tuple[int, str]:
        status, decoded = self.call(target, body, **headers)
        return status, decoded["error"]["code"]

    def write(self, *data: object, topic: str = "t", **fields: object) -> dict[str, Any]:
        return self.ok(f"POST /v0/topics/{topic}", {"records": [{"data": one} for one in data], **fields})


@pytest.fixture
def at() -> Served:
    return Served()


# Topics


def test_a_put_says_whether_it_created(at: Served) -> None:
    assert at.call("PUT /v0/topics/t")[0] == 201
    status, reply = at.call("PUT /v0/topics/t", {"ttl_ms": 5})
    assert (status, reply["created"], reply["config"]["ttl_ms"]) == (200, False, 5)


def test_the_state_has_watermarks_and_times(at: Served) -> None:
    at.write(1, 2, 3)
    at.ok("POST /v0/topics/t/delete", {"before_seq": 2})
    state = at.ok("GET /v0/topics/t?touch=false")
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"], state["count"]) == (3, 2, 4, 2)
    assert (state["last_write_ts"], state["last_read_ts"]) == (at.clock.now_ms(), None)
    assert "queue" not in state


def test_a_state_read_makes_the_topic_hot_unless_told_otherwise(at: Served) -> None:
    at.write(1)
    assert at.ok("GET /v0/topics/t?touch=false")["effective_priority"] == 0
    assert at.ok("GET /v0/topics/t")["effective_priority"] == 500


def test_a_queue_has_counters(at: Served) -> None:
    at.ok("PUT /v0/topics/t", {"type": "queue"})
    at.write(1, 2)
    assert at.ok("GET /v0/topics/t")["queue"] == {"ready": 2, "in_flight": 0, "dead_lettered": 0}


def test_listing_goes_page_by_page(at: Served) -> None:
    for name in ("a", "b", "c"):
        at.write(1, topic=name)
    first = at.ok("GET /v0/topics?page_size=2")
    second = at.ok(f"GET /v0/topics?page_size=2&cursor={first['next_cursor']}")
    assert [topic["topic"] for topic in first["topics"] + second["topics"]] == ["a", "b", "c"]
    assert "next_cursor" not in second


@pytest.mark.parametrize(
    ("query", "names"),
    [("", ["x:1", "x:2", "y"]), ("?prefix=x:", ["x:1", "x:2"]), ("?prefix=x:2", ["x:2"]), ("?prefix=z", [])],
)
def test_a_key_lists_only_what_its_prefixes_allow(query: str, names: list[str]) -> None:
    at = Served(TOPICS_API_KEYS="all,some:read:x:|y")
    for name in ("x:1", "x:2", "y", "z"):
        at.ok(f"PUT /v0/topics/{name}", authorization="Bearer all")
    listed = at.ok(f"GET /v0/topics{query}", authorization="Bearer some")["topics"]
    assert [topic["topic"] for topic in listed] == names


def test_deleting_a_topic_says_whether_there_was_one(at: Served) -> None:
    at.write(1)
    assert at.error("DELETE /v0/topics/t?if_empty=true") == (409, "topic_not_empty")
    assert at.ok("DELETE /v0/topics/t")["deleted"] is True
    assert at.ok("DELETE /v0/topics/t")["deleted"] is False


# Records


def test_a_write_answers_with_its_seqs(at: Served) -> None:
    assert at.call("POST /v0/topics/t", {"records": [{"data": 1}]})[0] == 201
    reply = at.write(2, 3)
    assert (reply["first_seq"], reply["last_seq"], reply["seqs"], reply["count"]) == (2, 3, [2, 3], 2)
    assert "seqs" not in at.ok("POST /v0/topics/t?return_seqs=false", {"records": [{"data": 1}]})


def test_the_key_in_the_body_wins_over_the_header(at: Served) -> None:
    body = {"records": [{"data": 1}], "idempotency_key": "in-body"}
    at.ok("POST /v0/topics/t", body, idempotency_key="in-header")
    assert at.ok("POST /v0/topics/t", body)["deduped"] is True
    again = at.ok("POST /v0/topics/t", {"records": [{"data": 1}]}, idempotency_key="in-header")
    assert again["deduped"] is False


def test_an_inline_configuration_that_would_create_needs_the_admin_scope() -> None:
    at = Served(TOPICS_API_KEYS="writer:write,admin")
    body = {"records": [{"data": 1}], "config": {"ttl_ms": 5}}
    assert at.error("POST /v0/topics/t", body, authorization="Bearer writer") == (403, "forbidden")
    assert at.call("POST /v0/topics/t", body, authorization="Bearer admin")[0] == 201
    assert at.call("POST /v0/topics/t", body, authorization="Bearer writer")[0] == 200


@pytest.mark.parametrize(("limit", "count"), [(0, 256), (5, 5), (1000, 1000), (2**64 - 1, 1000)])
def test_a_limit_is_clamped_and_zero_is_the_default(at: Served, limit: int, count: int) -> None:
    at.write(*range(1001))
    assert len(at.ok("POST /v0/topics/t/diff", {"limit": limit})["records"]) == count


def test_a_node_filter_is_bounded(at: Served) -> None:
    at.write(1, node="me")
    assert at.ok("POST /v0/topics/t/diff", {"node": ["me"] * 1024})["records"] == []
    assert at.error("POST /v0/topics/t/diff", {"node": ["n"] * 1025}) == (400, "invalid_request")
    assert at.error("POST /v0/topics/t/diff", {"node": "n" * 129}) == (400, "invalid_request")


def test_a_diff_that_finds_something_answers_at_once(at: Served) -> None:
    at.write(1)
    reply = at.ok("POST /v0/topics/t/diff", {"wait_ms": 30_000})
    assert (len(reply["records"]), reply["caught_up"], reply["lag"]) == (1, True, 0)


def test_a_diff_that_finds_nothing_waits_for_an_append(at: Served) -> None:
    at.ok("PUT /v0/topics/t")

    async def story() -> Response:
        answer = at.handle("POST /v0/topics/t/diff", {"wait_ms": 30_000})
        assert not isinstance(answer, Response)
        task = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        at.write(1)
        return await task

    assert json.loads(asyncio.run(story()).body)["next_from_seq"] == 1


def test_a_delete_needs_something_to_go_by(at: Served) -> None:
    at.write(1)
    assert at.error("POST /v0/topics/t/delete", {}) == (400, "invalid_request")
    assert at.error("POST /v0/topics/t/delete") == (400, "invalid_request")
    reply = at.ok("POST /v0/topics/t/delete", {"before_seq": 99})
    assert (reply["deleted"], reply["earliest_seq"], reply["count"], reply["bytes"]) == (1, 2, 0, 0)


# Durability


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("PUT /v0/topics/new", {}),
        ("PUT /v0/topics/t", {"ttl_ms": 1}),
        ("POST /v0/topics/t", {"records": [{"data": 1}]}),
        ("POST /v0/topics/new", {"records": [{"data": 1}]}),
        ("POST /v0/topics/t/delete", {"before_seq": 2}),
        ("DELETE /v0/topics/t", None),
    ],
)
def test_what_must_be_durable_is_answered_only_then(at: Served, target: str, body: object) -> None:
    at.ok("PUT /v0/topics/t", {"durability": "fsync"})
    at.write(0)
    before = at.ok("GET /v0/topics/t"), at.ok("GET /v0/topics")["topics"]

    async def story() -> Response:
        answer = at.handle(target, body)
        assert not isinstance(answer, Response)
        task = asyncio.ensure_future(answer)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        assert (at.ok("GET /v0/topics/t"), at.ok("GET /v0/topics")["topics"]) == before
        at.wal.step()
        return await task

    assert asyncio.run(story()).status in {200, 201}
    assert (at.call("GET /v0/topics/t")[1], at.ok("GET /v0/topics")["topics"]) != before


def test_a_write_of_an_existing_disk_topic_waits_for_nothing(at: Served) -> None:
    at.ok("PUT /v0/topics/t")
    assert isinstance(at.handle("POST /v0/topics/t", {"records": [{"data": 1}]}), Response)


def test_who_asks_about_a_topic_that_is_being_made_waits_for_it(at: Served) -> None:
    async def story() -> list[Response]:
        answers = [at.handle("PUT /v0/topics/t", {"ttl_ms": 7}), at.handle("PUT /v0/topics/t")]
        assert not any(isinstance(answer, Response) for answer in answers)
        return await asyncio.gather(*map(at.finished, answers))

    first, second = asyncio.run(story())
    assert (first.status, second.status) == (201, 200)
    assert json.loads(second.body)["config"]["ttl_ms"] == 7


def test_the_time_a_sync_took_is_told(at: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    at.ok("PUT /v0/topics/t", {"durability": "fsync"})
    at.ok("PUT /v0/topics/quick")
    sync = at.wal.writer.sync

    def slow_sync() -> None:
        at.clock.advance(3)
        sync()

    monkeypatch.setattr(at.wal.writer, "sync", slow_sync)
    for reply in (at.write(1), at.ok("POST /v0/topics/t/delete", {"before_seq": 2})):
        assert reply["performance"]["fsync_ms"] == 3.0
    assert at.write(1, topic="quick")["performance"]["fsync_ms"] == 0.0


def test_a_disk_that_fails_takes_no_more_writes_and_goes_on_being_read(at: Served) -> None:
    at.ok("PUT /v0/topics/t", {"durability": "fsync"})
    at.write(1)
    at.disk.fail_at(at.disk.mutating_calls + 1)
    for _ in range(2):
        assert at.error("POST /v0/topics/t", {"records": [{"data": 2}]}) == (503, "storage_failed")
    assert at.error("POST /v0/topics/new", {"records": [{"data": 2}]}) == (503, "storage_failed")
    assert at.error("DELETE /v0/topics/t") == (503, "storage_failed")
    assert len(at.ok("POST /v0/topics/t/diff")["records"]) == 1


def behind(at: Served) -> None:
    """From here on one write is as much as may wait for the disk."""
    at.ok("PUT /v0/topics/t")
    at.wal.step()
    at.wal._queue_writes_max = 1
    at.write(1)


def test_a_write_is_refused_while_the_disk_does_not_keep_up(at: Served) -> None:
    behind(at)
    reply = at.reply("POST /v0/topics/t", {"records": [{"data": 2}]})
    assert (reply.status, dict(reply.headers)[b"retry-after"]) == (429, b"1")
    at.wal.step()
    assert at.write(3)["first_seq"] == 2


def test_a_writer_that_would_rather_wait_is_answered_once_the_disk_has_caught_up(at: Served) -> None:
    behind(at)
    reply = at.write(2, disable_backpressure=True)
    assert reply["first_seq"] == 2


def test_a_writer_that_would_rather_wait_does_not_wait_for_a_cap() -> None:
    at = Served(TOPICS_MAX_TOPICS="1")
    at.write(1)
    body = {"records": [{"data": 1}], "disable_backpressure": True}
    assert isinstance(at.handle("POST /v0/topics/other", body), Response)
    assert at.error("POST /v0/topics/other", body) == (429, "throttled")


def test_a_writer_that_would_rather_wait_is_refused_after_all_in_the_end(at: Served) -> None:
    behind(at)

    async def story() -> Response:
        answer = at.handle("POST /v0/topics/t", {"records": [{"data": 2}], "disable_backpressure": True})
        assert not isinstance(answer, Response)
        task = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        at.clock.advance(limits.BACKPRESSURE_WAIT_MS_MAX + 1)
        return await task

    assert asyncio.run(story()).status == 429


# Bodies


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8", "application/json;x"])
def test_json_may_be_named_in_any_case_with_any_parameters(at: Served, content_type: str) -> None:
    assert at.call("PUT /v0/topics/t", {}, content_type=content_type)[0] == 201


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/jsonx", "application/x-www-form-urlencoded"])
def test_any_other_content_type_is_refused(at: Served, content_type: str) -> None:
    assert at.error("PUT /v0/topics/t", {}, content_type=content_type) == (415, "unsupported_media_type")


def test_a_body_without_a_content_type_is_refused(at: Served) -> None:
    request = at.request("PUT /v0/topics/t")
    request.body = gzip.compress(b"{}")
    answer = at.server.application.handle(request)
    assert isinstance(answer, Response)
    assert answer.status == 415


def test_a_missing_body_is_all_defaults_where_there_are_any(at: Served) -> None:
    at.write(1)
    assert len(at.ok("POST /v0/topics/t/diff")["records"]) == 1
    assert at.error("POST /v0/topics/t") == (400, "invalid_request")


# Probes


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_health_tells_version_and_uptime(at: Served, path: str) -> None:
    at.clock.advance(1234)
    assert at.ok(f"GET {path}") == {"status": "ok", "version": VERSION, "uptime_ms": 1234}


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_ready_tells_the_number_of_topics_or_why_not(at: Served, path: str) -> None:
    at.write(1)
    server_id = at.server.store.server_id
    assert at.ok(f"GET {path}") == {
        "status": "ready",
        "wal_replay_complete": True,
        "topics": 1,
        "server_id": server_id,
        "degraded": False,
    }
    at.server.readiness.phase = Phase.RECOVERING
    assert at.error(f"GET {path}") == (503, "not_ready")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", b"text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", b"text/plain; version=0.0.4; charset=utf-8"),
        ("application/json", b"application/json"),
        ("Application/JSON;q=0.9, */*", b"application/json"),
        ("text/plain, application/json", b"text/plain; version=0.0.4; charset=utf-8"),
    ],
)
def test_metrics_are_text_unless_json_is_asked_for(at: Served, accept: str, content_type: bytes) -> None:
    assert at.reply("GET /v0/metrics", accept=accept).content_type == content_type


# Exports

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def without_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a server that was installed without the extra `[spark]`."""
    monkeypatch.setattr(ArrowStream, "is_there", staticmethod(lambda: False))


@pytest.mark.usefixtures("without_arrow")
def test_a_server_without_arrow_says_how_to_get_it(at: Served) -> None:
    at.write(1)
    status, reply = at.call("GET /v0/topics/t/export", accept=ARROW)
    assert (status, reply["error"]["code"]) == (406, "not_acceptable")
    assert 'pip install "topics-engine[spark]"' in reply["error"]["message"]


@pytest.mark.usefixtures("without_arrow")
@pytest.mark.parametrize("accept", [f"{ARROW}, */*", f"{ARROW}, application/x-ndjson;q=0.1", "*/*"])
def test_a_server_without_arrow_gives_lines_to_those_who_take_them(at: Served, accept: str) -> None:
    at.write(1)
    assert at.reply("GET /v0/topics/t/export", accept=accept).content_type == b"application/x-ndjson"


def test_a_refused_export_holds_no_slot() -> None:
    at = Served(TOPICS_MAX_SSE_CONNECTIONS="1")
    at.write(1)
    for _ in range(3):
        assert at.error("GET /v0/topics/t/export", accept="text/html") == (406, "not_acceptable")
    assert at.reply("GET /v0/topics/t/export").status == 200


# Work that is cut into turns


def driven(answer: Coroutine[Any, Any, Response], look: Callable[[], None]) -> Response:
    """The reply of a handler that takes several turns; `look` is called before each."""
    while True:
        look()
        try:
            answer.send(None)
        except StopIteration as end:
            reply = end.value
            assert isinstance(reply, Response)
            return reply


def test_a_large_write_is_decoded_and_appended_in_turns_of_their_own() -> None:
    at = Served()
    at.call("PUT /v0/topics/t", {"durability": "memory"})
    records = [{"data": "x" * 500_000}] * (limits.WRITE_TURN_BYTES_MAX // 500_000 + 1)
    request = at.request("POST /v0/topics/t", {"records": records})
    answer = at.server.application.handle(request)
    assert not isinstance(answer, Response | Waiting)
    topic = at.server.engine.topic("t")
    heads: list[int] = []
    reply = driven(answer, lambda: heads.append(topic.assigned_seq))
    assert set(heads) == {0}
    assert len(heads) > len(request.body) // limits.DECODE_SLICE_BYTES
    assert reply.status == 200
    assert topic.log.head_seq == len(records)


def test_a_large_write_that_is_no_write_is_refused_as_a_small_one_is() -> None:
    at = Served()
    at.call("PUT /v0/topics/t", {})
    large = b'{"records":[{"data":"' + b"x" * limits.WRITE_TURN_BYTES_MAX + b'"}],"idempotency_key":5}'
    status, reply = at.call("POST /v0/topics/t", large)
    assert (status, reply["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("others", [0, 3])
def test_a_large_write_gets_its_seqs_when_it_is_appended(others: int) -> None:
    at = Served()
    at.call("PUT /v0/topics/t", {"durability": "memory"})
    records = [{"data": "x" * 500_000, "meta": {"k": 1}}] * (limits.WRITE_TURN_BYTES_MAX // 500_000 + 1)
    request = at.request("POST /v0/topics/t", {"records": records, "idempotency_key": "k"})
    answer = at.server.application.handle(request)
    assert not isinstance(answer, Response | Waiting)
    turns = 0

    def meanwhile() -> None:
        nonlocal turns
        turns += 1
        if turns <= others:
            at.write(1)

    reply = json.loads(driven(answer, meanwhile).body)
    assert (reply["first_seq"], reply["count"]) == (others + 1, len(records))
    seqs: list[int] = []
    while len(seqs) < others + len(records):
        _, page = at.call("POST /v0/topics/t/diff", {"from_seq": len(seqs)})
        seqs += [record["$seq"] for record in page["records"]]
        assert page["records"][-1].get("meta") in (None, {"k": 1})
    assert seqs == [*range(1, others + len(records) + 1)]


def test_a_large_write_of_too_many_records_is_refused_before_all_of_it_is_decoded() -> None:
    at = Served(TOPICS_MAX_BATCH_RECORDS="1000")
    at.call("PUT /v0/topics/t", {})
    request = at.request("POST /v0/topics/t", {"records": [{"data": 1}] * (limits.WRITE_TURN_BYTES_MAX // 8)})
    answer = at.server.application.handle(request)
    assert not isinstance(answer, Response | Waiting)
    turns: list[None] = []
    reply = driven(answer, lambda: turns.append(None))
    # Its UTF-8 is looked at, and one slice of its records.
    assert len(turns) == len(request.body) // limits.DECODE_SLICE_BYTES + 2
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, "batch_too_large")


def test_a_large_delete_by_tag_lets_others_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DELETE_SLICE_RECORDS", 10)
    at = Served(TOPICS_SEGMENT_MAX_EVENTS="10")
    at.call("PUT /v0/topics/t", {"durability": "memory"})
    for _ in range(10):
        at.call("POST /v0/topics/t", {"records": [{"data": 1, "tag": "a"}] * 10})

    async def story() -> tuple[Response, list[int]]:
        seen: list[int] = []
        topic = at.server.engine.topic("t")

        async def look() -> None:
            while topic.log.count:
                seen.append(topic.log.count)
                await asyncio.sleep(0)

        watching = asyncio.ensure_future(look())
        reply = await at.finished(at.handle("POST /v0/topics/t/delete", {"match": "a"}))
        await watching
        return reply, seen

    reply, seen = asyncio.run(story())
    assert json.loads(reply.body)["deleted"] == 100
    assert set(seen) == {100}  # all or nothing
    assert len(seen) > 8


def test_writes_of_many_records_are_slowed_down_before_they_have_to_be_refused(at: Served) -> None:
    def pause_ms(*data: object) -> float:
        pause: float = at.write(*data)["performance"]["throttle_wait_ms"]
        return pause

    state, budget = at.server.engine.state, at.server.settings.unsealed_bytes_max
    assert pause_ms(1, 2) == 0
    state.unsealed_bytes = int(0.5 * budget)  # of which a part is set aside for what is not a record
    little = pause_ms(3, 4)
    state.unsealed_bytes = int(0.6 * budget)
    assert 0 < little < pause_ms(5, 6) <= limits.UNSEALED_PAUSE_MS_MAX
    assert pause_ms(7) == 0
