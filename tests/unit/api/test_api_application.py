"""From a request to its answer, over a small route table with handlers that do as they are told."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any

import pytest

from topics.api.application import ApiApplication
from topics.api.auth import KeyStore, Scope, parse_hashed_keys, parse_keys
from topics.api.call import Call
from topics.api.http import Channel, Request, Response, Streaming, Waiting
from topics.api.readiness import Phase, Readiness
from topics.api.routing import Answer, Route, RouteTable
from topics.api.sites import Sites
from topics.engine.journal import Busy, Commit
from topics.errors import InvalidRequest, PayloadTooLarge, StorageFailed, TopicFull, TopicsError
from topics.storage.errors import CorruptFile
from topics.testing.fake_clock import FakeClock

KEYS = "reader:read,writer:write:w:,both:rw"


class Application:
    """An application whose one interesting route answers with `behave`."""

    def __init__(
        self,
        keys: str = "",
        *,
        probe_auth: bool = False,
        inflight_per_key_max: int = 0,
        origins: tuple[str, ...] = (),
    ) -> None:
        self.clock = FakeClock()
        self.keys = KeyStore(parse_keys(keys))
        self.readiness = Readiness()
        self.readiness.phase = Phase.READY
        self.behave: Callable[[Call], Answer] = lambda call: Response(200, b'"ok"')
        self.calls: list[Call] = []
        routes = [
            Route("GET", "/v0/topics", Scope.READ, "", {}, handler=self._handle),
            Route("POST", "/v0/topics/{topic}", Scope.WRITE, "", {}, handler=self._handle),
            Route("GET", "/v0/health", Scope.NONE, "", {}, probe=True, always=True, handler=self._handle),
            Route("GET", "/v0/metrics", Scope.READ, "", {}, always=True, handler=self._handle),
            Route("GET", "/v0/openapi.json", Scope.NONE, "", {}, open=True, always=True, handler=self._handle),
        ]
        self.under_test = ApiApplication(
            RouteTable(routes),
            self.keys,
            Sites(origins, ("127.0.0.1",), has_keys=bool(keys)),
            self.readiness,
            self.clock,
            inflight_per_key_max=inflight_per_key_max,
            probe_auth=probe_auth,
        )

    def _handle(self, call: Call) -> Answer:
        self.calls.append(call)
        return self.behave(call)

    def request(self, target: str, key: str | None = None) -> Request:
        method, path = target.split(" ")
        path, _, query = path.partition("?")
        headers = {} if key is None else {b"authorization": b"Bearer " + key.encode()}
        request = Request(method.encode(), path.encode(), query.encode(), headers)
        request.received_ns = self.clock.monotonic_ns()
        request.request_id = "request-7"
        return request

    def answer(self, target: str, key: str | None = None) -> Answer:
        return self.under_test.handle(self.request(target, key))

    def response(self, target: str, key: str | None = None) -> Response:
        answer = self.answer(target, key)
        assert isinstance(answer, Response)
        return answer

    def status(self, target: str, key: str | None = None) -> int:
        return self.response(target, key).status


def error_of(response: Response) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(response.body)["error"]
    return error


@pytest.fixture
def app() -> Application:
    return Application()


def test_a_handler_gets_the_name_and_answers(app: Application) -> None:
    assert app.response("POST /v0/topics/a%3Ab").body == b'"ok"'
    assert app.calls[0].name == "a:b"


@pytest.mark.parametrize(("target", "status"), [("GET /nowhere", 404), ("PUT /v0/topics", 405)])
def test_a_wrong_path_or_method_reaches_no_handler(app: Application, target: str, status: int) -> None:
    assert app.status(target) == status
    assert app.calls == []


def test_an_error_of_a_handler_becomes_its_envelope_with_the_time(app: Application) -> None:
    def full(call: Call) -> Response:
        app.clock.advance(3)
        raise TopicFull("full", topic="t")

    app.behave = full
    response = app.response("POST /v0/topics/t")
    assert response.status == 422
    assert json.loads(response.body)["performance"] == {"server_total_ms": 3.0}


def test_a_bug_becomes_a_500_that_tells_only_the_request_id(app: Application, caplog: pytest.LogCaptureFixture) -> None:
    def buggy(call: Call) -> Response:
        raise ZeroDivisionError("secret internals")

    app.behave = buggy
    response = app.response("GET /v0/topics?token=hidden", "not-logged")
    assert response.status == 500
    assert b"secret internals" not in response.body
    assert error_of(response)["detail"] == {"request_id": "request-7"}
    assert "request-7" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert "hidden" not in caplog.text
    assert "not-logged" not in caplog.text


def test_a_damaged_file_becomes_a_500_and_the_log_says_which(
    app: Application, caplog: pytest.LogCaptureFixture
) -> None:
    def damaged(call: Call) -> Response:
        raise CorruptFile("/data/topics/1/segment", 7, "a checksum that does not match")

    app.behave = damaged
    response = app.response("GET /v0/topics")
    assert (response.status, error_of(response)["code"]) == (500, "internal")
    assert "/data/topics/1/segment is corrupt at byte 7" in caplog.text


def test_an_error_the_protocol_found_is_rendered_and_logged(app: Application, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    response = app.under_test.refuse(PayloadTooLarge("too large"), "request-8")
    assert (response.status, error_of(response)["code"]) == (413, "payload_too_large")
    assert "request-8" in caplog.text


def test_refusals_are_counted_by_status_and_each_is_told_once(
    app: Application, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    app.under_test.refuse(PayloadTooLarge("too large"), "request-8")
    app.response("GET /v0/nothing")
    app.response("GET /v0/nothing")
    app.response("GET /v0/topics")
    assert app.under_test.take_refusals() == {413: 1, 404: 2}
    assert app.under_test.take_refusals() == {}
    assert caplog.text == ""


# Readiness


@pytest.mark.parametrize(("phase", "code"), [(Phase.RECOVERING, "not_ready"), (Phase.STOPPING, "shutting_down")])
def test_a_server_that_does_not_serve_answers_only_its_probes(app: Application, phase: Phase, code: str) -> None:
    app.readiness.phase = phase
    response = app.response("GET /v0/topics")
    assert (response.status, error_of(response)["code"]) == (503, code)
    assert (b"retry-after", b"1") in response.headers
    for target in ("GET /v0/health", "GET /v0/metrics", "GET /v0/openapi.json"):
        assert app.status(target) == 200


# Keys


@pytest.mark.parametrize(
    ("target", "key", "status"),
    [
        ("GET /v0/topics", None, 401),
        ("GET /v0/topics", "unknown", 401),
        ("GET /v0/topics", "reader", 200),
        ("GET /v0/topics", "writer", 403),
        ("POST /v0/topics/w:1", "writer", 200),
        ("POST /v0/topics/x", "writer", 403),
        ("POST /v0/topics/x", "both", 200),
        ("POST /v0/topics/x", "reader", 403),
        ("GET /v0/metrics", None, 401),
        ("GET /v0/metrics", "writer", 403),
        ("GET /v0/metrics", "reader", 200),
        ("GET /v0/health", None, 200),
        ("GET /v0/openapi.json", None, 200),
    ],
)
def test_keys_open_what_their_scopes_and_prefixes_say(target: str, key: str | None, status: int) -> None:
    app = Application(KEYS)
    assert app.status(target, key) == status
    assert len(app.calls) == (status == 200)


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("unknown", 401), ("writer", 200)])
def test_probes_can_be_made_to_need_a_key_of_any_scope(key: str | None, status: int) -> None:
    app = Application(KEYS, probe_auth=True)
    assert app.status("GET /v0/health", key) == status


def test_without_keys_the_header_is_ignored(app: Application) -> None:
    assert app.status("GET /v0/topics", "whatever") == 200


def test_a_large_body_is_refused_before_it_is_read() -> None:
    app = Application(KEYS)
    refusal = app.under_test.admit(app.request("POST /v0/topics/x", "reader"))
    assert refusal is not None
    assert refusal.status == 403
    assert app.under_test.admit(app.request("POST /v0/topics/x", "both")) is None
    assert app.calls == []


# Answers that wait


async def later(gate: asyncio.Event, response: Response | Exception) -> Response:
    await gate.wait()
    if isinstance(response, Exception):
        raise response
    return response


def waiting(answer: Answer) -> Coroutine[Any, Any, Response]:
    assert not isinstance(answer, Response | Waiting)
    return answer


@pytest.mark.parametrize(
    ("outcome", "status"), [(Response(200, b""), 200), (InvalidRequest("m"), 400), (ZeroDivisionError(), 500)]
)
def test_an_answer_that_waits_ends_like_any_other(app: Application, outcome: Response | Exception, status: int) -> None:
    async def story() -> int:
        gate = asyncio.Event()
        app.behave = lambda call: later(gate, outcome)
        task = asyncio.ensure_future(waiting(app.answer("GET /v0/topics")))
        await asyncio.sleep(0)
        gate.set()
        return (await task).status

    assert asyncio.run(story()) == status


@pytest.mark.parametrize(
    "ending", [Response(200, b""), InvalidRequest("m"), CorruptFile("/data/x", 0, "damaged")], ids=["ok", "400", "500"]
)
def test_a_handler_that_is_busy_is_asked_again_as_often_as_it_takes(
    app: Application, ending: Response | Exception
) -> None:
    commits = [Commit(), Commit()]

    def busy_twice(call: Call) -> Response:
        if len(app.calls) <= len(commits):
            raise Busy(commits[len(app.calls) - 1])
        if isinstance(ending, Exception):
            raise ending
        return ending

    async def story() -> int:
        app.behave = busy_twice
        task = asyncio.ensure_future(waiting(app.answer("GET /v0/topics")))
        for asked, commit in enumerate(commits, 1):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert (len(app.calls), task.done()) == (asked, False)
            commit.resolve(None, 0)
        return (await task).status

    status = {Response: 200, InvalidRequest: 400, CorruptFile: 500}[type(ending)]
    assert asyncio.run(story()) == status


def test_what_a_handler_waited_for_and_failed_is_its_answer(app: Application) -> None:
    async def story() -> Response:
        commit = Commit()

        def busy(call: Call) -> Response:
            raise Busy(commit)

        app.behave = busy
        answer = waiting(app.answer("GET /v0/topics"))
        commit.resolve(StorageFailed("the disk is gone"), 0)
        return await answer

    response = asyncio.run(story())
    assert (response.status, error_of(response)["code"], len(app.calls)) == (503, "storage_failed", 1)


@pytest.mark.parametrize("ending", ["answer", "error", "cancel"])
def test_a_waiting_request_holds_a_slot_of_its_key_until_it_ends(ending: str) -> None:
    app = Application(KEYS, inflight_per_key_max=1)

    async def story() -> None:
        gate = asyncio.Event()
        app.behave = lambda call: later(gate, InvalidRequest("m") if ending == "error" else Response(200, b""))
        task = asyncio.ensure_future(waiting(app.answer("GET /v0/topics", "reader")))
        await asyncio.sleep(0)
        refused = app.response("GET /v0/topics", "reader")
        assert (refused.status, error_of(refused)["detail"]["limit"]) == (429, "max_inflight_per_key")
        app.behave = lambda call: Response(200, b"")
        assert app.status("GET /v0/topics", "both") == 200
        if ending == "cancel":
            task.cancel()
        gate.set()
        await asyncio.gather(task, return_exceptions=True)
        assert app.status("GET /v0/topics", "reader") == 200

    asyncio.run(story())


def test_requests_of_one_moment_cannot_take_more_slots_than_there_are() -> None:
    """Two requests that arrive before either has begun to wait: the second meets a slot that is taken."""
    app = Application(KEYS, inflight_per_key_max=1)

    async def story() -> None:
        gate = asyncio.Event()
        app.behave = lambda call: later(gate, Response(200, b""))
        first = waiting(app.answer("GET /v0/topics", "reader"))
        second = app.answer("GET /v0/topics", "reader")
        gate.set()
        await first
        if not isinstance(second, Response):
            await second
        assert isinstance(second, Response)
        assert second.status == 429

    asyncio.run(story())


# The log


def test_every_request_is_logged_at_debug_without_query_and_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="topics.api")
    app = Application(KEYS)
    app.response("GET /v0/topics?prefix=hidden", "reader")
    app.response("GET /v0/topics", "unknown-token")
    assert "request-7 GET /v0/topics 200" in caplog.text
    assert "request-7 GET /v0/topics 401" in caplog.text
    for secret in ("hidden", "reader", "unknown-token"):
        assert secret not in caplog.text


class _Owner:
    """The owner of a stream that is never opened."""

    ended = 0

    def opened(self, channel: Channel) -> None: ...
    def received(self, data: bytes) -> None: ...
    def drained(self) -> None: ...
    def end_with(self, error: TopicsError) -> None: ...

    def closed(self) -> None:
        self.ended += 1


def test_a_stream_that_was_waited_for_is_not_opened_for_a_key_that_is_gone() -> None:
    keys = "a" * 64
    app = Application("fixed")
    app.keys.replace(parse_hashed_keys(f"sha256:{keys}\nsha256:{sha256(b'reader').hexdigest()}", "keys"))
    owner = _Owner()

    async def story() -> Response:
        gate = asyncio.Event()
        app.behave = lambda call: later(gate, Streaming(200, b"", owner=owner))
        task = asyncio.ensure_future(waiting(app.answer("GET /v0/topics", "reader")))
        await asyncio.sleep(0)
        app.keys.replace(parse_hashed_keys(f"sha256:{keys}", "keys"))
        gate.set()
        return await task

    response = asyncio.run(story())
    assert (response.status, error_of(response)["code"], owner.ended) == (401, "unauthorized", 1)
