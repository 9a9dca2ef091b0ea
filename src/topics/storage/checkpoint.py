"""Checkpoints: records into segments, then everything else into a snapshot. Runs on one thread of its own.

The order is what makes a crash harmless at any point:

    records to segment files, synced                               beyond the last snapshot: cut off
    sealed segments copied to the cold tier, synced                a second copy nobody points to
    snapshot saved                                                 commit point
    delete bytes of what the snapshot before lists, synced         listed still: set again after the next one
    WAL files and segments nothing points to are removed           left over: removed after the next start

What the previous snapshot needs is kept until the next checkpoint, so that a damaged snapshot can be passed over. A
delete byte is set once two snapshots list the record as deleted: no snapshot is ever found beside a file that is
ahead of it.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import structs

from topics.model.image import BlockCapture, SegmentImage, TopicCapture, TopicImage
from topics.model.record import Columns, payload_of
from topics.storage import paths, snapshot
from topics.storage.errors import CorruptFile, DiskFailed, StorageError, failing_as
from topics.storage.fs import Disk
from topics.storage.segment_format import SegmentInput
from topics.storage.segment_reader import SegmentReader
from topics.storage.segment_text import encode_text
from topics.storage.segment_writer import SegmentAppender, remove_segment
from topics.storage.state import encode_state, encode_topic
from topics.storage.tiers import Tiers
from topics.storage.wal_writer import wal_files

APPENDERS_OPEN_MAX = 256


class CheckpointResult(NamedTuple):
    """What the log has to know: segments that moved to the cold tier, as (topic_id, first_seq), and positions of
    segments whose delete bytes are set. The checkpoint is durable also when the cold tier took nothing, or the disk
    refused what follows it: that is tried again."""

    moved: list[tuple[int, int]]
    flagged: dict[tuple[int, int], list[int]]
    failure: StorageError | None


class Checkpoints:
    """`known`: the topics of the snapshot that was loaded, or none. `start`: which process this is. `keep_text`: sealed
    segments have their records as readers get them, too."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        tiers: Tiers,
        number: int,
        known: Iterable[TopicImage],
        start: int,
        *,
        keep_text: bool,
    ) -> None:
        self._start = start
        self._keep_text = keep_text
        self._disk = disk
        self._root = root
        self._tiers = tiers
        self._number = number
        self._encoded: dict[int, bytes] = {}
        self._segments: dict[int, dict[int, SegmentImage]] = {}
        self._appenders: OrderedDict[tuple[int, int], SegmentAppender] = OrderedDict()
        # Segments as (topic_id, first_seq, cold), and topics: nothing but the previous snapshot points to them.
        self._unsure: int | None = None
        self._doomed: list[tuple[int, int, bool]] = []
        self._doomed_topics: list[int] = []
        self._listed: dict[tuple[int, int], list[int]] = {}  # deleted, by the last snapshot, and maybe not marked so
        for image in known:
            self._encoded[image.topic_id] = encode_topic(image)
            self._segments[image.topic_id] = {segment.first_seq: segment for segment in image.segments}
            self._list(image.topic_id, self._segments[image.topic_id])

    def write(
        self,
        captures: list[TopicCapture],
        removed_topics: list[int],
        next_id: int,
        shards: dict[str, int],
        *,
        clean: bool,
    ) -> CheckpointResult:
        """Durable when it returns. On `DiskFailed` the last snapshot and all it needs are untouched."""
        try:
            self._take_back_unsure()
            return self._write(captures, removed_topics, next_id, shards, clean=clean)
        except DiskFailed:
            # What is in the files now is unknown: the next try goes back to what the last snapshot relies on.
            self.close()
            raise

    def _write(
        self,
        captures: list[TopicCapture],
        removed_topics: list[int],
        next_id: int,
        shards: dict[str, int],
        *,
        clean: bool,
    ) -> CheckpointResult:
        doomed: list[tuple[int, int, bool]] = []
        moved: list[tuple[int, int]] = []
        cold_failure: StorageError | None = None
        all_encoded, all_segments = dict(self._encoded), dict(self._segments)
        for captured in captures:
            topic_id = captured.image.topic_id
            before = self._segments.get(topic_id, {})
            segments = self._flush(captured, before, doomed)
            try:
                relocated = self._tiers.relocate(topic_id, segments)
            except StorageError as error:
                relocated, cold_failure = [], error  # they stay where they are, and the snapshot does not wait for it
            for first_seq in relocated:
                segments[first_seq] = structs.replace(segments[first_seq], cold=True)
                doomed.append((topic_id, first_seq, False))
                moved.append((topic_id, first_seq))
            gone = before.keys() - segments.keys()
            doomed += [(topic_id, first_seq, before[first_seq].cold) for first_seq in sorted(gone)]
            image = structs.replace(captured.image, segments=list(segments.values()))
            all_encoded[topic_id], all_segments[topic_id] = encode_topic(image), segments
        for topic_id in removed_topics:
            all_encoded.pop(topic_id, None)
            all_segments.pop(topic_id, None)
        body = encode_state(next_id, shards, list(all_encoded.values()), start=self._start, clean=clean)
        self._unsure = self._number + 1
        snapshot.save(self._disk, paths.meta_dir(self._root), self._number + 1, body)
        self._unsure = None
        self._number += 1
        self._encoded, self._segments = all_encoded, all_segments
        unneeded, self._doomed = self._doomed, doomed
        unneeded_topics, self._doomed_topics = self._doomed_topics, list(removed_topics)
        flagged, failure = self._flag_listed()
        for captured in captures:
            topic_id = captured.image.topic_id
            self._list(topic_id, self._segments[topic_id])
        return CheckpointResult(moved, flagged, self._remove(unneeded, unneeded_topics) or failure or cold_failure)

    @property
    def has_listed(self) -> bool:
        """Whether the next checkpoint sets delete bytes."""
        return bool(self._listed)

    def _list(self, topic_id: int, segments: dict[int, SegmentImage]) -> None:
        for segment in segments.values():
            if segment.deleted:
                self._listed[topic_id, segment.first_seq] = segment.deleted

    def _flag_listed(self) -> tuple[dict[tuple[int, int], list[int]], StorageError | None]:
        """Sets the delete bytes of what the snapshot before this one lists: this one lists it, too."""
        flagged: dict[tuple[int, int], list[int]] = {}
        failure: StorageError | None = None
        listed, self._listed = self._listed, {}
        for (topic_id, first_seq), positions in listed.items():
            segment = self._segments.get(topic_id, {}).get(first_seq)
            if segment is None or segment.cleared:
                continue
            try:
                directory = self._tiers.changeable(topic_id, cold=segment.cold)
                SegmentReader(self._disk, directory, first_seq, segment.data_bytes).flag_deleted(positions)
                flagged[topic_id, first_seq] = positions
            except CorruptFile:
                self._listed[topic_id, first_seq] = positions  # who reads it is told
            except StorageError as error:
                self._listed[topic_id, first_seq] = positions
                failure = error
        return flagged, failure

    def _take_back_unsure(self) -> None:
        """A snapshot whose save failed may be there after a crash or not. Before any file it relies on is changed
        it has to be gone for certain."""
        if self._unsure is not None:
            directory = paths.meta_dir(self._root)
            path = f"{directory}/{paths.snapshot_name(self._unsure)}"
            with failing_as(path, "taking back a snapshot"):
                self._disk.remove(path)
                self._disk.sync_dir(directory)
            self._unsure = None

    def remove_orphans(self) -> None:
        """Removes what no snapshot points to: what a crash or an earlier start left. Call after `write`."""
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

    def close(self) -> None:
        for appender in self._appenders.values():
            appender.close()
        self._appenders.clear()

    def _flush(
        self, captured: TopicCapture, before: dict[int, SegmentImage], doomed: list[tuple[int, int, bool]]
    ) -> dict[int, SegmentImage]:
        topic_id = captured.image.topic_id
        segments: dict[int, SegmentImage] = {}
        for block in captured.blocks:
            known = before.get(block.first_seq)
            if block.live_count == 0 and (block.sealed or block.seal):
                # Everything in it was deleted: the place stays, the files go.
                if known is not None and not known.cleared:
                    doomed.append((topic_id, block.first_seq, known.cold))
                self._close_appender(topic_id, block.first_seq)
                segments[block.first_seq] = _cleared(block)
            elif block.sealed:
                assert known is not None, (topic_id, block.first_seq)
                segments[block.first_seq] = structs.replace(
                    known, live_count=block.live_count, live_bytes=block.live_bytes, deleted=block.unflagged
                )
            else:
                segments[block.first_seq] = self._flush_block(topic_id, block, known)
        return segments

    def _flush_block(self, topic_id: int, block: BlockCapture, known: SegmentImage | None) -> SegmentImage:
        directory = self._tiers.directory(topic_id, cold=False)
        appender = self._appender(topic_id, directory, block.first_seq, known)
        assert block.columns is not None
        assert appender.count == block.flushed_count, (appender.count, block.flushed_count)
        appender.append(_inputs(block.columns))
        data_bytes = appender.flush()
        dead = [
            block.flushed_count + position
            for position, fragment in enumerate(block.columns.fragments)
            if fragment is None
        ]
        if dead:
            # No snapshot knows these places yet.
            SegmentReader(self._disk, directory, block.first_seq, data_bytes).flag_deleted(dead)
        if block.seal:
            texts = block.texts if self._keep_text else None
            appender.seal(texts and encode_text(block.first_seq, **texts._asdict()))
            del self._appenders[topic_id, block.first_seq]
        return SegmentImage(
            first_seq=block.first_seq,
            count=block.record_count,
            data_bytes=data_bytes,
            live_count=block.live_count,
            live_bytes=block.live_bytes,
            first_ts=block.first_ts,
            last_ts=block.last_ts,
            sealed=block.seal,
            deleted=block.unflagged,
        )

    def _appender(self, topic_id: int, directory: str, first_seq: int, known: SegmentImage | None) -> SegmentAppender:
        key = (topic_id, first_seq)
        appender = self._appenders.get(key)
        if appender is not None:
            self._appenders.move_to_end(key)
            return appender
        if known is not None:
            appender = SegmentAppender.reopen(self._disk, directory, first_seq, known.data_bytes)
        else:
            if self._disk.exists(directory):
                remove_segment(self._disk, directory, first_seq)  # what a crash may have left
            appender = SegmentAppender.create(self._disk, directory, first_seq)
        self._appenders[key] = appender
        if len(self._appenders) > APPENDERS_OPEN_MAX:
            self._appenders.popitem(last=False)[1].close()
        return appender

    def _close_appender(self, topic_id: int, first_seq: int) -> None:
        appender = self._appenders.pop((topic_id, first_seq), None)
        if appender is not None:
            appender.close()

    def _remove(self, segments: list[tuple[int, int, bool]], topics: list[int]) -> StorageError | None:
        """Removes what no snapshot needs any more. What the disk refuses to remove waits for the next time."""
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


def _inputs(columns: Columns) -> list[SegmentInput]:
    """Hot: once per record. A dead record keeps its place with an empty payload, flagged deleted afterwards."""
    return [
        (ts, None, None, b"")
        if fragment is None
        else (
            ts,
            None if node is None else node.encode(),
            None if tag is None else tag.encode(),
            payload_of(fragment, meta_at),
        )
        for fragment, ts, meta_at, node, tag in zip(*columns, strict=True)
    ]


def _cleared(block: BlockCapture) -> SegmentImage:
    return SegmentImage(
        block.first_seq, block.record_count, 0, 0, 0, block.first_ts, block.last_ts, sealed=True, cleared=True
    )
