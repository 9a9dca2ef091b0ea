"""From a request to its answer: route, readiness, site, key, scope, name, quota, handler; errors rendered.

This is the only place that turns an unexpected exception into a 500. Tokens, bodies and query strings
never reach the log.
"""

import logging
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from msgspec import structs
from msgspec.json import encode

from topics.api.auth import ANYBODY, Key, KeyStore
from topics.api.call import Call
from topics.api.error_mapping import is_internal, render_error, render_internal_error
from topics.api.http import JSON, HandOver, Request, Response, Waiting
from topics.api.query import Query
from topics.api.quotas import InFlight
from topics.api.readiness import Phase, Readiness
from topics.api.route_timings import SHIFT, SUM, RouteTimings
from topics.api.routing import Answer, Route, RouteTable
from topics.api.sites import Sites
from topics.clock import Clock
from topics.delivery.commits import committed
from topics.engine.journal import Busy
from topics.errors import MethodNotAllowed, TopicsError, Unauthorized

log = logging.getLogger("topics.api")

_READY = Phase.READY  # hot: a member of an enum is looked up with a call


class ApiApplication:
    def __init__(
        self,
        routes: RouteTable,
        keys: KeyStore,
        sites: Sites,
        readiness: Readiness,
        clock: Clock,
        *,
        inflight_per_key_max: int,
        probe_auth: bool,
    ) -> None:
        self._routes = routes
        self._keys = keys
        self._has_keys = bool(keys)
        self._sites = sites
        self._readiness = readiness
        self._clock = clock
        self._in_flight = InFlight(inflight_per_key_max)
        self._probe_auth = probe_auth
        self._log_every_request = log.isEnabledFor(logging.DEBUG)
        self._refused = RouteTimings()  # before a route was found, or before it was allowed
        self._refusals: Counter[int] = Counter()  # by status, since they were last taken

    def timings(self) -> dict[tuple[str, str], RouteTimings]:
        """The timings of each route, by method and path. Requests that reached no route are under `refused`."""
        by_route = {(route.method, route.path): route.timings for route in self._routes.routes}
        return by_route | {("", "refused"): self._refused}

    def admit(self, request: Request) -> Response | None:
        try:
            self._authorise(request)
        except TopicsError as error:
            refusal = self._timed(self._refused, request, self._refusal(request, error))
            return self._sites.share(request.headers, refusal)
        return None

    def handle(self, request: Request) -> Answer:
        if b"origin" in request.headers:
            answer = self._answer(request)
            return self._sites.share(request.headers, answer) if isinstance(answer, Response) else answer
        return self._answer(request)

    def _answer(self, request: Request) -> Answer:
        try:
            route, call = self._authorise(request)
        except MethodNotAllowed as error:
            return self._timed(self._refused, request, self._preflight(request, error))
        except TopicsError as error:
            return self._timed(self._refused, request, self._refusal(request, error))
        except Exception:  # a bug of ours: answered and logged as 500; all other requests go on
            return self._timed(self._refused, request, self._failure(request))
        try:
            answer = route.handler(call)
        except Busy as busy:
            answer = _ask_again(route, call, busy)
        except TopicsError as error:
            answer = self._refusal(request, error)
        except Exception:  # a bug of ours, as above
            answer = self._failure(request)
        if isinstance(answer, Response):
            if answer.status != 200 or self._log_every_request:
                self._timed(route.timings, request, answer)
            else:
                # The same for most, 0.2 µs faster.
                duration_ns = self._clock.monotonic_ns() - request.received_ns
                timings = route.timings.ok
                timings[(duration_ns >> SHIFT).bit_length()] += 1
                timings[SUM] += duration_ns
            return answer if call.warnings is None else _warned(answer, call)
        if isinstance(answer, Waiting):
            return self._waited(route, call, answer)
        return self._in_flight.holding(call.key, self._finish(route, call, answer))

    def _waited(self, route: Route, call: Call, answer: Waiting) -> Waiting:
        """An answer that waits for a commit, finished like any other. It holds its slot until then."""
        self._in_flight.enter(call.key)

        def finish() -> Response:
            try:
                response = answer.result()
            except TopicsError as error:
                response = self._refusal(call.request, error)
            except Exception:  # a bug of ours, as above
                response = self._failure(call.request)
            return self._finished(route, call, response)

        return Waiting(answer.commit, finish, lambda: self._in_flight.leave(call.key))

    def _timed(self, timings: RouteTimings, request: Request, response: Response) -> Response:
        timings.add(response.status, self._clock.monotonic_ns() - request.received_ns)
        if self._log_every_request:
            self._log(request, response.status)
        return response

    def refuse(self, error: TopicsError, request_id: str) -> Response:
        response = render_error(error)
        self._refusals[response.status] += 1
        log.debug("%s refused: %d %s", request_id, response.status, error.message)
        return response

    def take_refusals(self) -> dict[int, int]:
        """How many requests were refused since this was last asked, by status."""
        taken, self._refusals = self._refusals, Counter()
        return dict(taken)

    def _authorise(self, request: Request) -> tuple[Route, Call]:
        route, name, item = self._routes.find(request.method, request.path)
        if self._readiness.phase is not _READY and not route.always:
            self._readiness.require()
        key = ANYBODY
        if self._has_keys:
            key = self._key_for(route, request)
            request.key_digest = key.digest
            if name and route.names_what_a_key_may_touch:
                key.require_name(name)
            self._in_flight.check(key)
        elif not route.probe:
            self._sites.check(request.headers, link=route.open)
        return route, Call(request, name, item, key, self._clock)

    def _preflight(self, request: Request, not_allowed: MethodNotAllowed) -> Response:
        """No route takes OPTIONS, but a browser sends it before a page of another site may send something."""
        try:
            answer = (
                self._sites.preflight(request.headers, not_allowed.allowed) if request.method == b"OPTIONS" else None
            )
        except TopicsError as error:
            return self._refusal(request, error)
        return self._refusal(request, not_allowed) if answer is None else answer

    def _key_for(self, route: Route, request: Request) -> Key:
        if route.open or (route.probe and not self._probe_auth):
            return ANYBODY
        authorization = request.headers.get(b"authorization")
        if authorization is None and route.token_query:
            token = Query(request.query).text("token")
            authorization = f"Bearer {token}".encode() if token else None
        key = self._keys.authenticate(authorization)
        key.require_scope(route.scope)
        return key

    async def _finish(self, route: Route, call: Call, answer: Coroutine[Any, Any, Response]) -> Response:
        """Awaits an answer that is not there yet."""
        try:
            response = await answer
        except TopicsError as error:
            response = self._refusal(call.request, error)
        except Exception:  # a bug of ours, as above
            response = self._failure(call.request)
        if isinstance(response, HandOver) and not self._keys.admits(call.key):
            # The key was removed while the stream was being prepared.
            response.owner.closed()
            response = self._refusal(call.request, Unauthorized.revoked())
        return self._finished(route, call, response)

    def _finished(self, route: Route, call: Call, response: Response) -> Response:
        response = _warned(self._timed(route.timings, call.request, response), call)
        return self._sites.share(call.request.headers, response)

    def _refusal(self, request: Request, error: TopicsError) -> Response:
        if is_internal(error):
            return self._failure(request)
        elapsed_ms = round((self._clock.monotonic_ns() - request.received_ns) / 1e6, 3)
        response = render_error(error, elapsed_ms if request.received_ns else 0.0)
        self._refusals[response.status] += 1
        return response

    def _failure(self, request: Request) -> Response:
        log.exception("%s %s failed", request.request_id, _target(request))
        return render_internal_error(request.request_id)

    def _log(self, request: Request, status: int) -> None:
        log.debug("%s %s %d", request.request_id, _target(request), status)


async def _ask_again(route: Route, call: Call, busy: Busy) -> Response:
    """Waits for what the answer depends on, as often as it takes."""
    while True:
        await committed(busy.commit)
        try:
            answer = route.handler(call)
        except Busy as again:
            busy = again
        else:
            return answer if isinstance(answer, Response) else await answer


def _warned(response: Response, call: Call) -> Response:
    """Puts the warnings of the call into its reply, if that is a JSON object."""
    if call.warnings is None or response.content_type != JSON or not response.body.endswith(b"}"):
        return response
    return structs.replace(response, body=b'%b,"warnings":%b}' % (response.body[:-1], encode(call.warnings)))


def _target(request: Request) -> str:
    return f"{request.method.decode('latin-1')} {request.path[:300].decode('latin-1')}"
