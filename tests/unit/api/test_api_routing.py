"""Finding the route of a request."""

import pytest

from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.http import Response
from topics.api.routing import Route, RouteTable, routes_of
from topics.errors import InvalidRequest, MethodNotAllowed, NotFound


def answer(call: Call) -> Response:
    return Response(200, b"{}")


def route(method: str, path: str) -> Route:
    return Route(method, path, Scope.READ, "", {}, handler=answer)


TABLE = RouteTable(
    [
        route("GET", "/v0/topics"),
        route("GET", "/v0/topics/{topic}"),
        route("PUT", "/v0/topics/{topic}"),
        route("POST", "/v0/topics/{topic}/diff"),
        route("GET", "/healthz"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "template", "name"),
    [
        (b"GET", b"/v0/topics", "/v0/topics", ""),
        (b"GET", b"/v0/topics/jobs", "/v0/topics/{topic}", "jobs"),
        (b"PUT", b"/v0/topics/jobs", "/v0/topics/{topic}", "jobs"),
        (b"POST", b"/v0/topics/jobs/diff", "/v0/topics/{topic}/diff", "jobs"),
        (b"GET", b"/v0/topics/diff", "/v0/topics/{topic}", "diff"),
        (b"GET", b"/v0/topics/%6Aobs%3A1", "/v0/topics/{topic}", "jobs:1"),
        (b"GET", b"/v0/topics/a%2Fb", "/v0/topics/{topic}", "a/b"),
        (b"GET", b"/v0/topics/%C3%A4", "/v0/topics/{topic}", "ä"),
        (b"GET", b"/v0/topics/*", "/v0/topics/{topic}", "*"),
        (b"GET", b"/healthz", "/healthz", ""),
    ],
)
def test_a_path_leads_to_its_route(method: bytes, path: bytes, template: str, name: str) -> None:
    found, found_name, _ = TABLE.find(method, path)
    assert (found.method, found.path, found_name) == (method.decode(), template, name)


@pytest.mark.parametrize(
    "path",
    [
        b"/",
        b"",
        b"*",
        b"/v0",
        b"/v0/",
        b"/v1/topics",
        b"/v0/topics/",
        b"/v0/topics/jobs/",
        b"/v0/topics//diff",
        b"/v0/topics/jobs/diff/",
        b"/v0/topics/jobs/nothing",
        b"/v0/topics/jobs/diff/more",
        b"//v0/topics",
        b"/V0/topics",
        b"/v0/other/jobs",
        b"/healthz/",
    ],
)
def test_any_other_path_leads_nowhere(path: bytes) -> None:
    with pytest.raises(NotFound):
        TABLE.find(b"GET", path)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        (b"DELETE", b"/v0/topics", ("GET", "HEAD")),
        (b"PATCH", b"/v0/topics/jobs", ("GET", "PUT", "HEAD")),
        (b"GET", b"/v0/topics/jobs/diff", ("POST",)),
        (b"get", b"/v0/topics", ("GET", "HEAD")),
        (b"HEAD", b"/v0/topics/jobs/diff", ("POST",)),
    ],
)
def test_another_method_is_told_which_are_allowed(method: bytes, path: bytes, allowed: tuple[str, ...]) -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        TABLE.find(method, path)
    assert refused.value.allowed == allowed


@pytest.mark.parametrize("path", [b"/v0/topics", b"/v0/topics/jobs"])
def test_head_goes_where_get_goes(path: bytes) -> None:
    assert TABLE.find(b"HEAD", path) == TABLE.find(b"GET", path)


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(InvalidRequest) as refused:
        TABLE.find(b"GET", b"/v0/topics/%FF")
    assert refused.value.detail == {"field": "topic"}


def test_a_long_path_is_shown_cut() -> None:
    with pytest.raises(NotFound) as refused:
        TABLE.find(b"GET", b"/" + b"x" * 8000)
    assert len(refused.value.message) < 300


class Greetings:
    @Route("GET", "/v0/bye", Scope.READ, "", {})
    @Route("GET", "/v0/hello", Scope.READ, "", {})
    def greet(self, call: Call) -> Response:
        return Response(200, b"{}")

    def not_a_handler(self) -> None:
        """Has no route."""

    @Route("PUT", "/v0/name", Scope.WRITE, "", {})
    def rename(self, call: Call) -> Response:
        return Response(201, b"{}")


def test_routes_are_found_above_the_methods_that_handle_them() -> None:
    greetings = Greetings()
    assert [(route.method, route.path, route.handler) for route in routes_of(Greetings, greetings)] == [
        ("GET", "/v0/hello", greetings.greet),
        ("GET", "/v0/bye", greetings.greet),
        ("PUT", "/v0/name", greetings.rename),
    ]


def test_more_routes_are_made_once_for_the_first_request_that_no_other_is_for() -> None:
    made: list[str] = []

    def more() -> list[Route]:
        made.append("more")
        return [route("POST", "/v0/topics"), route("GET", "/v0/topics/{topic}/export")]

    table = RouteTable([route("GET", "/v0/topics"), route("GET", "/v0/topics/{topic}")], more)
    assert table.find(b"GET", b"/v0/topics")[0].path == "/v0/topics"
    assert table.find(b"HEAD", b"/v0/topics/jobs")[0].path == "/v0/topics/{topic}"
    assert made == []
    assert table.find(b"POST", b"/v0/topics")[0].method == "POST"
    assert table.find(b"GET", b"/v0/topics/jobs/export")[1] == "jobs"
    with pytest.raises(NotFound):
        table.find(b"GET", b"/v0/nothing")
    assert (made, len(table.routes)) == (["more"], 4)


def test_who_asks_for_all_routes_has_the_rest_made() -> None:
    table = RouteTable([route("GET", "/v0/topics")], lambda: [route("GET", "/v0/watch")])
    assert [each.path for each in table.routes] == ["/v0/topics", "/v0/watch"]
    with pytest.raises(MethodNotAllowed):
        table.find(b"POST", b"/v0/watch")
