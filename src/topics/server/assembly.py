"""Builds the real objects and joins them. The only place that does."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from topics import limits
from topics.api.application import ApiApplication
from topics.api.call import Call
from topics.api.connections import Connections
from topics.api.handlers.probes import ProbeHandlers
from topics.api.handlers.records import RecordHandlers
from topics.api.handlers.topics import TopicHandlers
from topics.api.http import ChannelOwner
from topics.api.live import LiveConnections
from topics.api.protocol import HttpProtocol
from topics.api.readiness import Readiness
from topics.api.routes import more_routes, route_table
from topics.api.routing import Route
from topics.api.sites import Sites
from topics.clock import Clock
from topics.delivery.claim_desk import ClaimDesk
from topics.delivery.forwarder import Forwarder
from topics.delivery.governor import Governor
from topics.delivery.hub import CallLater, Hub
from topics.delivery.long_poll import LongPolls
from topics.delivery.watch_session import WatchSessions
from topics.engine.admission import WriteLimits
from topics.engine.engine import Engine, EngineLimits
from topics.engine.journal import Commit
from topics.server.descriptors import ENOUGH, Descriptors
from topics.server.pressure import Pressure
from topics.server.settings import Settings
from topics.server.store import Store
from topics.server.vitals import VitalSigns
from topics.storage.fs import Disk
from topics.storage.journal import Deliver, DiskJournal

if TYPE_CHECKING:
    from topics.api.handlers.console import Assets, ReferencePage
    from topics.api.websocket_commands import Spawn
    from topics.server.metrics import ServerMetrics
    from topics.server.server_view import ServerView


class Server(NamedTuple):
    """Everything the lifecycle moves."""

    engine: Engine
    store: Store
    pressure: Pressure
    vital_signs: VitalSigns
    long_polls: LongPolls
    desk: ClaimDesk
    forwarder: Forwarder
    readiness: Readiness
    application: ApiApplication
    connections: Connections
    clock: Clock
    settings: Settings

    def protocol(self) -> HttpProtocol:
        """A new connection's protocol."""
        return HttpProtocol(self.application, self.connections, self.clock, body_bytes_max=self.settings.body_bytes_max)


class Core(NamedTuple):
    """The engine on its data directory: everything but the network."""

    engine: Engine
    journal: DiskJournal[Commit]
    store: Store


def assemble_core(
    settings: Settings,
    clock: Clock,
    disk: Disk,
    deliver: Deliver,
    at_turn_end: Deliver,
    *,
    wal_file_bytes: int = limits.WAL_FILE_BYTES,
    segments_open_max: int = limits.SEGMENTS_OPEN_MAX,
    new_id: Callable[[], str] = lambda: uuid4().hex,
) -> Core:
    """`deliver` runs a call on the thread that owns the engine, `at_turn_end` at the end of that thread's turn.
    `new_id` is called once, for a new directory."""
    journal = DiskJournal(Commit, deliver, at_turn_end)
    engine = Engine(
        clock,
        EngineLimits(
            write=WriteLimits(
                batch_records_max=settings.batch_records_max,
                record_bytes_max=settings.record_bytes_max,
                meta_bytes_max=settings.meta_bytes_max,
                tag_bytes_max=settings.tag_bytes_max,
                node_bytes_max=settings.node_bytes_max,
            ),
            topics_max=settings.topics_max,
            routers_max=settings.routers_max,
            total_bytes_max=settings.total_bytes_max,
            block_events_max=settings.segment_events_max,
            block_bytes_max=settings.segment_bytes_max,
            unsealed_bytes_max=_for_records(settings.unsealed_bytes_max),
        ),
        journal,
    )
    store = Store(
        settings,
        disk,
        clock,
        engine,
        journal,
        wal_file_bytes=wal_file_bytes,
        segments_open_max=segments_open_max,
        new_id=new_id,
    )
    return Core(engine, journal, store)


def _for_records(unsealed_bytes_max: int) -> int:
    """The part of the budget that records may take. The other memory that writing takes (files being written, what the
    allocator keeps) does not grow with the budget, so a small budget is for records alone."""
    spare_bytes = limits.UNSEALED_SPARE_BYTES
    return unsealed_bytes_max - spare_bytes if unsealed_bytes_max >= 3 * spare_bytes else unsealed_bytes_max


def assemble(
    settings: Settings,
    clock: Clock,
    disk: Disk,
    deliver: Deliver,
    at_turn_end: Deliver,
    call_later: CallLater,
    descriptors: Descriptors = ENOUGH,
) -> Server:
    """`deliver` runs a call on the thread that owns the engine, `at_turn_end` at the end of that thread's turn,
    `call_later` after a while."""
    engine, _, store = assemble_core(
        settings, clock, disk, deliver, at_turn_end, segments_open_max=descriptors.segments_open_max
    )
    readiness = Readiness()
    governor = Governor()
    hub = Hub(clock, governor, call_later)
    engine.flow.call_soon = lambda call: call_later(0, call)
    engine.state.on_change = hub.changed
    forwarder = Forwarder(engine, clock, governor, call_later)
    engine.state.on_forwardable = forwarder.forwardable
    long_polls = LongPolls(engine, clock, hub)
    queues = engine.queues
    desk = ClaimDesk(queues, hub, clock, call_later)
    live = LiveConnections(settings.sse_connections_max, settings.sse_connections_per_key_max)
    sessions = WatchSessions(clock, settings.watch_sessions_max)
    vital_signs = VitalSigns(disk, settings.data_dir)
    connections = Connections(clock, descriptors.connections_max)
    started_ns = clock.monotonic_ns()

    # What follows is made when it is first asked for: together it would be a quarter of a start.

    def console_assets() -> "Assets":
        from topics.console.assets import load  # noqa: PLC0415

        return load()

    def reference() -> "ReferencePage":
        from topics.console.reference import reference_page  # noqa: PLC0415

        return reference_page(openapi())

    @cache
    def openapi() -> bytes:
        from topics.api.openapi import openapi_document  # noqa: PLC0415

        return openapi_document(routes)

    @cache
    def server_view() -> "ServerView":
        from topics.server.server_view import ServerView  # noqa: PLC0415

        return ServerView(
            engine, clock, store, vital_signs, governor, connections, live, long_polls, sessions, started_ns
        )

    @cache
    def metrics() -> "ServerMetrics":
        from topics.server.metrics import ServerMetrics  # noqa: PLC0415

        view = server_view()
        return ServerMetrics(
            engine,
            queues,
            clock,
            readiness,
            wal=store.wal_metrics,
            live=view.live_metrics,
            process=view.process_metrics,
            routes=application.timings,
            started_ns=started_ns,
        )

    def new_websocket(call: Call, release: Callable[[], None], spawn: "Spawn") -> ChannelOwner:
        # The library behind it takes a tenth of a start, and most servers never see a WebSocket.
        from topics.api.websocket import WebSocketConnection  # noqa: PLC0415

        return WebSocketConnection(
            engine,
            hub,
            clock,
            call.key,
            call_later,
            spawn,
            release,
            message_bytes_max=settings.body_bytes_max,
            watch_topics_max=settings.watch_topics_max,
            diff_limit_max=settings.diff_limit_max,
            node_bytes_max=settings.node_bytes_max,
        )

    def more() -> list[Route]:
        from topics.api.handlers.bulk import BulkHandlers  # noqa: PLC0415
        from topics.api.handlers.console import ConsoleHandlers  # noqa: PLC0415
        from topics.api.handlers.overview import OverviewHandlers  # noqa: PLC0415
        from topics.api.handlers.queues import QueueHandlers  # noqa: PLC0415
        from topics.api.handlers.routers import RouterHandlers  # noqa: PLC0415
        from topics.api.handlers.watch import WatchHandlers  # noqa: PLC0415
        from topics.api.handlers.websocket import Tasks, WebSocketHandlers  # noqa: PLC0415
        from topics.server.encoders import Encoders  # noqa: PLC0415

        spawn = Tasks().spawn
        return more_routes(
            RouterHandlers(engine),
            WatchHandlers(
                engine,
                hub,
                clock,
                sessions,
                live,
                call_later,
                watch_topics_max=settings.watch_topics_max,
                diff_limit_max=settings.diff_limit_max,
                node_bytes_max=settings.node_bytes_max,
            ),
            WebSocketHandlers(live, lambda call, release: new_websocket(call, release, spawn)),
            BulkHandlers(engine, live, call_later, Encoders().run),
            QueueHandlers(
                queues,
                desk,
                clock,
                live,
                call_later,
                claim_max=settings.claim_max,
                node_bytes_max=settings.node_bytes_max,
            ),
            OverviewHandlers(engine, queues, hub, clock, server_view().overview),
            ConsoleHandlers(console_assets, reference, has_keys=bool(settings.keys)),
        )

    routes = route_table(
        TopicHandlers(engine, queues, clock),
        RecordHandlers(
            engine,
            long_polls,
            at_turn_end,
            diff_limit_max=settings.diff_limit_max,
            node_bytes_max=settings.node_bytes_max,
        ),
        ProbeHandlers(engine, clock, readiness, metrics, openapi, lambda: store.server_id, store.trouble),
        more,
    )
    application = ApiApplication(
        routes,
        settings.keys,
        Sites(settings.cors_origins, (settings.host, *settings.allowed_hosts), has_keys=bool(settings.keys)),
        readiness,
        clock,
        inflight_per_key_max=settings.inflight_per_key_max,
        probe_auth=settings.probe_auth,
    )
    return Server(
        engine,
        store,
        Pressure(governor, hub, store, clock, vital_signs.loop_lag),
        vital_signs,
        long_polls,
        desk,
        forwarder,
        readiness,
        application,
        connections,
        clock,
        settings,
    )
