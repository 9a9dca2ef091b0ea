"""Extensions for dashboards: all topics with the process, and the whole of one topic.

A look is not a read: it moves no recency, opens no watch, forwards nothing and fetches nothing. Pages are long, so they
are made in slices, and others are served in between: a page shows each topic at one instant, but not all of them at the
same one.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from heapq import nsmallest

from msgspec import UNSET, Raw, UnsetType
from msgspec.json import encode

from topics import limits
from topics.api.auth import Key, Scope
from topics.api.call import Call
from topics.api.cursor import encode_cursor, page_asked_for
from topics.api.http import Response
from topics.api.routing import CURSOR, NUMBER, PREFIX, TOPIC, Answer, Parameter, Route
from topics.clock import Clock
from topics.delivery.claim_desk import ClaimDesk
from topics.delivery.hub import Hub
from topics.delivery.scheduler import BAND_FLOORS
from topics.delivery.shared_batches import Watcher
from topics.delivery.subscriber import Subscriber
from topics.engine import outline
from topics.engine.block import AnyBlock, Block
from topics.engine.engine import Engine
from topics.engine.queues import Queues
from topics.engine.topic import Router, Topic
from topics.model.image import NamedCursor
from topics.wire.overview import (
    CursorOverview,
    MappedBlock,
    MappedCursor,
    MappedRange,
    MappedRouter,
    MappedWatcher,
    OverviewPage,
    QueueOverview,
    ServerOverview,
    TopicMap,
    TopicOverview,
)
from topics.wire.responses import LossOut


class OverviewHandlers:
    def __init__(
        self, engine: Engine, queues: Queues, hub: Hub, clock: Clock, server: Callable[[], ServerOverview]
    ) -> None:
        self._engine = engine
        self._queues = queues
        self._hub = hub
        self._clock = clock
        self._server = server

    @Route(
        "GET",
        "/v0/overview",
        Scope.READ,
        "Extension: the process, and every topic in one line",
        {200: OverviewPage},
        (400,),
        parameters=(
            PREFIX,
            Parameter("page_size", NUMBER, "Default 1000, at most 10000; 0 is the default."),
            CURSOR,
        ),
    )
    def overview(self, call: Call) -> Answer:
        after, page_size = page_asked_for(call.query, limits.OVERVIEW_PAGE_SIZE_DEFAULT, limits.OVERVIEW_PAGE_SIZE_MAX)
        return self._page(call, after, page_size, call.key.prefixes_within(call.query.text("prefix")))

    async def _page(self, call: Call, after: str, page_size: int, prefixes: tuple[str, ...]) -> Response:
        server = self._server()
        slices: list[bytes] = []  # encoded at once: a whole page would hold up the loop for 20 ms
        left, more = page_size, True
        while more and left:
            if slices:
                await asyncio.sleep(0)
            page = self._engine.page_of_topics(after, prefixes, min(left, limits.OVERVIEW_SLICE_TOPICS))
            now_ms = self._clock.now_ms()
            if page.topics:
                slices.append(encode([self._row(topic, now_ms) for topic in page.topics])[1:-1])
            after, more, left = page.last_name, page.more, left - len(page.topics)
        reply: dict[str, object] = {
            "server": server,
            "topics": Raw(b"[%b]" % b",".join(slices)),
            "performance": call.performance(),
        }
        if more:
            reply["next_cursor"] = encode_cursor(after)
        return Response(200, encode(reply))

    @Route(
        "GET",
        f"{TOPIC}/map",
        Scope.READ,
        "Extension: a topic from seq 1 to its head: what is live, lost and deleted, and who stands where",
        {200: TopicMap},
        (400, 404),
    )
    def map(self, call: Call) -> Answer:
        return self._map(call, self._engine.topic(call.name, wait=False))

    async def _map(self, call: Call, topic: Topic) -> Response:
        bound = limits.MAP_ENTRIES_MAX
        ranges, whole = await self._deleted_ranges(topic)
        now_ms = self._clock.now_ms()
        log, shares = topic.log, outline.shares(topic)
        watchers = self._hub.watchers_of(topic)
        routers = [
            MappedRouter(router.name, router.source.name, router.dest.name, router.lag)
            for router in (*topic.inbound.values(), *topic.outbound.values())
            if _may_see(call.key, router)
        ]
        truncated = [
            name
            for name, cut in (
                ("blocks", len(log.blocks) > bound),
                ("deleted_ranges", not whole),
                ("watchers", len(watchers) > bound),
                ("routers", len(routers) > bound),
            )
            if cut
        ]
        reply = TopicMap(
            topic=topic.name,
            head_seq=log.head_seq,
            earliest_seq=log.earliest_seq,
            evict_floor=log.evict_floor,
            count=shares.live,
            lost=shares.lost,
            deleted=shares.deleted,
            blocks=[_block(block) for block in log.blocks[-bound:]],
            losses=[LossOut(loss.gap_from, loss.gap_to, loss.reason, loss.ts) for loss in topic.losses],
            deleted_ranges=ranges,
            cursors=[_cursor(topic, name, cursor, now_ms) for name, cursor in sorted(topic.cursors.items())],
            watchers=[_watcher(topic, watcher, now_ms) for watcher in [*watchers][:bound]],
            routers=routers[:bound],
            truncated=truncated,
            performance=call.performance(),
        )
        return Response(200, encode(reply))

    async def _deleted_ranges(self, topic: Topic) -> tuple[list[MappedRange], bool]:
        """The newest ones within the bound, and whether these are all. Segments of the cold tier are not fetched for
        it."""
        log, bound, whole = topic.log, limits.MAP_ENTRIES_MAX, True
        newest_first: list[outline.SeqRange] = []
        for block in reversed(log.blocks):
            if block.live_count == len(block):
                continue
            if not block.ready:
                whole = False
                continue
            newest_first += reversed(list(outline.deleted_in(block, log.earliest_seq)))
            if len(newest_first) > bound:
                break
            await asyncio.sleep(0)
        else:
            newest_first += reversed(list(outline.deleted_before(topic)))
        ranges = sorted(newest_first[:bound])
        return _joined(ranges), whole and len(newest_first) <= bound

    def _row(self, topic: Topic, now_ms: int) -> TopicOverview:
        log, config = topic.log, topic.config
        shares = outline.shares(topic)
        priority = topic.effective_priority(now_ms)
        return TopicOverview(
            topic=topic.name,
            epoch=topic.topic_id,
            type=config.type,
            durability=config.durability,
            ttl_ms=config.ttl_ms,
            cap_records=config.cap_records,
            cap_bytes=config.cap_bytes,
            head_seq=log.head_seq,
            earliest_seq=log.earliest_seq,
            evict_floor=log.evict_floor,
            count=shares.live,
            bytes=log.bytes,
            lost=shares.lost,
            lost_by_reason={reason.value: seqs for reason, seqs in topic.losses.seqs_by_reason().items()},
            deleted=shares.deleted,
            first_ts=outline.first_ts(log),
            last_ts=log.last_ts or None,
            last_write_ts=topic.last_write_ts,
            last_read_ts=topic.last_read_ts,
            effective_priority=priority,
            priority_band=bisect_right(BAND_FLOORS, priority),
            watchers=len(self._hub.watchers_of(topic)),
            cursors_total=len(topic.cursors),
            cursors=_furthest_behind(topic, now_ms) if topic.cursors else [],
            routers_in=len(topic.inbound),
            routers_out=len(topic.outbound),
            queue=self._queue(topic),
        )

    def _queue(self, topic: Topic) -> QueueOverview | UnsetType:
        if topic.queue is None:
            return UNSET
        counts = self._queues.counts(topic)
        return QueueOverview(counts.ready, counts.in_flight, len(topic.queue.delayed), counts.dead_lettered)


def _furthest_behind(topic: Topic, now_ms: int) -> list[CursorOverview]:
    cursors = nsmallest(limits.OVERVIEW_CURSORS_MAX, topic.cursors.items(), key=lambda named: named[1].seq)
    return [CursorOverview(name, cursor.seq, *outline.lag(topic.log, cursor.seq, now_ms)) for name, cursor in cursors]


def _may_see(key: Key, router: Router) -> bool:
    return all(name.startswith(key.prefixes) for name in (router.name, router.source.name, router.dest.name))


def _block(block: AnyBlock) -> MappedBlock:
    place = "memory" if isinstance(block, Block) else "cold" if block.cold else "disk"
    return MappedBlock(
        block.first_seq, block.last_seq, block.live_count, block.live_bytes, block.first_ts, block.last_ts, place
    )


def _cursor(topic: Topic, name: str, cursor: NamedCursor, now_ms: int) -> MappedCursor:
    lag, lag_ms = outline.lag(topic.log, cursor.seq, now_ms)
    return MappedCursor(topic.name, name, cursor.seq, topic.log.head_seq, lag, cursor.updated_ts, lag_ms=lag_ms)


def _watcher(topic: Topic, watcher: Watcher, now_ms: int) -> MappedWatcher:
    if isinstance(watcher, Subscriber) and (feed := watcher.feeds.get(topic)) is not None:
        cursor = watcher.cursor_of(feed)
        return MappedWatcher("stream", cursor, *outline.lag(topic.log, cursor, now_ms))
    return MappedWatcher("workers" if isinstance(watcher, ClaimDesk) else "long_poll", None, None, None)


def _joined(ranges: list[outline.SeqRange]) -> list[MappedRange]:
    """The ranges in order, with adjacent ones joined: a delete across the end of a block is one range."""
    joined: list[MappedRange] = []
    for first, last in ranges:
        if joined and joined[-1].last_seq + 1 == first:
            joined[-1].last_seq = last
        else:
            joined.append(MappedRange(first, last))
    return joined
