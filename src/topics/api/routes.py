"""The route table: every path and method, who may call it, what it takes and gives.

Matching, authorisation, 404, 405 and the OpenAPI document all read this one table. Each route stands above its handler.
"""

from topics.api.handlers.bulk import BulkHandlers
from topics.api.handlers.console import ConsoleHandlers
from topics.api.handlers.overview import OverviewHandlers
from topics.api.handlers.probes import ProbeHandlers
from topics.api.handlers.queues import QueueHandlers
from topics.api.handlers.records import RecordHandlers
from topics.api.handlers.routers import RouterHandlers
from topics.api.handlers.topics import TopicHandlers
from topics.api.handlers.watch import WatchHandlers
from topics.api.handlers.websocket import WebSocketHandlers
from topics.api.routing import RouteTable, routes_of


def route_table(
    topics: TopicHandlers,
    records: RecordHandlers,
    watch: WatchHandlers,
    routers: RouterHandlers,
    websocket: WebSocketHandlers,
    bulk: BulkHandlers,
    queues: QueueHandlers,
    overview: OverviewHandlers,
    probes: ProbeHandlers,
    console: ConsoleHandlers,
) -> RouteTable:
    return RouteTable(
        [
            *routes_of(TopicHandlers, topics),
            *routes_of(RecordHandlers, records),
            *routes_of(RouterHandlers, routers),
            *routes_of(WatchHandlers, watch),
            *routes_of(WebSocketHandlers, websocket),
            *routes_of(BulkHandlers, bulk),
            *routes_of(QueueHandlers, queues),
            *routes_of(OverviewHandlers, overview),
            *routes_of(ProbeHandlers, probes),
            *routes_of(ConsoleHandlers, console),
        ]
    )
