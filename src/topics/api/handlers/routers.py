"""Routers: create and change, show, list, delete."""

from msgspec import UNSET
from msgspec.json import encode

from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.cursor import encode_cursor, page_asked_for
from topics.api.http import Response
from topics.api.routing import CURSOR, ON_BODY, PAGE_SIZE, PREFIX, TEXT, Answer, Parameter, Route
from topics.api.waiting import once_committed
from topics.engine.engine import Engine
from topics.engine.topic import Router
from topics.errors import RouterCycle
from topics.model.router import RouterSettings
from topics.model.tag_match import TagMatch, parse_match
from topics.wire.requests import PutRouterRequest
from topics.wire.responses import (
    DeleteRouterResponse,
    PutRouterResponse,
    RouterPage,
    RouterResponse,
    RouterSummary,
)

_ROUTER = "/v0/routers/{router}"


class RouterHandlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @Route(
        "PUT",
        _ROUTER,
        Scope.ADMIN,
        "Create a router or change it",
        {200: PutRouterResponse, 201: PutRouterResponse},
        (*ON_BODY, 404, 409),
        body=PutRouterRequest,
        body_required=True,
    )
    def put(self, call: Call) -> Answer:
        body = call.body(PutRouterRequest)
        call.key.require_name(body.source)
        call.key.require_name(body.dest)
        settings = RouterSettings(
            preserve_node=body.preserve_node,
            preserve_tag=body.preserve_tag,
            filter=None if body.filter is None else parse_match(body.filter, "filter"),
            allow_cycle=body.allow_cycle,
            guarantee=body.guarantee,
        )
        try:
            put = self._engine.put_router(call.name, body.source, body.dest, settings, create_dest=body.create_dest)
        except RouterCycle as error:
            raise error.as_seen_within(call.key.prefixes) from None

        def reply() -> Response:
            reply = PutRouterResponse(
                router=put.router.name,
                created=put.created,
                source=body.source,
                dest=body.dest,
                preserve_node=settings.preserve_node,
                preserve_tag=settings.preserve_tag,
                filter=_filter(settings.filter),
                allow_cycle=settings.allow_cycle,
                guarantee=settings.guarantee,
                performance=call.performance(),
            )
            return Response(201 if put.created else 200, encode(reply))

        return once_committed(put.commit, reply)

    @Route("GET", _ROUTER, Scope.READ, "Show a router", {200: RouterResponse}, (400, 404))
    def get(self, call: Call) -> Response:
        router = self._engine.router(call.name)
        call.key.require_endpoints_of(router.name, router.source.name, router.dest.name)
        settings = router.settings
        stall = self._engine.router_stall(router.dest)
        reply = RouterResponse(
            router=router.name,
            source=router.source.name,
            dest=router.dest.name,
            preserve_node=settings.preserve_node,
            preserve_tag=settings.preserve_tag,
            filter=_filter(settings.filter),
            allow_cycle=settings.allow_cycle,
            guarantee=settings.guarantee,
            forwarded_total=router.forwarded_total,
            lag=router.lag,
            performance=call.performance(),
            stalled=UNSET if stall is None else stall.reason,
        )
        return Response(200, encode(reply))

    @Route("DELETE", _ROUTER, Scope.DELETE, "Delete a router", {200: DeleteRouterResponse}, (400,))
    def delete(self, call: Call) -> Answer:
        deleted, commit = self._engine.delete_router(call.name)

        def reply() -> Response:
            return Response(200, encode(DeleteRouterResponse(call.name, deleted, call.performance())))

        return once_committed(commit, reply)

    @Route(
        "GET",
        "/v0/routers",
        Scope.READ,
        "List routers",
        {200: RouterPage},
        (400,),
        parameters=(
            PREFIX,
            Parameter("source", TEXT, "Only routers from this topic."),
            Parameter("dest", TEXT, "Only routers to this topic."),
            PAGE_SIZE,
            CURSOR,
        ),
    )
    def list(self, call: Call) -> Response:
        query = call.query
        after, page_size = page_asked_for(query)
        page = self._engine.page_of_routers(
            after=after,
            prefixes=call.key.prefixes_within(query.text("prefix")),
            endpoint_prefixes=call.key.prefixes,
            page_size=page_size,
            source=query.text("source"),
            dest=query.text("dest"),
        )
        reply = RouterPage(
            [_summary(router) for router in page.routers],
            call.performance(),
            encode_cursor(page.last_name) if page.more else UNSET,
        )
        return Response(200, encode(reply))


def _summary(router: Router) -> RouterSummary:
    return RouterSummary(
        router.name, router.source.name, router.dest.name, router.settings.guarantee, router.forwarded_total
    )


def _filter(match: TagMatch | None) -> tuple[str, str, str] | None:
    """The match as its longest form."""
    if match is None:
        return None
    return ("tag", "Glob", f"{match.text}*") if match.is_prefix else ("tag", "Eq", match.text)
