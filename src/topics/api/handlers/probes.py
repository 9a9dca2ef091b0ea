"""Probes: is it alive, is it ready, how is it doing, and what does it speak."""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import UNSET, structs
from msgspec.json import encode

from topics.api.accept import kinds_named
from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.http import Response
from topics.api.readiness import Readiness
from topics.api.routing import BOOLEAN, Parameter, Route
from topics.clock import Clock
from topics.engine.engine import Engine
from topics.errors import TopicsError
from topics.version import VERSION
from topics.wire.responses import ErrorBody, Health, Ready

_HEALTH = Route("GET", "/v0/health", Scope.NONE, "Liveness", {200: Health}, probe=True, always=True)
_READY = Route(
    "GET",
    "/v0/ready",
    Scope.NONE,
    "Readiness; as extensions, the server's id, and whether writes are taken",
    {200: Ready},
    (400,),
    parameters=(
        Parameter("writes", BOOLEAN, "Extension: 503 also while writes are refused, with the error they get."),
    ),
    probe=True,
    always=True,
)


class Metrics(Protocol):
    """`prefixes`: the names of topics the caller may see."""

    async def text(self, prefixes: tuple[str, ...]) -> bytes: ...

    async def json(self, prefixes: tuple[str, ...]) -> bytes: ...


class ProbeHandlers:
    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        readiness: Readiness,
        metrics: Callable[[], Metrics],
        openapi: Callable[[], bytes],
        server_id: Callable[[], str],
        trouble: Callable[[], TopicsError | None],
    ) -> None:
        """`trouble`: what a write is refused with, if the disk takes none."""
        self._engine = engine
        self._clock = clock
        self._started_ns = clock.monotonic_ns()
        self._readiness = readiness
        self._metrics = metrics
        self._openapi = openapi
        self._server_id = server_id
        self._trouble = trouble

    @structs.replace(_HEALTH, path="/healthz")
    @_HEALTH
    def health(self, call: Call) -> Response:
        uptime_ms = (self._clock.monotonic_ns() - self._started_ns) // 1_000_000
        return Response(200, encode(Health("ok", VERSION, uptime_ms)))

    @structs.replace(_READY, path="/readyz")
    @_READY
    def ready(self, call: Call) -> Response:
        self._readiness.require()
        asks_for_writes, trouble = call.query.boolean("writes", default=False), self._trouble()
        if asks_for_writes and trouble is not None:
            raise trouble.with_traceback(None)
        reply = Ready("ready", wal_replay_complete=True, topics=len(self._engine.topics), server_id=self._server_id())
        if trouble is not None:
            # Reads go on: a load balancer that gave this server up for that would lose them, too.
            reply.degraded = True
            reply.reason = ErrorBody(trouble.code, trouble.message, trouble.detail or UNSET)
        return Response(200, encode(reply))

    @Route(
        "GET",
        "/v0/metrics",
        Scope.READ,
        "Metrics: Prometheus text, or JSON with Accept: application/json",
        {200: "text/plain"},
        always=True,
    )
    async def metrics(self, call: Call) -> Response:
        if _prefers_json(call.request.headers.get(b"accept", b"")):
            return Response(200, await self._metrics().json(call.key.prefixes))
        return Response(200, await self._metrics().text(call.key.prefixes), b"text/plain; version=0.0.4; charset=utf-8")

    @Route(
        "GET",
        "/v0/openapi.json",
        Scope.NONE,
        "This API as an OpenAPI document",
        {200: dict[str, Any]},
        open=True,
        always=True,
    )
    def openapi(self, call: Call) -> Response:
        return Response(200, self._openapi())


def _prefers_json(accept: bytes) -> bool:
    """True when JSON is asked for by name and text is not."""
    kinds = kinds_named(accept)
    return b"application/json" in kinds and b"text/plain" not in kinds
