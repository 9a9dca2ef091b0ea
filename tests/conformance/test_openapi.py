"""GET /v0/openapi.json describes every route."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.client import Api, success

ROUTES = [
    ("PUT", "/v0/topics/{}"),
    ("GET", "/v0/topics/{}"),
    ("GET", "/v0/topics"),
    ("DELETE", "/v0/topics/{}"),
    ("POST", "/v0/topics/{}"),
    ("POST", "/v0/topics/{}/diff"),
    ("POST", "/v0/topics/{}/delete"),
    ("GET", "/v0/health"),
    ("GET", "/v0/ready"),
    ("GET", "/v0/metrics"),
]


@pytest.fixture(scope="module")
def document(api: Api) -> dict[str, Any]:
    return success(api.get("/v0/openapi.json"))


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Every described operation by method and path, with the names of path parameters left out."""
    return {
        (method.upper(), re.sub(r"\{[^}]*\}", "{}", path)): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in {"get", "put", "post", "delete"}
    }


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_the_document_says_what_it_is(api: Api, document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.")
    assert document["info"]["title"]
    assert document["info"]["version"] == success(api.get("/v0/health"))["version"]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_is_described(document: dict[str, Any], method: str, path: str) -> None:
    operation = operations(document)[method, path]
    assert "200" in operation["responses"]
    assert operation["summary"]


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if route[0] in {"PUT", "POST"}])
def test_every_body_is_described(document: dict[str, Any], method: str, path: str) -> None:
    assert "schema" in operations(document)[method, path]["requestBody"]["content"]["application/json"]


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if "{}" in route[1]])
def test_every_path_parameter_is_described(document: dict[str, Any], method: str, path: str) -> None:
    for template, item in document["paths"].items():
        if re.sub(r"\{[^}]*\}", "{}", template) == path:
            parameters = [*item.get("parameters", []), *item[method.lower()].get("parameters", [])]
            described = {parameter["name"] for parameter in parameters if parameter.get("in") == "path"}
            assert described == set(re.findall(r"\{([^}]*)\}", template))


def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for operation in operations(document).values()]
    assert len(names) == len(set(names))


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for reference in references(document):
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert isinstance(place, dict), reference
