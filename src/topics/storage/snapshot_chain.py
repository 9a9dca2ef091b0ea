"""Which snapshot files make a state: the newest base that is whole, and every increment after it.

    snapshot.0007.bin  increment.0008.bin  increment.0009.bin     the state of snapshot 9

A base of the same number as an increment has the same state: it was folded from the files up to that one. The base
before it, and the increments that were folded, are kept until the next fold, so that a damaged base can be passed
over. A damaged newest increment is passed over, too: what the one before it needs of the log is kept. Any other damage
is `CorruptFile`: what would replace it is gone.

`save` is atomic; its commit point is the sync of the directory, after the rename.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from topics import limits
from topics.model.image import TopicImage
from topics.storage import paths, snapshot
from topics.storage.errors import CorruptFile, DiskFailed, UnknownVersion, failing_as
from topics.storage.fs import Disk
from topics.storage.snapshot import Chunk, Head, NewTail, Place, SnapshotFile, SnapshotWriter, TopicEntry

BASES_KEPT = 2


class TailPiece(NamedTuple):
    """A part of a tail: some bytes of one snapshot file."""

    file: SnapshotFile
    place: Place


Tails = Mapping[tuple[int, int], list[TailPiece]]
"""By topic id and first seq: the pieces of each tail, in order."""

decode_image = msgspec.msgpack.Decoder(TopicImage).decode
encode_image = msgspec.msgpack.Encoder().encode


class LoadedState(NamedTuple):
    """`path`: of its newest file."""

    path: str
    number: int
    head: Head
    images: list[TopicImage]
    tails: Tails
    damaged: tuple[CorruptFile, ...]
    """Files that could not be read and were passed over: to be reported."""


class Numbers(NamedTuple):
    """The files there are, each kind newest first."""

    bases: list[int]
    increments: list[int]

    @property
    def newest(self) -> int:
        """The last snapshot there is, whole or not; 0 when there is none."""
        return max([*self.bases[:1], *self.increments[:1]], default=0)


def numbers(disk: Disk, directory: str) -> Numbers:
    names = disk.list_dir(directory)
    bases = [number for number in map(paths.parse_snapshot_name, names) if number is not None]
    increments = [number for number in map(paths.parse_increment_name, names) if number is not None]
    return Numbers(sorted(bases, reverse=True), sorted(increments, reverse=True))


def base_path(directory: str, number: int) -> str:
    return f"{directory}/{paths.snapshot_name(number)}"


def increment_path(directory: str, number: int) -> str:
    return f"{directory}/{paths.increment_name(number)}"


def load_latest(disk: Disk, directory: str, through: int = limits.U64_MAX) -> LoadedState | None:
    """The newest state, or that of snapshot `through`; None when there is no snapshot at all. Raises `CorruptFile`, or
    `UnknownVersion`: an older state would silently undo what another version did."""
    files, damaged = read_chain(disk, directory, through)
    if not files:
        if damaged:
            raise damaged[0]
        return None
    images: list[TopicImage] = []
    tails: dict[tuple[int, int], list[TailPiece]] = {}
    for topic in _Merged(files):
        try:
            images.append(decode_image(topic.file.at(topic.image)))
        except msgspec.DecodeError as error:
            raise UnknownVersion(topic.file.path, f"a topic that cannot be read: {error}") from error
        for first_seq, pieces in topic.tails.items():
            tails[topic.topic_id, first_seq] = pieces
    head = files[-1].head
    return LoadedState(files[-1].path, head.number, head, images, tails, tuple(damaged))


def tail_bytes(pieces: list[TailPiece]) -> bytes:
    if len(pieces) == 1:  # most topics are small, and none of them was written to again
        return pieces[0].file.at(pieces[0].place)
    return b"".join(piece.file.at(piece.place) for piece in pieces)


def read_chain(
    disk: Disk, directory: str, through: int = limits.U64_MAX
) -> tuple[list[SnapshotFile], list[CorruptFile]]:
    """The files that make the newest state, or that of snapshot `through`, oldest first, and what is wrong with those
    that were passed over."""
    found = numbers(disk, directory)
    damaged: list[CorruptFile] = []
    files: list[SnapshotFile] = []
    for number in (number for number in found.bases if number <= through):
        try:
            files.append(snapshot.load(disk, base_path(directory, number)))
            break
        except CorruptFile as error:
            damaged.append(error)
    if not files and damaged and 1 not in found.increments:
        raise damaged[0]
    number = files[0].head.number if files else 0
    newest = min(found.increments[0], through) if found.increments else 0
    while number < newest:
        number += 1
        path = increment_path(directory, number)
        if number not in found.increments:
            raise CorruptFile(path, 0, f"missing: {paths.increment_name(newest)} goes on from it")
        try:
            file = snapshot.load(disk, path)
        except CorruptFile as error:
            if number < newest or not files:
                raise
            damaged.append(error)
            break
        if file.head.number != number or file.head.base != number - 1:
            raise CorruptFile(path, 0, f"it is number {file.head.number}, made to follow {file.head.base}")
        files.append(file)
    return files, damaged


class _MergedTopic(NamedTuple):
    topic_id: int
    file: SnapshotFile  # the newest that has it
    image: Place
    tails: dict[int, list[TailPiece]]


class _Merged:
    """Files laid over each other, oldest first. Holds numbers only, because there may be 100 000 topics, and none for
    the chunks of the first file, nearly always by far the largest, that have no topic of a later one."""

    def __init__(self, files: Sequence[SnapshotFile]) -> None:
        self._files = files
        self._unchanged: list[Chunk] = []
        # Of each other topic: offset * len(files) + number of the file, for each file that has it.
        self._places: dict[int, tuple[int, ...]] = {}
        first, later = files[0], files[1:]
        changed = {topic_id for file in later for ids in (file.topic_ids(), file.removed) for topic_id in ids}
        for chunk in first.chunks:
            topic_ids = list(first.topic_ids(chunk.first, chunk.stop))
            if changed.isdisjoint(topic_ids):
                self._unchanged.append(chunk)
            else:
                self._lay(0, topic_ids, first.offsets[chunk.first : chunk.stop])
        for number, file in enumerate(later, 1):
            self._lay(number, file.topic_ids(), file.offsets)
            for topic_id in file.removed:
                self._places.pop(topic_id, None)

    def _lay(self, number: int, topic_ids: Iterable[int], offsets: Sequence[int]) -> None:
        places, count = self._places, len(self._files)
        for topic_id, offset in zip(topic_ids, offsets, strict=True):
            place = offset * count + number
            before = places.get(topic_id)
            places[topic_id] = (place,) if before is None else (*before, place)

    def __iter__(self) -> Iterator[_MergedTopic]:
        """Each topic as the newest file has it, with tails from all of them. Once for each topic at a start."""
        first, count = self._files[0], len(self._files)
        for chunk in self._unchanged:
            for offset in first.offsets[chunk.first : chunk.stop]:
                yield self._topic((offset * count,))
        yield from map(self._topic, self._places.values())

    def _topic(self, places: tuple[int, ...]) -> _MergedTopic:
        files = self._files
        tails: dict[int, list[TailPiece]] = {}
        for place in places:
            offset, number = divmod(place, len(files))
            file = files[number]
            topic_id, image, found = file.topic(offset)
            earlier, tails = tails, {}
            for first_seq, kept_bytes, added in found:
                kept = earlier.get(first_seq, [])
                if (sum(piece.place.length for piece in kept) if kept else 0) != kept_bytes:
                    reason = f"a tail of topic {topic_id} goes on behind {kept_bytes} bytes that are not there"
                    raise CorruptFile(file.path, added.offset, reason)
                tails[first_seq] = [*kept, TailPiece(file, added)] if added.length else kept
        return _MergedTopic(topic_id, file, image, tails)

    def write(self, saving: "Saving", is_stopped: Callable[[], bool]) -> None:
        """All of it. Raises `FoldStopped`."""
        first = self._files[0]
        for chunk in self._unchanged:
            _go_on(is_stopped)
            saving.add_chunk(first.view(chunk.body), chunk.stop - chunk.first)
        for places in self._places.values():
            _go_on(is_stopped)
            topic_id, file, image, tails = self._topic(places)
            whole = [
                NewTail(
                    first_seq,
                    0,
                    sum(piece.place.length for piece in pieces),
                    (piece.file.view(piece.place) for piece in pieces),
                )
                for first_seq, pieces in tails.items()
            ]
            saving.add(TopicEntry(topic_id, file.at(image), whole))


def _go_on(is_stopped: Callable[[], bool]) -> None:
    if is_stopped():
        raise FoldStopped


class Saving:
    """A snapshot that is being written, under a temporary name until `commit`."""

    def __init__(self, disk: Disk, path: str, head: Head) -> None:
        self._disk = disk
        self._path = path
        self._temporary = paths.temporary(path)
        with failing_as(path, "saving a snapshot"):
            disk.make_dir(paths.parent(path))
            disk.remove(self._temporary)
            self._file = disk.create(self._temporary)
            try:
                self._writer = SnapshotWriter(self._file, head)
            except OSError:
                with suppress(DiskFailed):
                    self.drop()
                raise

    def add(self, topic: TopicEntry) -> None:
        with failing_as(self._path, "saving a snapshot"):
            self._writer.add(topic)

    def add_chunk(self, body: memoryview, topics: int) -> None:
        with failing_as(self._path, "saving a snapshot"):
            self._writer.add_chunk(body, topics)

    def commit(self, removed: Iterable[int]) -> None:
        """Durable when it returns."""
        with failing_as(self._path, "saving a snapshot"):
            self._writer.finish(removed)
            self._file.close()
            self._disk.rename(self._temporary, self._path)
            self._disk.sync_dir(paths.parent(self._path))

    def drop(self) -> None:
        """Leaves nothing behind but, where the disk refuses that too, a temporary file."""
        self._file.close()
        with failing_as(self._temporary, "removing what is left of a snapshot"):
            self._disk.remove(self._temporary)


def save_base(disk: Disk, directory: str, head: Head, write: Callable[[Saving], None]) -> None:
    """A base, durable when it returns, with what `write` adds."""
    saving = Saving(disk, base_path(directory, head.number), head)
    try:
        write(saving)
        saving.commit(())
    except BaseException:
        with suppress(DiskFailed):
            saving.drop()  # a disk without room needs it
        raise


def outgrown(disk: Disk, directory: str) -> bool:
    """Whether the increments after the newest base are together larger than that, or too many."""
    found = numbers(disk, directory)
    base = found.bases[0] if found.bases else 0
    after = [number for number in found.increments if number > base]
    size = sum(disk.size(increment_path(directory, number)) for number in after)
    bytes_max = max(limits.FOLD_BYTES_MIN, disk.size(base_path(directory, base)) if base else 0)
    return size > bytes_max or len(after) > limits.INCREMENTS_MAX


def can_give_back(disk: Disk, directory: str) -> bool:
    """Whether a disk without room has much to gain from `give_back`."""
    found = numbers(disk, directory)
    older = [base_path(directory, number) for number in found.bases[1:]]
    older += [increment_path(directory, number) for number in found.increments]
    return sum(map(disk.size, older)) > limits.FOLD_BYTES_MIN


class FoldStopped(Exception):
    """Somebody could not wait for it."""


def fold(disk: Disk, directory: str, through: int, is_stopped: Callable[[], bool] = lambda: False) -> int:
    """Makes a base of the state of snapshot `through`, from the files alone, and removes what neither it nor the base
    before it needs. Returns its number; 0 when there is nothing to fold, when something is damaged (a start tells of
    that), or when it was stopped."""
    found = numbers(disk, directory)
    base = found.bases[0] if found.bases else 0
    try:
        files, damaged = read_chain(disk, directory, through)
    except (CorruptFile, UnknownVersion):
        return 0
    bad_bases = [number for number in found.bases if not files or number > files[0].head.number]
    if len(damaged) > len(bad_bases) or not files or files[-1].head.number <= base:
        return 0
    head = msgspec.structs.replace(files[-1].head, base=0)
    try:
        save_base(disk, directory, head, lambda saving: _Merged(files).write(saving, is_stopped))
    except FoldStopped:
        return 0
    with failing_as(directory, "removing damaged snapshots"):
        for number in bad_bases:
            disk.remove(base_path(directory, number))
    remove_folded(disk, directory)
    return head.number


def give_back(disk: Disk, directory: str, through: int, is_stopped: Callable[[], bool] = lambda: False) -> None:
    """For a disk without room: folds, and keeps nothing but the newest base and what follows it, if that base is whole.
    An older base is kept only in case damage is found later, and running out of room is worse."""
    fold(disk, directory, through, is_stopped)
    found = numbers(disk, directory)
    if found.bases:
        try:
            snapshot.load(disk, base_path(directory, found.bases[0]))
        except (CorruptFile, UnknownVersion):
            return
        remove_folded(disk, directory, bases_kept=1)


def remove_folded(disk: Disk, directory: str, bases_kept: int = BASES_KEPT) -> None:
    """Removes bases beyond the newest ones, and increments that the oldest of these has."""
    found = numbers(disk, directory)
    kept = found.bases[:bases_kept]
    with failing_as(directory, "removing old snapshots"):
        for number in found.bases[bases_kept:]:
            disk.remove(base_path(directory, number))
        if len(kept) == bases_kept:
            for number in found.increments:
                if number <= kept[-1]:
                    disk.remove(increment_path(directory, number))
