"""Checkpoints: one increment a time, with what changed since the one before. Runs on one thread of its own.

The order is what makes a crash harmless at any point:

    changed topics to a temporary file, sealed segments that       nothing, and second copies nobody points to
    are due copied to the cold tier, synced
    the file synced and renamed                                    commit point
    delete bytes of what the snapshot before lists, synced         listed still: set again after the next one
    segments nothing points to are removed                         left over: removed after the next start

What the previous snapshot needs is kept until the next checkpoint, so that a damaged increment can be passed over. A
delete byte is set once two snapshots list the record as deleted: no snapshot is ever found beside a file that is
ahead of it. Records that are in no segment are in the increments themselves, and never change there.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from msgspec import structs

from topics.errors import StorageFailed
from topics.model.image import BlockCapture, SegmentImage, TopicCapture, TopicImage
from topics.storage import paths, snapshot_chain
from topics.storage.errors import CorruptFile, DiskFailed, StorageError, failing_as
from topics.storage.fs import Disk
from topics.storage.segment_reader import SegmentReader
from topics.storage.segment_writer import EncodeSegment
from topics.storage.snapshot import Head, NewTail, TopicEntry
from topics.storage.snapshot_chain import Saving, encode_image
from topics.storage.tiers import Tiers
from topics.storage.wal_writer import wal_files

Segments = dict[int, SegmentImage]


class CheckpointResult(NamedTuple):
    """What the log has to know: segments that moved to the cold tier, as (topic_id, first_seq), positions of segments
    whose delete bytes are set, and segments and topics whose files are gone. The checkpoint is durable also when the
    cold tier took nothing, or the disk refused what follows it: that is tried again."""

    moved: list[tuple[int, int]]
    flagged: dict[tuple[int, int], list[int]]
    removed: list[tuple[int, int, bool]]
    removed_topics: list[int]
    failure: StorageError | StorageFailed | None


class _UnderWay:
    """An increment that is being written."""

    __slots__ = ("cold_failure", "doomed", "moved", "saving", "segments")

    def __init__(self, saving: Saving) -> None:
        self.saving = saving
        self.segments: dict[int, Segments] = {}  # of the topics that changed, the sealed ones
        self.doomed: list[tuple[int, int, bool]] = []
        self.moved: list[tuple[int, int]] = []
        self.cold_failure: StorageError | StorageFailed | None = None


class Checkpoints:
    """`known`: the topics of the state that was loaded, or none. `start`: which process this is. `encode`: as
    `encode_segment`; a large tail is as much work as a large segment."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        tiers: Tiers,
        number: int,
        known: Iterable[TopicImage],
        start: int,
        encode: EncodeSegment,
    ) -> None:
        self._start = start
        self._encode = encode
        self._disk = disk
        self._root = root
        self._directory = paths.meta_dir(root)
        self._tiers = tiers
        self._number = number
        self._segments: dict[int, Segments] = {}  # of topics that have any, but no tails
        self._under_way: _UnderWay | None = None
        self._closing = False
        self._unsure: int | None = None
        # Segments as (topic_id, first_seq, cold), and topics: nothing but the previous snapshot points to them.
        self._doomed: list[tuple[int, int, bool]] = []
        self._doomed_topics: list[int] = []
        self._listed: dict[tuple[int, int], list[int]] = {}  # deleted, by the last snapshot, and maybe not marked so
        for image in known:
            sealed = {segment.first_seq: segment for segment in image.segments if segment.sealed}
            if sealed:
                self._segments[image.topic_id] = sealed
                self._list(image.topic_id, sealed)

    # The steps of a checkpoint. On `DiskFailed` the last snapshot and all it needs are untouched.

    def begin(self, next_id: int, shards: dict[str, int], *, clean: bool) -> None:
        self.abandon()
        self._take_back_unsure()
        head = Head(self._number + 1, self._number, next_id, shards, self._start, clean)
        path = snapshot_chain.increment_path(self._directory, self._number + 1)
        self._under_way = _UnderWay(Saving(self._disk, path, head))

    def add(self, captures: Iterable[TopicCapture]) -> None:
        """Adds topics as they were at that instant."""
        assert self._under_way is not None, "begin first"
        for captured in captures:
            self._under_way.saving.add(self._entry(captured, self._under_way))

    def commit(self, removed_topics: list[int], sealed: Iterable[tuple[int, int]]) -> CheckpointResult:
        """Durable when it returns. `sealed`: segments that were written before that instant, as (topic_id,
        first_seq); those that are gone already are removed."""
        under_way = self._under_way
        assert under_way is not None, "begin first"
        self._unsure = self._number + 1
        under_way.saving.commit(removed_topics)
        self._unsure = self._under_way = None
        self._number += 1
        for topic_id, segments in under_way.segments.items():
            self._segments[topic_id] = segments
            if not segments:
                del self._segments[topic_id]
        for topic_id in removed_topics:
            self._segments.pop(topic_id, None)
        gone = set(removed_topics)
        under_way.doomed += [
            (topic_id, first_seq, False)
            for topic_id, first_seq in sealed
            if topic_id not in gone and not self._has_file(topic_id, first_seq)
        ]
        unneeded, self._doomed = self._doomed, under_way.doomed
        unneeded_topics, self._doomed_topics = self._doomed_topics, list(removed_topics)
        flagged, failure = self._flag_listed()
        for topic_id, segments in under_way.segments.items():
            self._list(topic_id, segments)
        failure = self._remove(unneeded, unneeded_topics) or failure or under_way.cold_failure
        return CheckpointResult(under_way.moved, flagged, unneeded, unneeded_topics, failure)

    def abandon(self) -> None:
        """Forgets an increment that was begun."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            with suppress(DiskFailed):
                under_way.saving.drop()

    @property
    def has_doomed(self) -> bool:
        """Whether the next checkpoint removes files: their space is wanted back, even on a server that nobody writes
        to."""
        return bool(self._doomed or self._doomed_topics)

    @property
    def has_listed(self) -> bool:
        """Whether the next checkpoint sets delete bytes."""
        return bool(self._listed)

    def _entry(self, captured: TopicCapture, under_way: _UnderWay) -> TopicEntry:
        """What the file gets of a captured topic. Once for each topic that changed."""
        topic_id = captured.image.topic_id
        before = self._segments.get(topic_id)
        segments: Segments = {}
        tails: list[NewTail] = []
        all_sealed: Segments = {}
        for block in captured.blocks:
            if block.sealed:
                all_sealed[block.first_seq] = segments[block.first_seq] = _sealed(block)
            else:
                tail = self._tail(block)
                tails.append(tail)
                segments[block.first_seq] = _open(block, tail.kept + tail.length)
        if all_sealed or before:
            before = before or {}
            for first_seq in self._relocate(topic_id, all_sealed, under_way):
                all_sealed[first_seq] = segments[first_seq] = structs.replace(all_sealed[first_seq], cold=True)
                under_way.doomed.append((topic_id, first_seq, False))
                under_way.moved.append((topic_id, first_seq))
            for first_seq, known in before.items():
                now = all_sealed.get(first_seq)
                if not known.cleared and (now is None or now.cleared):
                    under_way.doomed.append((topic_id, first_seq, known.cold))
            under_way.segments[topic_id] = all_sealed
        image = structs.replace(captured.image, segments=list(segments.values()))
        return TopicEntry(topic_id, encode_image(image), tails)

    def _tail(self, block: BlockCapture) -> NewTail:
        return NewTail(block.first_seq, block.flushed_bytes, block.added_bytes, self._frames(block))

    def _frames(self, block: BlockCapture) -> Iterator[bytes]:
        assert block.columns is not None
        if block.columns.fragments:
            yield self._encode(block.first_seq + block.flushed_count, block.columns, with_text=False).data

    def _relocate(self, topic_id: int, segments: Segments, under_way: _UnderWay) -> list[int]:
        try:
            return self._tiers.relocate(topic_id, segments)
        except (StorageError, StorageFailed) as error:
            under_way.cold_failure = error  # they stay where they are, and the snapshot does not wait for it
            return []

    def _has_file(self, topic_id: int, first_seq: int) -> bool:
        segment = self._segments.get(topic_id, {}).get(first_seq)
        return segment is not None and not segment.cleared

    def _list(self, topic_id: int, segments: Segments) -> None:
        for segment in segments.values():
            if segment.deleted:
                self._listed[topic_id, segment.first_seq] = segment.deleted

    def _flag_listed(self) -> tuple[dict[tuple[int, int], list[int]], StorageError | StorageFailed | None]:
        """Sets the delete bytes of what the snapshot before this one lists: this one lists it, too. It is durable by
        now, so whatever goes wrong here must not look as if it were not."""
        flagged: dict[tuple[int, int], list[int]] = {}
        failure: StorageError | StorageFailed | None = None
        listed, self._listed = self._listed, {}
        for (topic_id, first_seq), positions in listed.items():
            segment = self._segments.get(topic_id, {}).get(first_seq)
            if segment is None or segment.cleared:
                continue
            try:
                directory = self._tiers.changeable(topic_id, cold=segment.cold)
                with failing_as(directory, "flagging deletes"):
                    SegmentReader(self._disk, directory, first_seq, segment.data_bytes).flag_deleted(positions)
                flagged[topic_id, first_seq] = positions
            except CorruptFile:
                self._listed[topic_id, first_seq] = positions  # who reads it is told
            except (StorageError, StorageFailed) as error:
                self._listed[topic_id, first_seq] = positions
                failure = error
        return flagged, failure

    def _take_back_unsure(self) -> None:
        """An increment whose save failed may be there after a crash or not. Before any file it relies on is changed
        it has to be gone for certain."""
        if self._unsure is not None:
            path = snapshot_chain.increment_path(self._directory, self._unsure)
            with failing_as(path, "taking back a snapshot"):
                self._disk.remove(path)
                self._disk.sync_dir(self._directory)
            self._unsure = None

    # What is no longer needed

    def fold(self) -> int:
        """Makes a new base if the increments have outgrown the one there is; its number, or 0. May run on another
        thread than all the rest: it touches nothing but files that do not change any more."""
        return snapshot_chain.fold(self._disk, self._directory, self._number, lambda: self._closing)

    def give_back(self) -> None:
        """For a disk without room: removes what is only kept for the case that the newest base is damaged. On the
        thread that folds."""
        snapshot_chain.give_back(self._disk, self._directory, self._number, lambda: self._closing)

    def stop_folding(self) -> None:
        """Ends a fold under way early, without a result."""
        self._closing = True

    @property
    def is_fold_due(self) -> bool:
        return snapshot_chain.outgrown(self._disk, self._directory)

    @property
    def can_give_back(self) -> bool:
        return snapshot_chain.can_give_back(self._disk, self._directory)

    def remove_orphans(self) -> None:
        """Removes what no snapshot points to: what a crash or an earlier start left. Call after a checkpoint, and
        before anything is sealed."""
        self._tiers.remove_orphans(self._segments, set(self._doomed), set(self._doomed_topics))

    def remove_shards(self, names: Iterable[str]) -> None:
        """Removes WAL shards whose frames are all in snapshots by now."""
        for directory in (paths.shard_path(self._root, name) for name in names):
            with failing_as(directory, "removing a WAL shard"):
                # CURRENT goes first, durably: it must never name a file that is not there.
                if self._disk.exists(f"{directory}/{paths.CURRENT}"):
                    self._disk.remove(f"{directory}/{paths.CURRENT}")
                    self._disk.sync_dir(directory)
                for file in wal_files(self._disk, directory):
                    self._disk.remove(file.path)
                    self._disk.sync_dir(directory)

    def _remove(self, segments: list[tuple[int, int, bool]], topics: list[int]) -> StorageError | None:
        """Removes what no snapshot needs any more. If the disk refuses, that waits for the next time."""
        failure: StorageError | None = None
        for topic_id, first_seq, cold in segments:
            try:
                self._tiers.remove_segment(topic_id, first_seq, cold=cold)
            except StorageError as error:
                failure = error
                self._doomed.append((topic_id, first_seq, cold))
        for topic_id in topics:
            try:
                self._tiers.remove_topic(topic_id)
            except StorageError as error:
                failure = error
                self._doomed_topics.append(topic_id)
        return failure


def _open(block: BlockCapture, data_bytes: int) -> SegmentImage:
    return SegmentImage(
        first_seq=block.first_seq,
        count=block.record_count,
        data_bytes=data_bytes,
        live_count=block.live_count,
        live_bytes=block.live_bytes,
        first_ts=block.first_ts,
        last_ts=block.last_ts,
        sealed=False,
        deleted=block.unflagged,
    )


def _sealed(block: BlockCapture) -> SegmentImage:
    if block.live_count == 0:
        # Everything in it was deleted: the place stays, the files go.
        return SegmentImage(
            block.first_seq, block.record_count, 0, 0, 0, block.first_ts, block.last_ts, sealed=True, cleared=True
        )
    return SegmentImage(
        first_seq=block.first_seq,
        count=block.record_count,
        data_bytes=block.flushed_bytes,
        live_count=block.live_count,
        live_bytes=block.live_bytes,
        first_ts=block.first_ts,
        last_ts=block.last_ts,
        sealed=True,
        cold=block.cold,
        deleted=block.unflagged,
    )
