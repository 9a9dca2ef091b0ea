"""Copies a data directory into a new one that a server can be started on, while another server goes on writing.

What is relied on is the order of that server's writes (`checkpoint.py`, `wal_writer.py`), and that it notes every 100
ms how far all shards of its log are at one instant: a *cut* (`wal_positions.py`).

    1. read the newest snapshot, N             base and increments: it has the tails, and says which segments, and from
                                               which lsns on the WAL, belong to it
    2. copy the segments of N                  each up to the length N knows
    3. wait for a cut                          noted since the copy began, and not before N was
    4. copy the WAL of N's shards              from the file that holds N's lsn on, up to the lsn of the cut
    5. look whether there is an N + 2          if so, begin again with the newest one
    6. write N as a base, its segments all hot; sync; check the copy like `topics verify`; give it its name

Without a server (nobody holds LOCK) there is no cut: the log is copied up to its end, as a start would read it. Should
one start meanwhile, the copy begins again.

Why the copy is a state the server was in:

- *It is one instant, of all topics.* N is one instant of the log, and so is the cut: below its lsns is everything that
  was handed over before it, in whatever shard, and nothing that came later. A job that moves is in one topic; what was
  written after something else was seen is never there without that. Should the server be killed, or started anew,
  before the log has reached the cut, the copy begins again.
- *Nothing N needs was removed meanwhile.* Segments that only N points to, and WAL files that only N needs, are
  removed after snapshot N + 2 is saved. So if that is not there at step 5, everything was. (A start may remove segments
  earlier, and a fold may remove increments while they are read: then a file is missing here, and that begins again,
  too.)
- *Nothing acknowledged before the copy is missing*, of whatever class: the cut was noted later.
- *A reader that is overtaken sees holes.* Each file is read once, front to back. A batch seen with a hole in it with a
  sync mark behind looks like corruption; frames never change once written, so that is read again, and a hole that stays
  is one.
- *Nothing deleted comes back, nothing is deleted that neither N nor the log says.* A segment changes only in delete
  bytes. What N has as deleted it lists, or the byte was set before N was saved, so before step 2. A byte
  set later is one of those N lists: the first that N does not list are set after snapshot N + 2 is saved, and step 5
  sees that. What was deleted since N is in the log.
- *A topic's operations stay in order, with none left out.* They are all in one shard, and when a topic changes to the
  shard of those that exchange records, everything before that is below the cut as well. A start with another shard
  count saves a snapshot with other shard names before it takes a write: step 5 sees that, and begins again.

Beginning again keeps the sealed segments that were copied, so a copy slower than the checkpoints comes to an end. Of
a kept one the delete bytes may be stale. Bytes are only ever set, so it is as N has it exactly when, without those N
lists as deleted, it has as many live records as N says; else it is copied again.

Until its last step the copy is called `<target>.tmp`: an interrupted one never looks whole. It holds a lock, so what
is found under that name without being locked was left behind, and is cleared away.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from topics import limits
from topics.clock import pause
from topics.model.image import SegmentImage, TopicImage
from topics.storage import identity, paths, snapshot, snapshot_chain
from topics.storage.errors import BackupFailed, CorruptFile, NoDataDirectory, TargetNotEmpty, failing_as
from topics.storage.findings import Finding, Severity
from topics.storage.frame import CHECKPOINT_MARK
from topics.storage.fs import Disk, write_file
from topics.storage.paths import SegmentPart
from topics.storage.segment_reader import SegmentReader
from topics.storage.segment_writer import remove_segment, rewrite_sidecars
from topics.storage.snapshot import NewTail, TopicEntry
from topics.storage.snapshot_chain import LoadedState, Saving, encode_image, tail_bytes
from topics.storage.tiers import Tiers
from topics.storage.verify import verify_directory
from topics.storage.verify_topic import count_live
from topics.storage.wal_mark import find_sync_mark, sync_mark
from topics.storage.wal_positions import Cut, read_positions
from topics.storage.wal_reader import scan
from topics.storage.wal_writer import WalFile, wal_files

ATTEMPTS_MAX = 20

_SYNC_MARK_BYTES_MAX = len(sync_mark(2**63))

Progress = Callable[[int, int], None]
"""Called now and then with the bytes copied so far and the bytes to copy."""

Pause = Callable[[float], None]
"""Lets so many seconds pass."""


@dataclass(frozen=True, slots=True)
class BackupResult:
    topics: int
    segments: int
    wal_frames: int
    copied_bytes: int
    attempts: int
    damaged_snapshots: tuple[CorruptFile, ...]
    """Newer snapshots of the source that could not be read and were passed over."""


class _Overtaken(Exception):
    """The server has moved on to a newer snapshot and removed what this one needs."""


def back_up(
    disk: Disk,
    root: str,
    cold_root: str,
    target: str,
    progress: Progress = lambda done, total: None,
    wait: Pause = pause,
) -> BackupResult:
    """Copies `root` (and what it has in `cold_root`) to `target`, sound and durable when it returns.

    Raises `TargetNotEmpty`, `NoDataDirectory`, `CorruptFile` (the source is damaged), `ColdTierNotOurs`,
    `BackupFailed`, `DiskFailed`. The id of a cold tier is not copied: what is restored gets one of its own.
    """
    root, target = root.rstrip("/"), target.rstrip("/")
    with failing_as(target, "copying"):
        if any(f"{target}/".startswith(f"{source}/") for source in (root, cold_root.rstrip("/")) if source):
            raise BackupFailed(f"{target} is within {root}: name a directory outside of what is copied")
        if disk.exists(target) and disk.list_dir(target):
            raise TargetNotEmpty(target)
        temporary = paths.temporary(target)
        _clear_left_over(disk, temporary)
        disk.make_dir(temporary)
        lock = disk.lock(paths.lock_path(temporary))
        try:
            disk.sync_dir(temporary)  # so that what is left of an interrupted copy is known for one
            result = _Copy(disk, root, cold_root, temporary, progress, wait).run()
            disk.sync_dir(temporary)
            disk.rename(temporary, target)
            disk.remove(paths.lock_path(target))
            disk.sync_dir(target)
            disk.sync_dir(paths.parent(target))
        except BaseException:
            disk.remove_tree(temporary)
            raise
        finally:
            lock.release()
    return result


def restore(disk: Disk, backup: str, target: str, progress: Progress = lambda done, total: None) -> BackupResult:
    """A new data directory from a backup: copied and checked in the same way as a data directory."""
    return back_up(disk, backup, "", target, progress)


def is_overtaken(disk: Disk, root: str, number: int, shard_names: AbstractSet[str]) -> bool:
    """Whether the server may have removed what snapshot `number`, of these WAL shards, needs. While it has not, all of
    it is there (see the module). 0 is the state before the first snapshot."""
    directory = paths.meta_dir(root)
    newest = snapshot_chain.numbers(disk, directory).newest
    if newest > number + 1 or newest < number or (newest and not number):
        return True
    if newest > number:
        path = snapshot_chain.increment_path(directory, newest)
        try:
            return snapshot.decode_head(disk.map(path), path).shards.keys() != shard_names
        except CorruptFile:
            return False  # damaged before the reading began: it was passed over for this one
    return False


def _clear_left_over(disk: Disk, temporary: str) -> None:
    if not disk.exists(temporary):
        return
    if disk.list_dir(temporary) and not disk.exists(paths.lock_path(temporary)):
        raise TargetNotEmpty(temporary)
    disk.lock(paths.lock_path(temporary)).release()
    disk.remove_tree(temporary)


class _Copy:
    def __init__(self, disk: Disk, root: str, cold_root: str, target: str, progress: Progress, wait: Pause) -> None:
        self._disk = disk
        self._wait = wait
        self._root = root
        self._begun_at = self._noted_cut()
        self._source = Tiers(disk, root, cold_root, 0, 0)
        self._cold_root = cold_root
        self._target = target
        self._progress = progress
        self._begun: set[tuple[int, int]] = set()
        self._sealed: dict[tuple[int, int], SegmentImage] = {}
        self._copied_bytes = 0
        self._total_bytes = 0
        self._damaged: tuple[CorruptFile, ...] = ()

    def run(self) -> BackupResult:
        self._source.cold.check()
        missing: tuple[int, str] | None = None
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                loaded = self._newest()
            except FileNotFoundError:
                continue  # listed, and removed before it was read
            number, images = loaded.number, loaded.images
            try:
                try:
                    self._copy(loaded)
                finally:
                    # Damage may only be called so while everything has to be there.
                    self._check_not_overtaken(loaded)
                self._finish(loaded)
            except _Overtaken:
                continue
            except FileNotFoundError as error:
                # A start may have removed it; with the same snapshot still the newest, it is simply not there.
                if missing == (number, error.filename):
                    raise CorruptFile(error.filename, 0, "missing") from error
                missing = (number, error.filename)
                continue
            except CorruptFile as error:
                raise CorruptFile(self._in_source(error.path), error.offset, error.reason) from error
            return self._result(len(images), attempt)
        raise BackupFailed(f"{self._root} changed faster than it could be copied, {ATTEMPTS_MAX} times in a row")

    def _result(self, topics: int, attempts: int) -> BackupResult:
        """Checks the copy as a whole."""
        report = verify_directory(self._disk, self._target, "")
        if self._rewrite_sidecars(report.of(Severity.PROBLEM)):
            report = verify_directory(self._disk, self._target, "")
        for finding in report.of(Severity.PROBLEM):
            raise CorruptFile(self._in_source(finding.path), finding.offset, finding.reason)
        return BackupResult(
            topics=topics,
            segments=sum(topic.segments for topic in report.topics),
            wal_frames=report.wal_frames,
            copied_bytes=self._copied_bytes,
            attempts=attempts,
            damaged_snapshots=self._damaged,
        )

    def _rewrite_sidecars(self, problems: list[Finding]) -> bool:
        """Rewrites sidecars that do not match their `.data`, which they are derived from. Returns whether there were
        any."""
        segments: set[tuple[str, int]] = set()
        for finding in problems:
            directory, _, name = finding.path.rpartition("/")
            parsed = paths.parse_segment_name(name)
            if parsed is not None and parsed[1] is not SegmentPart.DATA:
                segments.add((directory, parsed[0]))
        for directory, first_seq in segments:
            rewrite_sidecars(self._disk, directory, first_seq)
        return bool(segments)

    def _in_source(self, path: str) -> str:
        """Names the source file in an error about its copy: what is wrong with one is wrong with the other."""
        return self._root + path.removeprefix(self._target) if path.startswith(f"{self._target}/") else path

    # 1 and 5: the snapshot

    def _newest(self) -> LoadedState:
        loaded = snapshot_chain.load_latest(self._disk, paths.meta_dir(self._root))
        if loaded is None:
            raise NoDataDirectory(self._root)
        self._damaged = loaded.damaged
        return loaded

    def _check_not_overtaken(self, loaded: LoadedState) -> None:
        if is_overtaken(self._disk, self._root, loaded.number, loaded.head.shards.keys()):
            raise _Overtaken

    # 2 to 4: segments, then the WAL up to a cut

    def _copy(self, loaded: LoadedState) -> None:
        images = loaded.images
        self._total_bytes = sum(segment.data_bytes for image in images for segment in image.segments)
        self._total_bytes += self._copied_bytes - sum(segment.data_bytes for segment in self._sealed.values())
        free_bytes = self._disk.free_bytes(self._target)
        if free_bytes < self._total_bytes - self._copied_bytes:
            raise BackupFailed(f"{self._target} has room for {free_bytes} bytes, and {self._total_bytes} are needed")
        for image in images:
            for segment in image.segments:
                if segment.sealed and not segment.cleared:
                    self._copy_segment(image, segment)
        self._disk.remove_tree(paths.wal_dir(self._target))
        self._disk.sync_dir(self._target)
        cut = self._next_cut(loaded)
        for name, from_lsn in loaded.head.shards.items():
            self._copy_shard(name, from_lsn, cut)
        if cut is None:
            # Nobody wrote, unless a server has started meanwhile.
            if self._is_running() or self._newest_number() != loaded.number:
                raise _Overtaken
        elif (now := self._noted_cut()) is not None and now.start != cut.start:
            raise _Overtaken

    def _next_cut(self, loaded: LoadedState) -> Cut | None:
        """The first cut that was noted after the copy began, and not before the snapshot. None: nobody is writing."""
        for _ in range(limits.BACKUP_POLLS_MAX):
            if not self._is_running():
                return None
            cut, begun = self._noted_cut(), self._begun_at
            if (
                cut is not None
                and cut.number
                and (begun is None or cut[:2] > begun[:2])
                and all(cut.lsns.get(name, lsn) >= lsn for name, lsn in loaded.head.shards.items())
            ):
                return cut
            self._wait(limits.BACKUP_POLL_S)
        raise BackupFailed(
            f"{self._root} is locked, but no server there says how far it is: it is starting or stopping, or another "
            "tool holds the lock. Try again in a minute"
        )

    def _is_running(self) -> bool:
        return self._disk.is_locked(paths.lock_path(self._root))

    def _noted_cut(self) -> Cut | None:
        positions = read_positions(self._disk, self._root)
        return None if positions is None else positions.cut

    def _newest_number(self) -> int:
        return snapshot_chain.numbers(self._disk, paths.meta_dir(self._root)).newest

    def _copy_segment(self, image: TopicImage, segment: SegmentImage) -> None:
        if segment.cold and not self._cold_root:
            raise BackupFailed(f"segments of topic {image.name!r} are on the cold tier: name its directory")
        topic_id, first_seq = image.topic_id, segment.first_seq
        target = paths.topic_dir(self._target, topic_id)
        if (topic_id, first_seq) in self._sealed:
            reader = SegmentReader(self._disk, target, first_seq)
            if count_live(reader, image.earliest_seq, segment.deleted).live == segment.live_count:
                return
            del self._sealed[topic_id, first_seq]
        self._disk.make_dir(target)
        remove_segment(self._disk, target, first_seq)
        self._begun.add((topic_id, first_seq))
        source = self._source.directory(topic_id, cold=segment.cold)
        content = self._disk.read(paths.segment_path(source, first_seq, SegmentPart.DATA))
        write_file(self._disk, paths.segment_path(target, first_seq, SegmentPart.DATA), content[: segment.data_bytes])
        for part in (SegmentPart.INDEX, SegmentPart.TAGS):
            path = paths.segment_path(source, first_seq, part)
            if self._disk.exists(path):
                write_file(self._disk, paths.segment_path(target, first_seq, part), self._disk.read(path))
        self._sealed[topic_id, first_seq] = segment
        self._copied_bytes += segment.data_bytes
        self._progress(self._copied_bytes, self._total_bytes)

    def _copy_shard(self, name: str, from_lsn: int, cut: Cut | None) -> None:
        """Up to the cut, which the log may not have reached yet; without one, up to its end."""
        source, target = paths.shard_path(self._root, name), paths.shard_path(self._target, name)
        until_lsn = None if cut is None else cut.lsns.get(name)
        for _ in range(limits.BACKUP_POLLS_MAX):
            contents, next_lsn = self._read_shard(source, from_lsn, until_lsn)
            if until_lsn is None or next_lsn >= until_lsn:
                break
            if not self._is_running():
                raise _Overtaken  # it never will
            self._wait(limits.BACKUP_POLL_S)
        else:
            raise BackupFailed(f"{source} does not grow to lsn {until_lsn}: is its disk stuck? Try again later")
        self._disk.make_dir(target)
        for position, (file_name, content) in enumerate(contents):
            last = position + 1 == len(contents)
            write_file(self._disk, f"{target}/{file_name}", _closed(content) if last else content)
            if last:
                write_file(self._disk, f"{target}/{paths.CURRENT}", f"{file_name}\n".encode())
        self._disk.sync_dir(target)

    def _read_shard(self, source: str, from_lsn: int, until_lsn: int | None) -> tuple[list[tuple[str, bytes]], int]:
        """Names and contents of the files from the lsn on, and the lsn after the last frame in them."""
        files = wal_files(self._disk, source)
        begun = [position for position, file in enumerate(files) if file.first_lsn <= from_lsn]
        needed = files[begun[-1] :] if begun else files
        contents: list[tuple[str, bytes]] = []
        next_lsn = from_lsn
        for position, file in enumerate(needed):
            if contents and until_lsn is not None and file.first_lsn >= until_lsn:
                break
            content, next_lsn = self._read_wal(file, until_lsn, followed=position + 1 < len(needed))
            if content:  # else it is torn before its first frame
                contents.append((paths.wal_file_name(file.first_lsn), content))
        return contents, max(next_lsn, from_lsn)

    def _read_wal(self, file: WalFile, until_lsn: int | None, *, followed: bool) -> tuple[bytes, int]:
        """The file up to the lsn, or to its last whole batch; and the lsn after that. See the module for why it may
        have to be read again."""
        bad_at = -1
        while True:
            content = self._disk.read(file.path)
            frames = scan(content, file.path, followed=followed)
            lsn, end = file.first_lsn, 0
            try:
                for frame in frames:
                    if frame[0] != CHECKPOINT_MARK:
                        if lsn == until_lsn:
                            break
                        lsn += 1
                    end = frame[8]
            except CorruptFile as error:
                if error.offset <= bad_at:
                    raise
                bad_at = error.offset
                continue
            return content[:end], lsn

    # 6: the rest

    def _finish(self, loaded: LoadedState) -> None:
        needed = {
            (image.topic_id, segment.first_seq)
            for image in loaded.images
            for segment in image.segments
            if segment.sealed and not segment.cleared
        }
        for topic_id, first_seq in self._begun - needed:
            remove_segment(self._disk, paths.topic_dir(self._target, topic_id), first_seq)
        for topic_id in {topic_id for topic_id, _ in self._begun}:
            directory = paths.topic_dir(self._target, topic_id)
            if self._disk.exists(directory):
                self._disk.sync_dir(directory)
        head = structs.replace(loaded.head, base=0)
        snapshot_chain.save_base(self._disk, paths.meta_dir(self._target), head, partial(_write, loaded))
        server_id = identity.read_id(self._disk, self._root)
        if server_id is not None:
            identity.write_id(self._disk, self._target, server_id)


def _write(loaded: LoadedState, saving: Saving) -> None:
    """All topics, their segments hot, each tail in one piece."""
    for image in loaded.images:
        segments = [structs.replace(segment, cold=False) for segment in image.segments]
        tails = [
            NewTail.at_hand(segment.first_seq, 0, tail_bytes(loaded.tails.get((image.topic_id, segment.first_seq), [])))
            for segment in segments
            if not segment.sealed
        ]
        saving.add(TopicEntry(image.topic_id, encode_image(structs.replace(image, segments=segments)), tails))


def _closed(content: bytes) -> bytes:
    """With a sync mark at its end, so that later damage to the last frames is told from a torn tail."""
    mark_at = find_sync_mark(content, max(len(content) - _SYNC_MARK_BYTES_MAX, 0))
    if mark_at is not None and mark_at + len(sync_mark(mark_at)) == len(content):
        return content
    return content + sync_mark(len(content))
