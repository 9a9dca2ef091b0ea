"""A schema fuzzer drives every operation of the OpenAPI document against a real server.

It sends what the document allows and what it forbids. Whatever is sent: no 5xx, only documented statuses and
content types, bodies as described, and what the document forbids is refused. That everything it allows is
accepted is not asked for: JSON Schema cannot say "an integer written without a point" or "a cursor of ours".

An event stream has no end. It begins only for a session that exists, and the fuzzer never guesses one.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from conformance.process import ServerProcess
from topics import limits
from topics.api.http import Request, Response
from topics.model.names import is_topic_name
from topics.server.assembly import assemble
from topics.server.settings import read_settings
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
TOPICS = 3
WAIT_MS_MAX = 5


def _run(call: Callable[[], None]) -> None:
    call()


def document_of_this_code() -> dict[str, Any]:
    """The document without a server, because tests are made from it before any runs."""
    server = assemble(read_settings({}), FakeClock(), FakeDisk(), _run, _run, lambda delay_s, call: None)
    answer = server.application.handle(Request(b"GET", b"/v0/openapi.json", b"", {}))
    assert isinstance(answer, Response)
    document: dict[str, Any] = json.loads(answer.body)
    return document


DOCUMENT = document_of_this_code()
# Not this one: what it agrees to is no HTTP any more.
WEBSOCKET = "/v0/ws"
schema = schemathesis.openapi.from_dict(
    DOCUMENT, config=schemathesis.Config.from_dict({"generation": {"mode": "all"}})
).exclude(path=WEBSOCKET)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("server"), {})
    yield process
    process.stop()


def test_the_server_gives_out_the_document_the_fuzzer_uses(server: ServerProcess) -> None:
    assert server.api.get("/v0/openapi.json").json == DOCUMENT


@schema.parametrize()
@settings(max_examples=30, deadline=None)
def test_every_answer_is_documented(case: schemathesis.Case[Any], server: ServerProcess) -> None:
    meet_in_few_topics(case)
    wait_shortly(case)
    case.call_and_validate(base_url=f"http://{server.api.host}:{server.api.port}", checks=CHECKS, timeout=10)


def meet_in_few_topics(case: schemathesis.Case[Any]) -> None:
    """Random names never meet; with a few of them, one call finds what another has left."""
    name = (case.path_parameters or {}).get("topic")
    if isinstance(name, str) and is_topic_name(name):
        case.path_parameters["topic"] = f"fuzz-{len(name) % TOPICS}"
    body = case.body
    watched = body.get("topics") if isinstance(body, dict) else None
    if isinstance(body, dict) and isinstance(watched, dict) and all(map(is_topic_name, watched)):
        body["topics"] = {f"fuzz-{len(name) % TOPICS}": start for name, start in watched.items()}


def wait_shortly(case: schemathesis.Case[Any]) -> None:
    """A long poll that finds nothing would wait as long as it was told."""
    body = case.body
    if isinstance(body, dict):
        wait_ms = body.get("wait_ms")
        if type(wait_ms) is int and WAIT_MS_MAX < wait_ms <= limits.U64_MAX:
            body["wait_ms"] = WAIT_MS_MAX
