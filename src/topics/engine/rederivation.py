"""Makes the copies of routers again that were in no file when the last process ended.

WAL shards are replayed one after the other, so operations of a dest may come before the records of its source. What
happens to a dest is therefore put off until everything was replayed; records of sources are kept meanwhile, whatever
their caps and deletes take. Then operations and copies are made in the order they happened: every operation of a dest
says how far its routers were, and a write of a client says it by its own seq. So every copy gets the seq it had.

What cannot be made again, because the source has lost it, is lost in the dest as well.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from topics import limits
from topics.engine import copies
from topics.engine.block import Batch
from topics.engine.forwarding import Forwarding
from topics.engine.replayed_rings import ReplayedRings
from topics.engine.router import Router
from topics.engine.router_graph import attach, detach, mark_rings, source_of
from topics.engine.topic import Removal, Topic
from topics.model.capture import Columns
from topics.model.config import Durability
from topics.model.image import RouterImage, TopicImage
from topics.model.operation import RingChanged, RouterChanged, RouterPut, SourceSkipped, TopicDeleted
from topics.model.tag_match import TagMatch

Action = Callable[[], None]


class Piece(NamedTuple):
    """Records of a source up to `through_seq`. Without columns: seqs up to there are lost, all of them. `skipped`: they
    were never forwarded, and routers say themselves when they have gone on behind them."""

    through_seq: int
    seqs: Sequence[int] = ()
    columns: Columns | None = None
    skipped: bool = False


class _PutOff(NamedTuple):
    """What happened to a dest when copies up to `through_seq` were there, the last of them not older than
    `oldest_ts`."""

    through_seq: int
    action: Action
    oldest_ts: int


class _Stream:
    """The records of a source as they were written. `ended`: what follows is only in its log."""

    __slots__ = ("ended", "pieces", "through")

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.through: list[int] = []
        self.ended = False

    def add(self, piece: Piece) -> None:
        if not self.ended:
            self.pieces.append(piece)
            self.through.append(piece.through_seq)

    def after(self, cursor: int) -> Piece | None:
        index = bisect_right(self.through, cursor)
        return self.pieces[index] if index < len(self.pieces) else None


class Rederivation:
    def __init__(self, engine: Forwarding) -> None:
        self._engine = engine
        self._images: dict[int, list[RouterImage]] = {}
        self._streams: dict[int, _Stream] = {}
        self._put_off: dict[int, deque[_PutOff]] = {}
        self._through: dict[int, int] = {}
        self._rings = ReplayedRings()
        self._gone: dict[int, Topic] = {}  # deleted sources
        self._ends: dict[tuple[int, int], int] = {}  # (source, dest): the last seq that was given out in the dest
        self._lags: dict[int, dict[int, int]] = {}
        self._unforwarded: dict[int, list[tuple[int, Removal]]] = {}
        self._unforwarded_jobs: dict[int, set[int]] = {}
        self._topics: dict[int, Topic] = {}
        self._begun = False
        self._complete = True

    # While operations are replayed

    def load(self, image: TopicImage) -> None:
        if image.routers:
            self._images[image.topic_id] = image.routers
            self._put_off[image.topic_id] = deque()
            self._rings.load(image.topic_id, image.routers)

    def begin(self, topics: Mapping[int, Topic]) -> None:
        """All images are loaded: keeps what routers had before them, before anything can take it."""
        if self._begun:
            return
        self._begun = True
        for routers in self._images.values():
            source_id = routers[0].source_id
            stream = self._streams.setdefault(source_id, _Stream())
            source = topics.get(source_id)
            if source is not None and not stream.pieces:
                self._keep_log(stream, source, min(image.cursor for image in self._all_from(source_id)))

    def _all_from(self, source_id: int) -> list[RouterImage]:
        return [image for routers in self._images.values() for image in routers if image.source_id == source_id]

    @staticmethod
    def _keep_log(stream: _Stream, source: Topic, cursor: int) -> None:
        log, kept = source.log, 0
        while cursor < log.head_seq and not stream.ended:
            if kept >= limits.ROUTER_REPLAY_RECORDS_MAX:
                stream.ended = True
                return
            gap = log.gap_at(cursor)
            if gap is not None:
                stream.add(Piece(gap.gap_to, skipped=True))
                cursor = gap.gap_to
                continue
            run = log.run_after(cursor, limits.ROUTER_BATCH_RECORDS_MAX, limits.ROUTER_BATCH_BYTES_MAX)
            stream.add(Piece(*run))
            kept += len(run.seqs)
            cursor = run.through_seq

    def forwarded_through(self, topic_id: int, seq: int) -> None:
        self._through[topic_id] = seq

    def put_off(self, topic_id: int, before_seq: int, action: Action, oldest_ts: int = 0) -> bool:
        """Keeps an operation of a dest for later. `before_seq`: all seqs below it were given out when it happened.
        `oldest_ts`: copies between the operation before and this one are not older."""
        through = self._through.pop(topic_id, 0)
        waiting = self._put_off.get(topic_id)
        if waiting is None:
            return False
        waiting.append(_PutOff(max(through, before_seq - 1), action, oldest_ts))
        return True

    def keep(self, topic_id: int, first_seq: int, batch: Batch, timestamps: "array[int]") -> None:
        """Records of a topic, in the order they were written. Hot: once per write."""
        stream = self._streams.get(topic_id)
        if stream is not None:
            last_seq = first_seq + len(batch.fragments) - 1
            columns = Columns(batch.fragments, timestamps, batch.meta_at, batch.nodes, batch.tags)
            stream.add(Piece(last_seq, range(first_seq, last_seq + 1), columns))

    def keep_lost(self, topic_id: int, last_seq: int) -> None:
        """Records of a topic that no file has, up to this seq."""
        stream = self._streams.get(topic_id)
        if stream is not None:
            stream.add(Piece(last_seq))

    def router_changed(self, topic_id: int, change: RouterChanged) -> None:
        if change.put is not None:
            put = change.put
            if topic_id == put.source_id:
                self._streams.setdefault(topic_id, _Stream())
                return
            self._put_off.setdefault(topic_id, deque())
            self._rings.put(put)
            self.put_off(topic_id, 0, lambda: self._put(put))
        if change.skipped is not None:
            skipped = change.skipped
            self.put_off(topic_id, skipped.seq, lambda: self._skip(topic_id, skipped))
        if change.late is not None:
            self.put_off(topic_id, 0, _nothing)
            self.put_off(topic_id, change.late.until_seq + 1, _nothing, change.late.ts)
        if change.ring is not None:
            ring = change.ring
            self.put_off(topic_id, 0, lambda: self._set_ring(topic_id, ring))
        if change.lag is not None:
            lag = change.lag
            self.do(topic_id, lambda: self._lags.setdefault(topic_id, {}).update({lag.router_id: lag.cursor}))

    def do(self, topic_id: int, action: Action) -> None:
        if not self.put_off(topic_id, 0, action):
            action()

    def router_deleted(self, topic_id: int, router_id: int) -> None:
        def end() -> None:
            topic = self._topics.get(topic_id)
            router = topic and topic.inbound.get(router_id)
            if router:
                detach(router)

        self._rings.delete(topic_id, router_id)
        self.put_off(topic_id, 0, end)

    def topic_deleted(self, topic: Topic, deleted: TopicDeleted) -> None:
        topic_id = topic.topic_id
        if topic_id not in self._streams:
            self._put_off.pop(topic_id, None)
            return
        # Its copies in other topics stay, so what they were made from is needed still.
        self._gone[topic_id] = topic
        self.put_off(topic_id, 0, _nothing)
        for dest_id, seq in deleted.forwarded.items():
            self._ends[topic_id, dest_id] = seq

    def records_deleted(self, topic_id: int, before_seq: int, match: TagMatch | None) -> None:
        """Those a router had not come to were never forwarded."""
        for router_id, cursor in self._lags.pop(topic_id, {}).items():
            self._unforwarded.setdefault(router_id, []).append((cursor, Removal(before_seq, match)))

    def jobs_deleted(self, topic_id: int, seqs: list[int]) -> None:
        """Acked or moved away. There may be many of these, so they are kept together."""
        for router_id, cursor in self._lags.pop(topic_id, {}).items():
            self._unforwarded_jobs.setdefault(router_id, set()).update(seq for seq in seqs if seq > cursor)

    # At the end

    @property
    def dest_ids(self) -> Collection[int]:
        """Topics that routers copied to."""
        return self._put_off.keys()

    def in_order(self, topics: Mapping[int, Topic]) -> list[Topic]:
        """Sources before their dests, as far as that is possible."""
        return sorted(topics.values(), key=lambda topic: (self._rings.depth(topic.topic_id), topic.topic_id))

    def run(self, topics: Mapping[int, Topic], heads: Mapping[int, int] | None, *, complete: bool) -> None:
        """Makes operations and copies; then the copies up to the last seqs given out, where `heads` knows them, else
        all that can be made. Not `complete`: of a log that may still be written, only what is certain is made."""
        if not self._put_off:
            return
        self.begin(topics)
        self._topics = {**self._gone, **topics}
        self._complete = complete
        for dest_id, images in self._images.items():
            for image in images:
                self._restore(dest_id, image)
        order = [topic for topic in self.in_order(self._topics) if topic.topic_id in self._put_off]
        self._replay(order, heads)
        for topic in self._gone.values():
            for router in (*topic.outbound.values(), *topic.inbound.values()):
                detach(router)
        mark_rings(router for topic in topics.values() for router in topic.inbound.values())
        for topic in topics.values():
            onward = [router for router in topic.outbound.values() if router.ring]
            if onward:
                cursor = min(router.cursor for router in onward)
                hops = self._rings.hops(onward[0].dest)
                topic.hops = {seq: count for seq, count in hops.items() if seq > cursor}

    def _restore(self, dest_id: int, image: RouterImage) -> None:
        source, dest = self._topics.get(image.source_id), self._topics.get(dest_id)
        if source is not None and dest is not None:
            router = Router(
                image.router_id,
                image.name,
                source,
                dest,
                image.settings,
                image.created_ts,
                image.cursor,
                image.forwarded_total,
            )
            attach(router)
            router.ring = self._rings.of_image(router)

    def _set_ring(self, dest_id: int, ring: RingChanged) -> None:
        dest = self._topics.get(dest_id)
        if dest is not None:
            for router in dest.inbound.values():
                if router.router_id in ring.cursors:
                    self._set_cursor(router, ring.cursors[router.router_id])
            self._rings.change(dest, ring)

    def _set_cursor(self, router: Router, cursor: int) -> None:
        """It had come so far by the rules before, whatever these would have copied of it."""
        images = self._images.get(router.dest.topic_id, ())
        router.cursor = max([cursor, *(image.cursor for image in images if image.router_id == router.router_id)])

    def _replay(self, order: list[Topic], heads: Mapping[int, int] | None) -> None:
        """Until nothing can be done any more: what is made in one topic may be what another waits for."""
        certain = not self._complete and heads is None
        there = self._topics.keys() - self._gone.keys()
        while True:
            moving = True
            while moving:
                moving = False
                for dest in order:
                    moving = self._go_on(dest) or moving
                    if not self._put_off[dest.topic_id] and not certain:
                        self._rings.settle(dest, there)
                        until_seq = None if heads is None else heads.get(dest.topic_id, 0)
                        moving = self._derive(dest, until_seq) or moving
                        if until_seq is not None and dest.log.head_seq >= until_seq:
                            moving = self._pass_by(dest) or moving
            stuck = next((dest for dest in order if self._put_off[dest.topic_id]), None)
            if stuck is None or not self._complete:
                return
            # What its next operation is behind cannot be made again.
            self._lose(stuck, self._put_off[stuck.topic_id][0].through_seq)

    def _go_on(self, dest: Topic) -> bool:
        """Does what can be done in the dest; whether anything could."""
        waiting = self._put_off[dest.topic_id]
        moved = False
        while waiting:
            through_seq, action, oldest_ts = waiting[0]
            if dest.log.head_seq < through_seq:
                moved = self._derive(dest, through_seq, oldest_ts) or moved
                if dest.log.head_seq < through_seq:
                    return moved
            waiting.popleft()
            action()
            moved = True
        return moved

    def _put(self, put: RouterPut) -> None:
        source, dest = self._topics.get(put.source_id), self._topics.get(put.dest_id)
        if source is None or dest is None:
            return
        router = dest.inbound.get(put.router_id)
        if router is not None:
            self._set_cursor(router, put.cursor)
            router.settings = put.settings
        else:
            # Those that are there still ended with their source.
            for ended in [each for each in dest.inbound.values() if each.source is not source]:
                detach(ended)
            router = Router(put.router_id, put.name, source, dest, put.settings, put.created_ts, put.cursor)
            attach(router)
        router.ring = self._rings.of_put(router, put)

    def _skip(self, dest_id: int, skipped: SourceSkipped) -> None:
        dest = self._topics.get(dest_id)
        if dest is not None and dest.log.head_seq < skipped.seq:
            for router in dest.inbound.values():
                if router.ring:
                    hops = copies.hops_of_gap(self._rings.hops(dest), router.cursor + 1, skipped.cursor)
                    dest.hops[skipped.seq] = hops + 1
                router.cursor = max(router.cursor, skipped.cursor)
            self._engine.apply_lost(dest, skipped.reason)
            stream = self._streams.get(dest_id)
            if stream is not None:
                stream.add(Piece(skipped.seq, skipped=True))

    def _derive(self, dest: Topic, until_seq: int | None, oldest_ts: int = 0) -> bool:
        """Makes copies until the head of the dest is `until_seq`, or all there is room for; whether it made any."""
        source = source_of(dest)
        moved = False
        while source is not None and (until_seq is None or dest.log.head_seq < until_seq):
            routers = [router for router in dest.inbound.values() if router.source is source]
            piece = self._piece_after(source, min(router.cursor for router in routers))
            end_seq = self._ends.get((source.topic_id, dest.topic_id)) if source.topic_id in self._gone else None
            if piece is not None and piece.skipped and self._has_gone_around(dest, routers, piece):
                for router in routers:
                    router.cursor = max(router.cursor, piece.through_seq)
                moved = True
                continue
            if piece is None or piece.skipped or (end_seq is not None and dest.log.head_seq >= end_seq):
                break
            bounds = [seq for seq in (until_seq, end_seq) if seq is not None]
            room = min(bounds) - dest.log.head_seq if bounds else None
            made, left = self._copy(dest, source, routers, piece, room, oldest_ts)
            moved = moved or made
            if left:
                break
        return moved

    def _pass_by(self, dest: Topic) -> bool:
        """All copies are there: goes on over what follows in the source and is not copied; whether there was any."""
        source = source_of(dest)
        moved = False
        while source is not None:
            routers = [router for router in dest.inbound.values() if router.source is source]
            piece = self._piece_after(source, min(router.cursor for router in routers))
            if piece is None or piece.columns is None:
                break
            made, left = self._copy(dest, source, routers, piece, 0, 0)
            moved = moved or made
            if left:
                break
        return moved

    def _has_gone_around(self, dest: Topic, routers: list[Router], piece: Piece) -> bool:
        """Whether all on its cycle had been told that these are lost."""
        first_seq = min(router.cursor for router in routers) + 1
        hops = copies.hops_of_gap(self._rings.hops(dest), first_seq, piece.through_seq)
        return bool(routers[0].ring) and hops + 1 >= routers[0].ring

    def _piece_after(self, source: Topic, cursor: int) -> Piece | None:
        stream = self._streams.get(source.topic_id)
        return None if stream is None else stream.after(cursor)

    def _copy(
        self, dest: Topic, source: Topic, routers: list[Router], piece: Piece, room: int | None, oldest_ts: int
    ) -> tuple[bool, bool]:
        """Whether anything moved, and whether some of the piece is left for want of room."""
        log = dest.log
        if not self._complete and dest.config.durability is Durability.EPHEMERAL:
            return False, True  # its records are in no file, and may be there all the same
        if piece.columns is None:
            cursor = min(router.cursor for router in routers)
            count = piece.through_seq - cursor if room is None else min(piece.through_seq - cursor, room)
            self._lose(dest, log.head_seq + count)
            for router in routers:
                router.cursor = max(router.cursor, cursor + count)
            return True, cursor + count < piece.through_seq
        hops = self._rings.hops(dest)
        picks = [
            pick for pick in copies.pick(routers, piece.seqs, piece.columns, hops) if not self._was_deleted(pick, piece)
        ]
        first_seq = log.head_seq + 1
        count = len(picks) if room is None else min(len(picks), room)
        made = picks[:count]
        batch, timestamps = copies.render(made, piece.seqs, piece.columns, first_seq, max(log.last_ts, oldest_ts))
        if room is None and (fitting := self._engine.fitting(dest, batch)) < count:
            count, made = fitting, picks[:fitting]
            batch, timestamps = copies.render(made, piece.seqs, piece.columns, first_seq, max(log.last_ts, oldest_ts))
        before = [router.cursor for router in routers]
        copies.advance(routers, picks, count, piece.seqs, piece.through_seq)
        if routers[0].ring:
            copies.note_hops(made, piece.seqs, first_seq, hops, dest.hops)
        if made and dest.config.durability is Durability.EPHEMERAL:
            self._lose(dest, log.head_seq + count)
        elif made:
            self._engine.apply_append(dest, batch, timestamps)
            self.keep(dest.topic_id, first_seq, batch, timestamps)
        return [router.cursor for router in routers] != before, count < len(picks)

    def _was_deleted(self, pick: copies.Pick, piece: Piece) -> bool:
        router, position = pick
        if piece.columns is None:
            return False
        seq, tag = piece.seqs[position], piece.columns.tags[position]
        if seq in self._unforwarded_jobs.get(router.router_id, ()):
            return True
        deletes = self._unforwarded.get(router.router_id, ())
        return any(cursor < seq and removal.takes(seq, tag) for cursor, removal in deletes)

    def _lose(self, dest: Topic, last_seq: int) -> None:
        if last_seq > dest.log.head_seq:
            dest.log.lose(dest.log.head_seq + 1, last_seq)
            self.keep_lost(dest.topic_id, last_seq)


def _nothing() -> None:
    """Only the copies before it count."""
