"""Checkpoints: records into segments, then everything else into a snapshot. Runs on one thread of its own.

The order is what makes a crash harmless at any point:

    records to segment files, synced; delete bytes set, synced     beyond the last snapshot: cut off or set again
    sealed segments copied to the cold tier, synced                a second copy nobody points to
    snapshot saved                                                 commit point
    WAL files and segments nothing points to are removed           left over: removed after the next start

What the previous snapshot needs is kept until the next checkpoint, so that a damaged snapshot can be passed over.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import structs

from topics.model.capture import BlockCapture, Columns, TopicCapture
from topics.model.image import SegmentImage, TopicImage
from topics.model.record import payload_of
from topics.storage import paths, snapshot
from topics.storage.errors import DiskFailed, failing_as
from topics.storage.fs import Disk
from topics.storage.segment_format import SegmentInput
from topics.storage.segment_reader import SegmentReader
from topics.storage.segment_writer import SegmentAppender, remove_segment
from topics.storage.state import encode_state, encode_topic
from topics.storage.tiers import Tiers
from topics.storage.wal_writer import wal_files

APPENDERS_OPEN_MAX = 256


class CheckpointResult(NamedTuple):
    """What the log has to know: segments that moved to the cold tier, as (topic_id, first_seq)."""

    moved: list[tuple[int, int]]


class Checkpoints:
    """`known`: the topics of the snapshot that was loaded, or none."""

    def __init__(self, disk: Disk, root: str, tiers: Tiers, number: int, known: Iterable[TopicImage]) -> None:
        self._disk = disk
        self._root = root
        self._tiers = tiers
        self._number = number
        self._encoded: dict[int, bytes] = {}
        self._segments: dict[int, dict[int, SegmentImage]] = {}
        self._appenders: OrderedDict[tuple[int, int], SegmentAppender] = OrderedDict()
        # Segments as (topic_id, first_seq, cold), and topics: nothing but the previous snapshot points to them.
        self._doomed: list[tuple[int, int, bool]] = []
        self._doomed_topics: list[int] = []
        for image in known:
            self._encoded[image.topic_id] = encode_topic(image)
            self._segments[image.topic_id] = {segment.first_seq: segment for segment in image.segments}

    def write(
        self,
        captures: list[TopicCapture],
        removed_topics: list[int],
        next_topic_id: int,
        shards: dict[str, int],
        *,
        clean: bool,
    ) -> CheckpointResult:
        """Durable when it returns. On `DiskFailed` the last snapshot and all it needs are untouched."""
        try:
            return self._write(captures, removed_topics, next_topic_id, shards, clean=clean)
        except DiskFailed:
            # What is in the files beyond the last snapshot is unknown: the next try cuts them back to that.
            self.close()
            raise

    def _write(
        self,
        captures: list[TopicCapture],
        removed_topics: list[int],
        next_topic_id: int,
        shards: dict[str, int],
        *,
        clean: bool,
    ) -> CheckpointResult:
        doomed: list[tuple[int, int, bool]] = []
        moved: list[tuple[int, int]] = []
        # Copies, taken over once the snapshot is saved: until then the last one is what counts.
        all_encoded, all_segments = dict(self._encoded), dict(self._segments)
        for captured in captures:
            topic_id = captured.image.topic_id
            before = self._segments.get(topic_id, {})
            segments = self._flush(captured, before, doomed)
            for first_seq in self._tiers.relocate(topic_id, segments):
                segments[first_seq] = structs.replace(segments[first_seq], cold=True)
                doomed.append((topic_id, first_seq, False))
                moved.append((topic_id, first_seq))
            gone = before.keys() - segments.keys()
            doomed += [(topic_id, first_seq, before[first_seq].cold) for first_seq in sorted(gone)]
            image = structs.replace(captured.image, segments=list(segments.values()))
            all_encoded[topic_id] = encode_topic(image)
            all_segments[topic_id] = segments
        for topic_id in removed_topics:
            all_encoded.pop(topic_id, None)
            all_segments.pop(topic_id, None)
        body = encode_state(next_topic_id, shards, list(all_encoded.values()), clean=clean)
        self._number += 1
        snapshot.save(self._disk, paths.meta_dir(self._root), self._number, body)
        self._encoded, self._segments = all_encoded, all_segments
        self._remove_doomed()
        self._doomed = doomed
        self._doomed_topics = removed_topics
        return CheckpointResult(moved)

    def remove_orphans(self) -> None:
        """Removes what no snapshot points to: what a crash or an earlier start left. Call after `write`."""
        self._tiers.remove_orphans(self._segments, set(self._doomed), set(self._doomed_topics))

    def remove_shards(self, names: Iterable[str]) -> None:
        """Removes WAL shards whose frames are all in snapshots by now."""
        for directory in (paths.shard_path(self._root, name) for name in names):
            with failing_as(directory, "removing a WAL shard"):
                # First, and for good: it may never name a file that is not there.
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
                if block.unflagged:
                    directory = self._tiers.directory(topic_id, cold=known.cold)
                    SegmentReader(self._disk, directory, block.first_seq).flag_deleted(block.unflagged)
                segments[block.first_seq] = structs.replace(
                    known, live_count=block.live_count, live_bytes=block.live_bytes
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
        if dead or block.unflagged:
            reader = SegmentReader(self._disk, directory, block.first_seq, data_bytes)
            reader.flag_deleted([*block.unflagged, *dead])
        if block.seal:
            appender.seal()
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

    def _remove_doomed(self) -> None:
        for topic_id, first_seq, cold in self._doomed:
            remove_segment(self._disk, self._tiers.directory(topic_id, cold=cold), first_seq)
        for topic_id in self._doomed_topics:
            self._tiers.remove_topic(topic_id)
        self._doomed, self._doomed_topics = [], []


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
