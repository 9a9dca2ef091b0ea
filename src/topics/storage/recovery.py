"""Recovery: snapshot, segments, then every WAL shard found, whatever their number was.

What comes out goes to a `RecoveryTarget`, as operations in the order they happened to each topic. Nothing on disk
is changed but torn tails, and those only by `repair`: recovering again gives the same.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import msgspec

from topics.model.config import TopicConfig
from topics.model.image import SegmentImage, TopicImage
from topics.model.lease_event import LeaseEvent
from topics.model.operation import (
    ConfigUpdated,
    CursorSet,
    HeadReserved,
    RecordsDeleted,
    RecordsExpired,
    RouterChanged,
    RouterDeleted,
    TopicCreated,
    TopicDeleted,
)
from topics.model.tag_match import TagMatch
from topics.storage import paths, snapshot
from topics.storage.errors import CorruptFile
from topics.storage.frame import BATCH_CONTINUES, FrameKind
from topics.storage.fs import Disk
from topics.storage.segment_format import SegmentRecord
from topics.storage.segment_reader import SegmentReader
from topics.storage.state import decode_state
from topics.storage.tiers import Tiers
from topics.storage.wal_replay import ShardReplay, TornTail

APPENDS_GATHERED_MAX = 1000

ReplayedRecord = tuple[int, int, bytes, bytes, bytes]
"""(flags, ts, node, tag, payload)"""

Tail = tuple[SegmentImage, list[SegmentRecord], list[bool]]
"""An unsealed segment: its image, its records, and which of them are deleted."""


class RecoveryTarget(Protocol):
    def load_topic(self, image: TopicImage, tails: list[Tail]) -> None: ...

    def topic_created(self, topic_id: int, ts: int, created: TopicCreated) -> None: ...

    def config_updated(self, topic_id: int, ts: int, config: TopicConfig, version: int) -> None: ...

    def cursor_set(self, topic_id: int, ts: int, cursor: CursorSet) -> None: ...

    def topic_deleted(self, topic_id: int, deleted: TopicDeleted) -> None: ...

    def router_changed(self, topic_id: int, change: RouterChanged) -> None: ...

    def router_deleted(self, topic_id: int, router_id: int) -> None: ...

    def forwarded_through(self, topic_id: int, seq: int) -> None:
        """Routers had given out the seqs up to here when the next operation of the topic happened."""
        ...

    def appended(self, topic_id: int, first_seq: int, records: list[ReplayedRecord]) -> None:
        """Whole writes with consecutive seqs of one topic; those it has already are to be passed over."""
        ...

    def records_deleted(self, topic_id: int, before_seq: int, match: TagMatch | None) -> None: ...

    def jobs_deleted(self, topic_id: int, seqs: list[int], move: str | None) -> None: ...

    def lease_changed(self, topic_id: int, event: LeaseEvent) -> None: ...

    def head_reserved(self, topic_id: int, ceiling: int) -> None: ...

    def records_expired(self, topic_id: int, ttl_lost_seq: int) -> None: ...


class ReplayedShard(NamedTuple):
    next_lsn: int
    torn: TornTail | None


class Recovered(NamedTuple):
    snapshot_number: int
    next_topic_id: int
    images: list[TopicImage]
    absorbed: dict[str, int]  # what the snapshot had of each shard
    shards: dict[str, ReplayedShard]  # by directory, relative to the WAL's
    clean: bool  # the last process stopped cleanly: nothing was lost
    damaged_snapshots: tuple[CorruptFile, ...]
    frames: int


_created = msgspec.json.Decoder(TopicCreated).decode
_updated = msgspec.json.Decoder(ConfigUpdated).decode
_lease_event = msgspec.json.Decoder(LeaseEvent).decode
_deleted = msgspec.json.Decoder(RecordsDeleted).decode
_reserved = msgspec.json.Decoder(HeadReserved).decode
_expired = msgspec.json.Decoder(RecordsExpired).decode
_topic_deleted = msgspec.json.Decoder(TopicDeleted).decode
_router_changed = msgspec.json.Decoder(RouterChanged).decode
_router_deleted = msgspec.json.Decoder(RouterDeleted).decode


class Recovery:
    """`progress` is called now and then with how much is done, 0 to 1; `on_wal_file` with the path of each WAL file
    before the first operation from it is handed over."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        tiers: Tiers,
        target: RecoveryTarget,
        progress: Callable[[float], None],
        on_wal_file: Callable[[str], None] = lambda path: None,
    ) -> None:
        self._disk = disk
        self._root = root
        self._tiers = tiers
        self._target = target
        self._progress = progress
        self._on_wal_file = on_wal_file
        self._replays: dict[str, ShardReplay] = {}
        # Appends of one topic gathered into one call.
        self._topic_id = 0
        self._first_seq = 0
        self._records: list[ReplayedRecord] = []

    def run(self) -> Recovered:
        directory = paths.meta_dir(self._root)
        loaded = snapshot.load_latest(self._disk, directory)
        number, next_topic_id, clean = 0, 1, True
        absorbed: dict[str, int] = {}
        images: list[TopicImage] = []
        if loaded is not None:
            state, images = decode_state(loaded.body, f"{directory}/{paths.snapshot_name(loaded.number)}")
            number, next_topic_id, absorbed, clean = loaded.number, state.next_topic_id, state.shards, state.clean
        for image in images:
            self._target.load_topic(image, self._load_segments(image))
        frames = 0
        self._replays = {
            name: ShardReplay(self._disk, self._shard_path(name), absorbed.get(name, 0), self._begin_file)
            for name in sorted({*self._shard_names(), *absorbed})
        }
        total = sum(replay.total_bytes for replay in self._replays.values()) or 1
        for replay in self._replays.values():
            for frame in replay:
                frames += 1
                self._apply(frame[0], frame[1], frame[2], frame[3], frame[4], frame[5], frame[6], frame[7])
                if frames % 20_000 == 0:
                    self._progress(sum(each.read_bytes for each in self._replays.values()) / total)
            self._hand_over()
        next_topic_id = max(next_topic_id, self._highest_topic_id + 1)
        return Recovered(
            snapshot_number=number,
            next_topic_id=next_topic_id,
            images=images,
            absorbed=absorbed,
            shards={name: ReplayedShard(replay.next_lsn, replay.torn) for name, replay in self._replays.items()},
            clean=clean and frames == 0,
            damaged_snapshots=() if loaded is None else loaded.damaged,
            frames=frames,
        )

    def repair(self) -> None:
        """Cuts torn tails off. Call once everything was replayed."""
        for replay in self._replays.values():
            replay.repair()

    _highest_topic_id = 0

    def _apply(
        self, kind: int, flags: int, topic_id: int, seq: int, ts: int, node: bytes, tag: bytes, payload: bytes
    ) -> None:
        if kind == 1:
            if (
                topic_id != self._topic_id
                or seq != self._first_seq + len(self._records)
                or (len(self._records) >= APPENDS_GATHERED_MAX and not self._records[-1][0] & BATCH_CONTINUES)
            ):
                self._hand_over()
                self._topic_id, self._first_seq = topic_id, seq
            self._records.append((flags, ts, node, tag, payload))
            return
        self._hand_over()
        target = self._target
        if seq:
            target.forwarded_through(topic_id, seq)
        if kind == FrameKind.TOPIC_CREATE:
            self._highest_topic_id = max(self._highest_topic_id, topic_id)
            target.topic_created(topic_id, ts, _created(payload))
        elif kind == FrameKind.CONFIG_UPDATE:
            updated = _updated(payload)
            if updated.config is not None:
                target.config_updated(topic_id, ts, updated.config, updated.version)
            if updated.cursor is not None:
                target.cursor_set(topic_id, ts, updated.cursor)
        elif kind == FrameKind.TOPIC_DELETE:
            target.topic_deleted(topic_id, _topic_deleted(payload))
        elif kind == FrameKind.ROUTER_CREATE:
            change = _router_changed(payload)
            if change.put is not None:
                self._highest_topic_id = max(self._highest_topic_id, change.put.router_id)
            target.router_changed(topic_id, change)
        elif kind == FrameKind.ROUTER_DELETE:
            target.router_deleted(topic_id, _router_deleted(payload).router_id)
        elif kind == FrameKind.DELETE:
            deleted = _deleted(payload)
            if deleted.seqs is None:
                target.records_deleted(topic_id, deleted.before_seq, deleted.match)
            else:
                target.jobs_deleted(topic_id, deleted.seqs, deleted.move)
        elif kind == FrameKind.LEASE:
            target.lease_changed(topic_id, _lease_event(payload))
        elif kind == FrameKind.HEAD_WATERMARK:
            target.head_reserved(topic_id, _reserved(payload).ceiling)
        elif kind == FrameKind.EVICT_WATERMARK:
            target.records_expired(topic_id, _expired(payload).ttl_lost_seq)
        else:
            raise AssertionError(f"no operation for frames of type {kind}")

    def _hand_over(self) -> None:
        if self._records:
            records, self._records = self._records, []
            self._target.appended(self._topic_id, self._first_seq, records)

    def _begin_file(self, path: str) -> None:
        self._hand_over()
        self._on_wal_file(path)

    def _load_segments(self, image: TopicImage) -> list[Tail]:
        """Checks that every segment is there and as long as it should be; reads the unsealed ones."""
        tails: list[Tail] = []
        for segment in image.segments:
            if segment.cleared:
                continue
            directory = self._tiers.directory(image.topic_id, cold=segment.cold)
            path = paths.segment_path(directory, segment.first_seq, paths.SegmentPart.DATA)
            if not self._disk.exists(path):
                raise CorruptFile(path, 0, f"missing: it held seqs {segment.first_seq} on of topic {image.name!r}")
            size = self._disk.size(path)
            if size < segment.data_bytes or (segment.sealed and size != segment.data_bytes):
                raise CorruptFile(path, size, f"{size} bytes long where {segment.data_bytes} are due")
            if not segment.sealed:
                reader = SegmentReader(self._disk, directory, segment.first_seq, segment.data_bytes)
                if reader.count != segment.count:
                    raise CorruptFile(path, size, f"{reader.count} records where {segment.count} are due")
                records = reader.slices(0, reader.count, with_deleted=True)
                deleted = [reader.deleted(position) for position in range(reader.count)]
                dead_below = max(image.earliest_seq - segment.first_seq, 0)
                left = deleted[dead_below:].count(False)
                if left > segment.live_count:
                    marked = f"{left} records are not marked deleted where {segment.live_count} should be left"
                    raise CorruptFile(path, 0, marked)
                tails.append((segment, records, deleted))
        return tails

    def _shard_names(self) -> Iterator[str]:
        """Every shard directory there is, the flat layout as an empty name."""
        wal = paths.wal_dir(self._root)
        names = self._disk.list_dir(wal)
        if any(paths.parse_wal_file_name(name) is not None for name in names):
            yield ""
        yield from (name for name in names if paths.parse_shard_name(name) is not None)

    def _shard_path(self, name: str) -> str:
        wal = paths.wal_dir(self._root)
        return f"{wal}/{name}" if name else wal
