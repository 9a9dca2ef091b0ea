"""Every path of the server has a call in the client, except pages for browsers."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from topics.api.routes import more_routes, route_table
from topics.client import calls
from topics.client.core import Call

LEFT_OUT = {
    ("GET", "/v0/ws"): "a session opens it",
    ("GET", "/v0/topics/{topic}/work"): "a worker claims and waits by a long poll: it asks only for what it can do now",
    ("GET", "/v0/openapi.json"): "for tools",
    ("GET", "/healthz"): "the same as /v0/health",
    ("GET", "/readyz"): "the same as /v0/ready",
}
ARGUMENTS: dict[str, Any] = {
    "records": [1],
    "data": 1,
    "seq": 1,
    "from_seq": 0,
    "to_seq": 9,
    "before_seq": 1,
    "body": {},
    "lenient": False,
    "names": ["a"],
    "jobs": [1],
    "source": "a",
    "dest": "b",
}


class AnyHandlers:
    """Stands for every handler: none is called."""

    def __getattr__(self, name: str) -> Any:
        return lambda call: None


def made_calls() -> Iterator[Call[Any]]:
    for name, function in inspect.getmembers(calls, inspect.isfunction):
        if (
            function.__module__ != calls.__name__
            or name.startswith("_")
            or name in {"topic_path", "export_line", "diff_as"}
        ):
            continue
        wanted = {
            each.name: ARGUMENTS.get(each.name, "x")
            for each in inspect.signature(function).parameters.values()
            if each.kind is not each.VAR_KEYWORD and (each.default is each.empty or each.name == "before_seq")
        }
        made = function(**wanted)
        yield made.call(UNSET) if isinstance(made, calls.Pages) else made


def test_every_path_of_the_server_has_a_call() -> None:
    handlers: Any = AnyHandlers()
    routes = {
        (route.method, route.path)
        for route in route_table(handlers, handlers, handlers, lambda: more_routes(*[handlers] * 7)).routes
        if not route.page
    }
    asked = [(call.method, call.path.partition("?")[0]) for call in made_calls()]

    def is_asked(method: str, path: str) -> bool:
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", path))
        return any(made == method and pattern.fullmatch(made_path) for made, made_path in asked)

    missing = {route for route in routes if not is_asked(*route)}
    assert missing == LEFT_OUT.keys()
