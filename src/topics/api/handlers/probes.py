"""Probes: is it alive, is it ready, how is it doing, and what does it speak."""

from collections.abc import Callable
from typing import Protocol

from msgspec.json import encode

from topics.api.call import Call
from topics.api.http import Response
from topics.api.readiness import Readiness
from topics.clock import Clock
from topics.engine.engine import Engine
from topics.version import VERSION
from topics.wire.responses import Health, Ready


class Metrics(Protocol):
    """`prefixes`: the names of topics the caller may see."""

    def text(self, prefixes: tuple[str, ...]) -> bytes: ...

    def json(self, prefixes: tuple[str, ...]) -> bytes: ...


class ProbeHandlers:
    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        readiness: Readiness,
        metrics: Metrics,
        openapi: Callable[[], bytes],
        server_id: Callable[[], str],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._started_ns = clock.monotonic_ns()
        self._readiness = readiness
        self._metrics = metrics
        self._openapi = openapi
        self._server_id = server_id

    def health(self, call: Call) -> Response:
        uptime_ms = (self._clock.monotonic_ns() - self._started_ns) // 1_000_000
        return Response(200, encode(Health("ok", VERSION, uptime_ms)))

    def ready(self, call: Call) -> Response:
        self._readiness.require()
        topics = len(self._engine.topics)
        return Response(
            200, encode(Ready("ready", wal_replay_complete=True, topics=topics, server_id=self._server_id()))
        )

    def metrics(self, call: Call) -> Response:
        if _prefers_json(call.request.headers.get(b"accept", b"")):
            return Response(200, self._metrics.json(call.key.prefixes))
        return Response(200, self._metrics.text(call.key.prefixes), b"text/plain; version=0.0.4; charset=utf-8")

    def openapi(self, call: Call) -> Response:
        return Response(200, self._openapi())


def _prefers_json(accept: bytes) -> bool:
    """True when JSON is asked for by name and text is not."""
    kinds = [part.partition(b";")[0].strip().lower() for part in accept.split(b",")]
    return b"application/json" in kinds and b"text/plain" not in kinds
