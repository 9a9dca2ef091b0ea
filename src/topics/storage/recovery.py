"""Recovery: base and increments, segments, then every WAL shard found, whatever their number was.

What comes out goes to a `RecoveryTarget`, as operations in the order they happened to each topic: what an earlier
process wrote comes first, to whatever shards; of each process, the shard of the topics that exchange records comes
last, because a topic that has entered it has all before that in another one. Nothing on disk is changed but torn
tails, and those only by `repair`: recovering again gives the same.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice
from typing import NamedTuple, Protocol

import msgspec

from topics.model.image import SegmentImage, TopicImage
from topics.model.operation import Operation, RouterPut, TopicCreated
from topics.model.record import Batch
from topics.storage import paths, snapshot_chain
from topics.storage.errors import CorruptFile, UnknownVersion
from topics.storage.fs import Disk
from topics.storage.operation_codec import batch_of, operations_of
from topics.storage.segment_format import DELETED, decode_records
from topics.storage.snapshot_chain import TailPiece, Tails, tail_bytes
from topics.storage.tiers import Tiers
from topics.storage.wal_positions import read_positions
from topics.storage.wal_replay import ShardReplay, TornTail, WalPiece


class RecoveryTarget(Protocol):
    def load(self, images: list[TopicImage], tails: Tails) -> None:
        """Everything there was at the snapshot, and the records of it that no segment has."""
        ...

    def apply(self, operation: Operation) -> None:
        """What happened next."""
        ...


class ReplayedShard(NamedTuple):
    next_lsn: int
    torn: TornTail | None


class Recovered(NamedTuple):
    snapshot_number: int
    next_id: int
    start: int  # the number of the last process that wrote
    images: list[TopicImage]
    absorbed: dict[str, int]  # what the snapshot had of each shard
    shards: dict[str, ReplayedShard]  # by directory, relative to the WAL's
    clean: bool  # the last process stopped cleanly: nothing was lost
    damaged_snapshots: tuple[CorruptFile, ...]
    frames: int


class Tail(NamedTuple):
    """The records of a tail, and which of them are deleted."""

    batch: Batch
    timestamps: "array[int]"
    deleted: list[bool]


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

    def run(self) -> Recovered:
        loaded = snapshot_chain.load_latest(self._disk, paths.meta_dir(self._root))
        number, next_id, start, clean = 0, 1, 0, True
        absorbed: dict[str, int] = {}
        images: list[TopicImage] = []
        tails: Tails = {}
        if loaded is not None:
            number, head, images, tails = loaded.number, loaded.head, loaded.images, loaded.tails
            next_id, absorbed, start, clean = head.next_id, head.shards, head.start, head.clean
        for image in images:
            self._check_segments(image)
        self._target.load(images, tails)
        self._replays = {
            name: ShardReplay(self._disk, self._shard_path(name), absorbed.get(name, 0))
            for name in sorted({*self._shard_names(), *absorbed})
        }
        for piece in self._pieces():
            start = max(start, piece.start)
            for operation in self._operations(piece):
                if isinstance(operation, TopicCreated):
                    next_id = max(next_id, operation.topic_id + 1)
                elif isinstance(operation, RouterPut):
                    next_id = max(next_id, operation.router_id + 1)
                self._target.apply(operation)
        self._check_ends()
        frames = sum(replay.frame_count for replay in self._replays.values())
        return Recovered(
            snapshot_number=number,
            next_id=next_id,
            start=start,
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

    def _pieces(self) -> list[WalPiece]:
        """Everything there is to replay, in the order it was written, as far as that counts."""
        found = [
            (piece.start, paths.is_exchange_shard(name), name, position, piece)
            for name, replay in self._replays.items()
            for position, piece in enumerate(replay.pieces())
        ]
        return [each[4] for each in sorted(found, key=lambda each: each[:4])]

    def _operations(self, piece: WalPiece) -> Iterator[Operation]:
        total = sum(each.total_bytes for each in self._replays.values()) or 1
        self._on_wal_file(piece.path)
        try:
            for number, operation in enumerate(operations_of(piece.frames)):
                yield operation
                if number % 100 == 0:
                    self._progress(sum(each.read_bytes for each in self._replays.values()) / total)
        except msgspec.DecodeError as error:
            raise UnknownVersion(piece.path, f"an operation that cannot be read: {error}") from error

    def _check_ends(self) -> None:
        """A log that ends below what is known to be synced has lost durable frames, however its end looks."""
        positions = read_positions(self._disk, self._root)
        for name, replay in self._replays.items():
            replay.check_end(0 if positions is None else positions.synced.get(name, 0))

    def _check_segments(self, image: TopicImage) -> None:
        """Every segment has to be there and as long as it should be."""
        for segment in image.segments:
            if segment.cleared or not segment.sealed:
                continue
            directory = self._tiers.directory(image.topic_id, cold=segment.cold)
            path = paths.segment_path(directory, segment.first_seq, paths.SegmentPart.DATA)
            if not self._disk.exists(path):
                if segment.cold:
                    self._tiers.cold.check()  # if that is the reason, it is the better one to give
                raise CorruptFile(path, 0, f"missing: it held seqs {segment.first_seq} on of topic {image.name!r}")
            size = self._disk.size(path)
            if size != segment.data_bytes:
                raise CorruptFile(path, size, f"{size} bytes long, expected {segment.data_bytes}")

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


class StoredTail(NamedTuple):
    """The bytes of a tail, whose checksum was right; its records are still to be read. `path`: of the file with the
    last of them. `name`, `earliest_seq`: of its topic."""

    path: str
    name: str
    earliest_seq: int
    segment: SegmentImage
    content: bytes

    def read(self) -> Tail:
        """Hot: once for each topic, at the start or when somebody first wants a record of it."""
        path, name, earliest_seq, segment, content = self
        stop_seq = segment.first_seq + segment.count

        def corrupt(offset: int, seq: int) -> CorruptFile:
            return CorruptFile(path, offset, f"seq {seq} of topic {name!r} cannot be read")

        records = decode_records(content, 0, segment.first_seq, stop_seq, corrupt, with_deleted=True)
        _, timestamps, nodes, tags, payloads = zip(*records, strict=True) if records else ((),) * 5
        batch = batch_of(segment.first_seq, timestamps, nodes, tags, payloads)
        if batch.total_bytes != len(content):
            raise corrupt(batch.total_bytes, stop_seq)
        deleted = _deleted(content, batch.sizes)
        for position in segment.deleted:
            deleted[position] = True
        dead_below = max(earliest_seq - segment.first_seq, 0)
        left = deleted[dead_below:].count(False)
        if left != segment.live_count:
            marked = f"{left} records are not marked deleted where {segment.live_count} should be left"
            raise CorruptFile(path, 0, f"topic {name!r}: {marked}")
        return Tail(batch, array("q", timestamps), deleted)


def find_tail(image: TopicImage, segment: SegmentImage, pieces: list[TailPiece]) -> StoredTail:
    """Its bytes are all there, or it is `CorruptFile`."""
    path = pieces[-1].file.path if pieces else f"the tail of topic {image.name!r}"
    content = tail_bytes(pieces)
    if len(content) != segment.data_bytes:
        reason = f"topic {image.name!r} has {len(content)} bytes of its tail, expected {segment.data_bytes}"
        raise CorruptFile(path, 0, reason)
    return StoredTail(path, image.name, image.earliest_seq, segment, content)


def read_tail(image: TopicImage, segment: SegmentImage, pieces: list[TailPiece]) -> Tail:
    """The records of a tail."""
    return find_tail(image, segment, pieces).read()


def _deleted(content: bytes, sizes: Iterable[int]) -> list[bool]:
    """Whether each of these frames is marked deleted, which its last byte says."""
    last_bytes = list(map(content.__getitem__, islice(accumulate(sizes, initial=-1), 1, None)))
    if DELETED not in last_bytes:
        return [False] * len(last_bytes)
    return [byte == DELETED for byte in last_bytes]
