"""The route table: every path and method, who may call it, what it takes and gives.

Matching, authorisation, 404, 405 and the OpenAPI document all read this one table.
"""

from typing import Any

from topics.api.auth import Scope
from topics.api.handlers.bulk import BulkHandlers
from topics.api.handlers.probes import ProbeHandlers
from topics.api.handlers.queues import QueueHandlers
from topics.api.handlers.records import RecordHandlers
from topics.api.handlers.routers import RouterHandlers
from topics.api.handlers.topics import TopicHandlers
from topics.api.handlers.watch import WatchHandlers
from topics.api.handlers.websocket import WebSocketHandlers
from topics.api.routing import Handler, Parameter, Route, RouteTable
from topics.model.config import TopicConfigPatch
from topics.wire.live_requests import WatchRequest
from topics.wire.queue_messages import (
    AckRequest,
    AckResponse,
    ClaimRequest,
    ClaimResponse,
    ExtendRequest,
    ExtendResponse,
    LeasePage,
    NackRequest,
    NackResponse,
    RedriveRequest,
    RedriveResponse,
)
from topics.wire.requests import DeleteRecordsRequest, DiffRequest, PutCursorRequest, PutRouterRequest, WriteRequest
from topics.wire.responses import (
    CursorList,
    CursorResponse,
    DeleteCursorResponse,
    DeleteRecordsResponse,
    DeleteRouterResponse,
    DeleteTopicResponse,
    DiffResponse,
    Health,
    LossList,
    PutRouterResponse,
    PutTopicResponse,
    Ready,
    RouterPage,
    RouterResponse,
    TopicPage,
    TopicState,
    WatchResponse,
    WriteResponse,
)

_BOOLEAN: dict[str, object] = {"type": "boolean"}
_TEXT: dict[str, object] = {"type": "string"}
_ON_BODY = (400, 413, 415)
_TOPIC = "/v0/topics/{topic}"


def route_table(
    topics: TopicHandlers,
    records: RecordHandlers,
    watch: WatchHandlers,
    routers: RouterHandlers,
    websocket: WebSocketHandlers,
    bulk: BulkHandlers,
    queues: QueueHandlers,
    probes: ProbeHandlers,
) -> RouteTable:
    return RouteTable(
        [
            *_topic_routes(topics),
            *_record_routes(records),
            *_router_routes(routers),
            *_live_routes(watch, websocket),
            *_bulk_routes(bulk),
            *_queue_routes(queues),
            *_probe_routes(probes),
        ]
    )


def _bulk_routes(bulk: BulkHandlers) -> list[Route]:
    """Extensions: additions to the documented surface."""
    cursor = f"{_TOPIC}/cursors/{{cursor}}"
    number: dict[str, object] = {"type": "integer", "minimum": 0}
    return [
        Route(
            "PUT",
            cursor,
            bulk.put_cursor,
            Scope.WRITE,
            "Extension: remember how far somebody has read",
            {200: CursorResponse},
            (*_ON_BODY, 404),
            body=PutCursorRequest,
            body_required=True,
        ),
        Route(
            "GET", cursor, bulk.get_cursor, Scope.READ, "Extension: a named cursor", {200: CursorResponse}, (400, 404)
        ),
        Route(
            "DELETE",
            cursor,
            bulk.delete_cursor,
            Scope.WRITE,
            "Extension: forget a named cursor",
            {200: DeleteCursorResponse},
            (400, 404),
        ),
        Route(
            "GET",
            f"{_TOPIC}/cursors",
            bulk.list_cursors,
            Scope.READ,
            "Extension: all named cursors",
            {200: CursorList},
            (400, 404),
        ),
        Route(
            "GET",
            f"{_TOPIC}/losses",
            bulk.losses,
            Scope.READ,
            "Extension: what was lost involuntarily, and why",
            {200: LossList},
            (400, 404),
        ),
        Route(
            "GET",
            f"{_TOPIC}/export",
            bulk.export,
            Scope.READ,
            "Extension: a range as newline-delimited JSON or as an Arrow IPC stream, with a trailer",
            {200: ("application/x-ndjson", "application/vnd.apache.arrow.stream")},
            (400, 404, 406),
            parameters=(
                Parameter("from_seq", number, "Exclusive; 0 is from the earliest record."),
                Parameter("to_seq", number, "Inclusive; default is the current head."),
            ),
        ),
    ]


def _queue_routes(queues: QueueHandlers) -> list[Route]:
    not_found = (404, 409)

    def settle(path: str, handler: Handler, summary: str, body: type, reply: type, scope: Scope) -> Route:
        return Route(
            "POST",
            f"{_TOPIC}/{path}",
            handler,
            scope,
            summary,
            {200: reply},
            (*_ON_BODY, *not_found),
            body=body,
            body_required=True,
        )

    claiming = Scope.READ | Scope.WRITE
    return [
        settle("claim", queues.claim, "Lease jobs to a worker", ClaimRequest, ClaimResponse, claiming),
        settle("ack", queues.ack, "Complete jobs: they are deleted", AckRequest, AckResponse, Scope.WRITE),
        settle("nack", queues.nack, "Give jobs back", NackRequest, NackResponse, Scope.WRITE),
        settle("extend", queues.extend, "Extend leases", ExtendRequest, ExtendResponse, Scope.WRITE),
        Route(
            "GET",
            f"{_TOPIC}/work",
            queues.work,
            claiming,
            "Have jobs claimed and pushed over an event stream",
            {200: "text/event-stream"},
            (400, *not_found, 406),
            parameters=(
                Parameter("node", _TEXT, "The worker's identity. Required."),
                Parameter("max", {"type": "integer", "minimum": 0}, "Jobs in flight at once; default 1."),
                Parameter("lease_ms", {"type": "integer", "minimum": 0}, "Default is the topic's."),
                Parameter("token", _TEXT, "The API key, for browsers in development."),
            ),
            token_query=True,
        ),
        Route(
            "GET",
            f"{_TOPIC}/leases",
            queues.leases,
            Scope.READ,
            "Extension: who holds which job, until when",
            {200: LeasePage},
            (400, *not_found),
            parameters=(
                Parameter("page_size", {"type": "integer", "minimum": 0}, "Default 100, at most 1000."),
                Parameter("cursor", _TEXT, "The next_cursor of the page before."),
            ),
        ),
        Route(
            "POST",
            f"{_TOPIC}/redrive",
            queues.redrive,
            Scope.READ | Scope.WRITE | Scope.DELETE,
            "Extension: send dead letters back to the queue they came from",
            {200: RedriveResponse},
            (*_ON_BODY, *not_found, 422),
            body=RedriveRequest,
        ),
    ]


def _router_routes(routers: RouterHandlers) -> list[Route]:
    path = "/v0/routers/{router}"
    return [
        Route(
            "PUT",
            path,
            routers.put,
            Scope.ADMIN,
            "Create a router or change it",
            {200: PutRouterResponse, 201: PutRouterResponse},
            (*_ON_BODY, 404, 409),
            body=PutRouterRequest,
            body_required=True,
        ),
        Route("GET", path, routers.get, Scope.READ, "Show a router", {200: RouterResponse}, (400, 404)),
        Route("DELETE", path, routers.delete, Scope.DELETE, "Delete a router", {200: DeleteRouterResponse}, (400,)),
        Route(
            "GET",
            "/v0/routers",
            routers.list,
            Scope.READ,
            "List routers",
            {200: RouterPage},
            (400,),
            parameters=(
                Parameter("prefix", _TEXT, "Only names that begin with this."),
                Parameter("source", _TEXT, "Only routers from this topic."),
                Parameter("dest", _TEXT, "Only routers to this topic."),
                Parameter(
                    "page_size", {"type": "integer", "minimum": 0}, "Default 100, at most 1000; 0 is the default."
                ),
                Parameter("cursor", _TEXT, "The next_cursor of the page before."),
            ),
        ),
    ]


def _live_routes(watch: WatchHandlers, websocket: WebSocketHandlers) -> list[Route]:
    return [
        Route(
            "POST",
            "/v0/watch",
            watch.create,
            Scope.READ,
            "Create a watch session over one or many topics",
            {200: WatchResponse},
            (*_ON_BODY, 404),
            body=WatchRequest,
            body_required=True,
            parameters=(Parameter("lenient", _BOOLEAN, "true: leave out topics that do not exist."),),
        ),
        Route(
            "GET",
            "/v0/watch/{wid}",
            watch.stream,
            Scope.READ,
            "Open the event stream of a watch session",
            {200: "text/event-stream"},
            (400, 404, 406),
            parameters=(
                Parameter("Last-Event-ID", _TEXT, "The id of the last event processed.", header=True),
                Parameter("token", _TEXT, "The API key, for browsers in development."),
            ),
            token_query=True,
        ),
        Route(
            "GET",
            "/v0/ws",
            websocket.open,
            Scope.NONE,
            "Subscribe and publish over one WebSocket",
            {101: "application/json"},
            (400, 426),
        ),
    ]


def _topic_routes(topics: TopicHandlers) -> list[Route]:
    return [
        Route(
            "GET",
            "/v0/topics",
            topics.list,
            Scope.READ,
            "List topics with their summary state",
            {200: TopicPage},
            (400,),
            parameters=(
                Parameter("prefix", _TEXT, "Only names that begin with this."),
                Parameter(
                    "page_size",
                    {"type": "integer", "minimum": 0},
                    "Default 100, at most 1000; 0 is the default.",
                ),
                Parameter("cursor", _TEXT, "The next_cursor of the page before."),
                Parameter("touch", _BOOLEAN, "true: listing counts as reading, for automatic priority."),
            ),
        ),
        Route(
            "PUT",
            _TOPIC,
            topics.put,
            Scope.ADMIN,
            "Create a topic or change its configuration",
            {200: PutTopicResponse, 201: PutTopicResponse},
            (*_ON_BODY, 409),
            body=TopicConfigPatch,
        ),
        Route(
            "GET",
            _TOPIC,
            topics.state,
            Scope.READ,
            "Read a topic's state",
            {200: TopicState},
            (400, 404),
            parameters=(Parameter("touch", _BOOLEAN, "false: do not count as reading."),),
        ),
        Route(
            "DELETE",
            _TOPIC,
            topics.delete,
            Scope.DELETE,
            "Delete a topic with all it holds",
            {200: DeleteTopicResponse},
            (400, 409),
            parameters=(Parameter("if_empty", _BOOLEAN, "true: refuse while it holds records."),),
        ),
    ]


def _record_routes(records: RecordHandlers) -> list[Route]:
    return [
        Route(
            "POST",
            _TOPIC,
            records.write,
            Scope.WRITE,
            "Append records",
            {200: WriteResponse, 201: WriteResponse},
            (*_ON_BODY, 404, 409, 422),
            body=WriteRequest,
            body_required=True,
            parameters=(
                Parameter("return_seqs", _BOOLEAN, "false: leave out the list of seqs."),
                Parameter("Idempotency-Key", _TEXT, "Used when the body has no idempotency_key.", header=True),
            ),
        ),
        Route(
            "POST",
            f"{_TOPIC}/diff",
            records.diff,
            Scope.READ,
            "Read the records after a cursor",
            {200: DiffResponse},
            (*_ON_BODY, 404),
            body=DiffRequest,
        ),
        Route(
            "POST",
            f"{_TOPIC}/delete",
            records.delete,
            Scope.DELETE,
            "Delete records for good, by seq and/or tag",
            {200: DeleteRecordsResponse},
            (*_ON_BODY, 404),
            body=DeleteRecordsRequest,
            body_required=True,
        ),
    ]


def _probe_routes(probes: ProbeHandlers) -> list[Route]:
    health = Route("GET", "/v0/health", probes.health, Scope.NONE, "Liveness", {200: Health}, probe=True, always=True)
    ready = Route(
        "GET",
        "/v0/ready",
        probes.ready,
        Scope.NONE,
        "Readiness; as an extension, the server's id",
        {200: Ready},
        probe=True,
        always=True,
    )
    return [
        health,
        health._replace(path="/healthz"),
        ready,
        ready._replace(path="/readyz"),
        Route(
            "GET",
            "/v0/metrics",
            probes.metrics,
            Scope.READ,
            "Metrics: Prometheus text, or JSON with Accept: application/json",
            {200: "text/plain"},
            always=True,
        ),
        Route(
            "GET",
            "/v0/openapi.json",
            probes.openapi,
            Scope.NONE,
            "This API as an OpenAPI document",
            {200: dict[str, Any]},
            open=True,
            always=True,
        ),
    ]
