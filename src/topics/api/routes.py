"""The route table: every path and method, who may call it, what it takes and gives.

Matching, authorisation, 404, 405 and the OpenAPI document all read this one table. Each route stands above its handler.

The routes of topics, records and probes are there from the start. The others are loaded by the first request that
needs one, because loading them takes a twentieth of a start.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.api.handlers.probes import ProbeHandlers
from topics.api.handlers.records import RecordHandlers
from topics.api.handlers.topics import TopicHandlers
from topics.api.routing import Route, RouteTable, routes_of

if TYPE_CHECKING:
    from topics.api.handlers.bulk import BulkHandlers
    from topics.api.handlers.console import ConsoleHandlers
    from topics.api.handlers.overview import OverviewHandlers
    from topics.api.handlers.queues import QueueHandlers
    from topics.api.handlers.routers import RouterHandlers
    from topics.api.handlers.watch import WatchHandlers
    from topics.api.handlers.websocket import WebSocketHandlers


def route_table(
    topics: TopicHandlers, records: RecordHandlers, probes: ProbeHandlers, more: Callable[[], list[Route]]
) -> RouteTable:
    """`more`: calls `more_routes`."""
    first = [
        *routes_of(TopicHandlers, topics),
        *routes_of(RecordHandlers, records),
        *routes_of(ProbeHandlers, probes),
    ]
    return RouteTable(first, more)


def more_routes(
    routers: "RouterHandlers",
    watch: "WatchHandlers",
    websocket: "WebSocketHandlers",
    bulk: "BulkHandlers",
    queues: "QueueHandlers",
    overview: "OverviewHandlers",
    console: "ConsoleHandlers",
) -> list[Route]:
    from topics.api.handlers.bulk import BulkHandlers  # noqa: PLC0415
    from topics.api.handlers.console import ConsoleHandlers  # noqa: PLC0415
    from topics.api.handlers.overview import OverviewHandlers  # noqa: PLC0415
    from topics.api.handlers.queues import QueueHandlers  # noqa: PLC0415
    from topics.api.handlers.routers import RouterHandlers  # noqa: PLC0415
    from topics.api.handlers.watch import WatchHandlers  # noqa: PLC0415
    from topics.api.handlers.websocket import WebSocketHandlers  # noqa: PLC0415

    return [
        *routes_of(RouterHandlers, routers),
        *routes_of(WatchHandlers, watch),
        *routes_of(WebSocketHandlers, websocket),
        *routes_of(BulkHandlers, bulk),
        *routes_of(QueueHandlers, queues),
        *routes_of(OverviewHandlers, overview),
        *routes_of(ConsoleHandlers, console),
    ]
