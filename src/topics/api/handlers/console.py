"""The pages for people: the console with its script, the reference of the API; and what the key they gave may do. For
everything else they use the API."""

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

from msgspec.json import encode

from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.http import Response
from topics.api.routing import Route
from topics.wire.responses import KeyState


class Assets(Protocol):
    @property
    def page(self) -> bytes: ...
    @property
    def page_tag(self) -> bytes: ...
    @property
    def script(self) -> bytes: ...
    @property
    def script_tag(self) -> bytes: ...
    @property
    def policy(self) -> bytes: ...


class ReferencePage(Protocol):
    @property
    def html(self) -> bytes: ...
    @property
    def tag(self) -> bytes: ...
    @property
    def policy(self) -> bytes: ...


_CONSOLE = Route("GET", "/console", Scope.NONE, "The console", {200: "text/html"}, open=True, always=True, page=True)
_SAFETY = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_ASK_EACH_TIME = (b"cache-control", b"no-cache")
# The page names the script with its version, so another version has another address.
_FOR_GOOD = (b"cache-control", b"public, max-age=31536000, immutable")


class ConsoleHandlers:
    def __init__(self, assets: Callable[[], Assets], reference: Callable[[], ReferencePage], *, has_keys: bool) -> None:
        """`assets` reads the console's files, `reference` makes the page at /docs, once somebody asks for it."""
        self._has_keys = has_keys
        self._load_assets = assets
        self._make_reference = reference

    @Route("GET", "/", Scope.NONE, "Leads to the console", {302: "text/html"}, open=True, always=True, page=True)
    def root(self, call: Call) -> Response:
        return Response(302, b"", b"text/html; charset=utf-8", ((b"location", b"/console"), _ASK_EACH_TIME))

    @_CONSOLE
    def console(self, call: Call) -> Response:
        return _unless_known(call, _page(self._assets.page, self._assets.page_tag, self._assets.policy))

    @Route("GET", "/docs", Scope.NONE, "The API as a page", {200: "text/html"}, open=True, always=True, page=True)
    def docs(self, call: Call) -> Response:
        return _unless_known(call, self._reference)

    @cached_property
    def _assets(self) -> Assets:
        return self._load_assets()

    @cached_property
    def _reference(self) -> Response:
        made = self._make_reference()
        return _page(made.html, made.tag, made.policy)

    @Route(
        "GET",
        "/console/console.js",
        Scope.NONE,
        "The console's script",
        {200: "text/javascript"},
        open=True,
        always=True,
        page=True,
    )
    def script(self, call: Call) -> Response:
        headers = ((b"etag", self._assets.script_tag), _FOR_GOOD, *_SAFETY)
        return _unless_known(call, Response(200, self._assets.script, b"text/javascript; charset=utf-8", headers))

    @Route(
        "GET",
        "/v0/key",
        Scope.NONE,
        "Extension: what the key of this request may do",
        {200: KeyState},
        always=True,
    )
    def key(self, call: Call) -> Response:
        scopes = [str(scope.name).lower() for scope in (Scope.READ, Scope.WRITE, Scope.DELETE, Scope.ADMIN)]
        allowed = [name for name in scopes if Scope[name.upper()] in call.key.scopes]
        prefixes = [prefix for prefix in call.key.prefixes if prefix]
        return Response(200, encode(KeyState(self._has_keys, allowed, prefixes, call.performance())))


def _page(html: bytes, tag: bytes, policy: bytes) -> Response:
    return Response(
        200,
        html,
        b"text/html; charset=utf-8",
        (
            (b"content-security-policy", policy),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"etag", tag),
            _ASK_EACH_TIME,
            *_SAFETY,
        ),
    )


def _unless_known(call: Call, response: Response) -> Response:
    """304 if the browser already has it, by its ETag."""
    tag = dict(response.headers)[b"etag"]
    known = call.request.headers.get(b"if-none-match", b"")
    if tag in (part.strip().removeprefix(b"W/") for part in known.split(b",")):
        return Response(304, b"", response.content_type, response.headers)
    return response
