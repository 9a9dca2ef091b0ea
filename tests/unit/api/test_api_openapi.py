"""The OpenAPI document says what the route table says."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.http import Response
from topics.api.openapi import openapi_document
from topics.api.operation_texts import TAGS, TEXTS
from topics.api.routes import more_routes, route_table
from topics.api.routing import Route, RouteTable
from topics.server.assembly import assemble
from topics.server.settings import read_settings
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.version import VERSION
from topics.wire.responses import ErrorResponse


class AnyHandlers:
    """Stands for every handler: the document never calls one."""

    def __getattr__(self, name: str) -> Any:
        def handler(call: Call) -> Response:
            raise AssertionError("the document must not call handlers")

        return handler


@pytest.fixture(scope="module")
def table() -> RouteTable:
    handlers: Any = AnyHandlers()
    return route_table(handlers, handlers, handlers, lambda: more_routes(*[handlers] * 7))


@pytest.fixture(scope="module")
def document(table: RouteTable) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(openapi_document(table))
    return decoded


def in_the_api(table: RouteTable) -> list[Route]:
    """All but the pages for people."""
    return [route for route in table.routes if not route.page]


def schemas(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["schemas"]
    return found


def test_it_names_version_and_licence(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    assert (document["info"]["version"], document["info"]["license"]["name"]) == (VERSION, "MIT")


def test_it_has_exactly_the_routes_of_the_table(table: RouteTable, document: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in in_the_api(table)}


def test_every_operation_lists_its_statuses(table: RouteTable, document: dict[str, Any]) -> None:
    for route in in_the_api(table):
        responses = document["paths"][route.path][route.method.lower()]["responses"]
        expected = {*route.replies, *route.errors, 401, 403, 429, 500, 503}
        assert {int(status) for status in responses} == expected
        assert all(response["description"] for response in responses.values())


def test_every_error_has_the_envelope(table: RouteTable, document: dict[str, Any]) -> None:
    for route in in_the_api(table):
        for status, response in document["paths"][route.path][route.method.lower()]["responses"].items():
            if int(status) >= 400:
                assert response["content"] == {
                    "application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}
                }


@pytest.mark.parametrize(
    ("status", "header"), [("401", "WWW-Authenticate"), ("429", "Retry-After"), ("503", "Retry-After")]
)
def test_headers_of_errors_are_described(document: dict[str, Any], status: str, header: str) -> None:
    responses = document["paths"]["/v0/topics"]["get"]["responses"]
    assert list(responses[status]["headers"]) == [header]
    assert "headers" not in responses["400"]


def test_bodies_are_required_where_there_is_no_default(document: dict[str, Any]) -> None:
    required = {
        (method, path): operation["requestBody"]["required"]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if "requestBody" in operation
    }
    assert required == {
        ("put", "/v0/topics/{topic}"): False,
        ("put", "/v0/topics/{topic}/cursors/{cursor}"): True,
        ("put", "/v0/routers/{router}"): True,
        ("post", "/v0/topics/{topic}"): True,
        ("post", "/v0/topics/{topic}/diff"): False,
        ("post", "/v0/topics/{topic}/delete"): True,
        ("post", "/v0/topics/{topic}/delete/preview"): True,
        ("post", "/v0/topics/{topic}/claim"): True,
        ("post", "/v0/topics/{topic}/ack"): True,
        ("post", "/v0/topics/{topic}/nack"): True,
        ("post", "/v0/topics/{topic}/extend"): True,
        ("post", "/v0/topics/{topic}/redrive"): False,
        ("post", "/v0/watch"): True,
    }


def test_parameters_say_where_they_stand(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/v0/topics/{topic}"]["post"]["parameters"]
    assert {(parameter["name"], parameter["in"]) for parameter in parameters} == {
        ("topic", "path"),
        ("return_seqs", "query"),
        ("Idempotency-Key", "header"),
    }


def test_only_open_routes_need_no_key(table: RouteTable, document: dict[str, Any]) -> None:
    for route in in_the_api(table):
        operation = document["paths"][route.path][route.method.lower()]
        assert (operation.get("security") == []) == route.open
        assert not (route.open and route.scope is not Scope.NONE)


def test_payloads_are_described_though_they_are_bytes_here(document: dict[str, Any]) -> None:
    record = schemas(document)["NewRecord"]
    assert record["required"] == ["data"]
    assert record["properties"]["meta"]["anyOf"][0] == {"type": "object", "maxProperties": 64}


def test_rules_beyond_types_are_described(document: dict[str, Any]) -> None:
    write = schemas(document)["WriteRequest"]["properties"]
    assert write["records"]["minItems"] == 1
    key = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": r"^[^\x00]+$"}
    assert write["idempotency_key"]["anyOf"][0] == key
    assert schemas(document)["Producer"]["properties"]["name"].items() >= key.items()
    delete = schemas(document)["DeleteRecordsRequest"]
    assert delete["anyOf"] == [{"required": ["before_seq"]}, {"required": ["match"]}]
    operators = [
        form["prefixItems"][1]["const"] for form in delete["properties"]["match"]["anyOf"] if "prefixItems" in form
    ]
    assert operators == ["Eq", "Glob"]


def test_a_schema_has_the_fields_of_its_struct(document: dict[str, Any]) -> None:
    names = {field.encode_name for field in msgspec.structs.fields(ErrorResponse)}
    assert set(schemas(document)["ErrorResponse"]["properties"]) == names | {"warnings"}


def test_unknown_fields_are_allowed_and_warned_of(document: dict[str, Any]) -> None:
    assert all("additionalProperties" not in schemas(document)[name] for name in ("WriteRequest", "NewRecord"))
    assert schemas(document)["WriteResponse"]["properties"]["warnings"]["items"] == {"type": "string"}
    assert "warnings" not in schemas(document)["TopicPage"]["properties"]


def _run(call: Callable[[], None]) -> None:
    call()


def test_the_real_server_has_the_same_document(document: dict[str, Any]) -> None:
    server = assemble(read_settings({}), FakeClock(), FakeDisk(), _run, _run, lambda delay_s, call: None)
    routes = server.application._routes
    assert json.loads(openapi_document(routes)) == document


def test_every_operation_has_a_tag_a_description_and_no_text_is_left_over(table: RouteTable) -> None:
    routes = {(route.method, route.path) for route in table.routes if not route.page}
    assert routes == TEXTS.keys()
    assert {text.tag for text in TEXTS.values()} == TAGS.keys()


def test_every_body_refuses_unknown_fields_so_that_a_typo_is_noticed(table: RouteTable) -> None:
    """Refused, it is decoded again without, and the reply warns."""
    bodies = [route.body for route in table.routes if route.body is not None]
    assert len(bodies) > 10
    assert [body for body in bodies if not body.__struct_config__.forbid_unknown_fields] == []
