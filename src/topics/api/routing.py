"""What a route is, and finding the one for a request.

A handler's method has its route above it, as a decorator; `api/routes.py` makes one table of them all.
"""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, field, structs

from topics import limits
from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.http import Response, Waiting
from topics.api.route_timings import RouteTimings
from topics.errors import InvalidRequest, MethodNotAllowed, NotFound

Answer = Response | Waiting | Coroutine[Any, Any, Response]
Handler = Callable[[Call], Answer]
Method = TypeVar("Method", bound=Callable[..., Answer])

# What several routes say.
TOPIC = "/v0/topics/{topic}"
ON_BODY = (400, 413, 415)
BOOLEAN: dict[str, object] = {"type": "boolean"}
NUMBER: dict[str, object] = {"type": "integer", "minimum": 0}
TEXT: dict[str, object] = {"type": "string"}

_STAR = ord("*")
_PERCENT = ord("%")  # searching bytes for a number is several times faster than for bytes


class Parameter(NamedTuple):
    """A query parameter, or a header where `header` is set."""

    name: str
    schema: dict[str, object]
    description: str
    header: bool = False


PREFIX = Parameter("prefix", TEXT, "Only names that begin with this.")
PAGE_SIZE = Parameter("page_size", NUMBER, "Default 100, at most 1000; 0 is the default.")
CURSOR = Parameter("cursor", TEXT, "The next_cursor of the page before.")
TOKEN = Parameter("token", TEXT, "The API key, for browsers in development.")


def _no_handler(call: Call) -> Answer:
    raise NotImplementedError("only routes of the table have handlers")


class Route(Struct, frozen=True, eq=False):
    """Written above a method, it declares that this is its handler; `routes_of` finds it there."""

    method: str
    path: str  # parameters, written {topic}, are the third and the fifth segment
    scope: Scope
    summary: str
    replies: dict[int, Any]  # status -> response struct, a content type's name, or several
    errors: tuple[int, ...] = ()
    body: Any = None  # request struct
    body_required: bool = False
    parameters: tuple[Parameter, ...] = ()
    open: bool = False  # needs no key
    probe: bool = False  # needs a key only with TOPICS_PROBE_AUTH
    token_query: bool = False  # takes its key as ?token= too, for browsers' EventSource
    always: bool = False  # answers also while the server recovers or stops
    page: bool = False  # for people in a browser; no part of the API, so not in its document
    handler: Handler = _no_handler
    timings: RouteTimings = field(default_factory=RouteTimings)

    def __call__(self, method: Method) -> Method:
        vars(method).setdefault("routes", []).append(self)
        return method

    @property
    def names_what_a_key_may_touch(self) -> bool:
        """The name in the path has to be within the prefixes of the key."""
        return "{topic}" in self.path or "{router}" in self.path


def routes_of(kind: type, handlers: object) -> list[Route]:
    """Those declared in the class `kind`, in its order; their handlers are the methods of `handlers`."""
    return [
        structs.replace(route, handler=getattr(handlers, name), timings=RouteTimings())
        for name, method in vars(kind).items()
        for route in getattr(method, "routes", ())
    ]


class RouteTable:
    """Finds routes by path. A path parameter is always the segment after /v0/<collection>/.

    `more` makes further routes. It is called once: for the first request that matches none of `routes`, or when
    somebody asks for all of them.
    """

    __slots__ = ("_found", "_methods_by_path", "_more", "_routes")

    def __init__(self, routes: list[Route], more: Callable[[], list[Route]] | None = None) -> None:
        self._routes: list[Route] = []
        self._methods_by_path: dict[bytes, dict[bytes, Route]] = {}
        self._found: dict[tuple[bytes, bytes], tuple[Route, str, str]] = {}
        self._more = more
        self._add(routes)

    @property
    def routes(self) -> list[Route]:
        if self._more is not None:
            more, self._more = self._more, None
            self._add(more())
        return self._routes

    def _add(self, routes: list[Route]) -> None:
        self._routes += routes
        for route in routes:
            segments = ["*" if part.startswith("{") else part for part in route.path.split("/")]
            methods = self._methods_by_path.setdefault("/".join(segments).encode(), {})
            methods[route.method.encode()] = route

    def find(self, method: bytes, path: bytes) -> tuple[Route, str, str]:
        """The route, the name in its path and the name after that. Hot: once per request, most of them for the
        same few paths."""
        found = self._found.get((method, path))
        if found is None:
            try:
                found = self._search(method, path)
            except (NotFound, MethodNotAllowed):
                if self._more is None:
                    raise
                _ = self.routes
                found = self._search(method, path)
            if len(self._found) >= limits.ROUTES_REMEMBERED_MAX:
                self._found.clear()
            self._found[method, path] = found
        return found

    def _search(self, method: bytes, path: bytes) -> tuple[Route, str, str]:
        methods = self._methods_by_path.get(path) if _STAR not in path else None
        name = item = ""
        if methods is None:
            segments = path.split(b"/", 4)
            if len(segments) > 3 and segments[3]:
                raw_name, segments[3] = segments[3], b"*"
                raw_item = b""
                methods = self._methods_by_path.get(b"/".join(segments))
                if methods is None and len(segments) == 5:
                    collection, _, raw_item = segments[4].partition(b"/")
                    if raw_item and b"/" not in raw_item:
                        segments[4] = collection + b"/*"
                        methods = self._methods_by_path.get(b"/".join(segments))
                if methods is not None:
                    name = _decode_name(raw_name)
                    item = _decode_name(raw_item) if raw_item else ""
            if methods is None:
                raise NotFound(f"there is nothing at {path[:200].decode('latin-1')}")
        route = methods.get(method)
        if route is None:
            if method == b"HEAD" and b"GET" in methods:
                return methods[b"GET"], name, item
            allowed = sorted(known.decode() for known in methods)
            if "GET" in allowed:
                allowed.append("HEAD")
            raise MethodNotAllowed(method[:20].decode("latin-1"), tuple(allowed))
        return route, name, item


def _decode_name(raw: bytes) -> str:
    if _PERCENT in raw:
        from urllib.parse import unquote_to_bytes  # noqa: PLC0415 - with the first of these, which are rare

        raw = unquote_to_bytes(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise InvalidRequest.in_field("topic", "the name in the path is not valid UTF-8") from None
