"""The two places a sealed segment may be in: hot, under the data directory, and cold, under another one.

Relocation copies a segment to the cold tier and syncs it; only then does a snapshot point there, and only after
that is the hot copy removed. Every step may be repeated. `cold_tier` says whose the cold tier is; before anything is
changed there, it is asked.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from topics.model.image import SegmentImage
from topics.storage import paths
from topics.storage.cold_tier import ColdTier
from topics.storage.errors import ColdTierUnknown, CorruptFile, failing_as
from topics.storage.fs import Disk, replace_file
from topics.storage.paths import SegmentPart
from topics.storage.segment_reader import SegmentReader
from topics.storage.segment_writer import remove_segment


class Tiers:
    """`cold_root` is empty when there is no cold tier. `hot_retain_bytes` 0 is no bound by bytes."""

    def __init__(
        self, disk: Disk, hot_root: str, cold_root: str, hot_retain_segments: int, hot_retain_bytes: int
    ) -> None:
        self._disk = disk
        self._hot_root = hot_root
        self._cold_root = cold_root
        self.cold = ColdTier(disk, hot_root, cold_root)
        self._hot_retain_segments = hot_retain_segments
        self._hot_retain_bytes = hot_retain_bytes

    def directory(self, topic_id: int, *, cold: bool) -> str:
        """Raises `ColdTierUnknown` when there should be a cold tier and there is none."""
        if cold and not self._cold_root:
            raise ColdTierUnknown(self._hot_root)
        return paths.topic_dir(self._cold_root if cold else self._hot_root, topic_id)

    def relocate(self, topic_id: int, segments: Mapping[int, SegmentImage]) -> list[int]:
        """Copies what is beyond the hot bounds to the cold tier, durably; returns which those were."""
        if not self._cold_root:
            return []
        with failing_as(self.directory(topic_id, cold=True), "copying a segment to the cold tier"):
            moving = [first_seq for first_seq in self._beyond_hot(segments) if self._is_whole(topic_id, first_seq)]
            for first_seq in moving:
                self._copy(topic_id, first_seq)
        return moving

    def _is_whole(self, topic_id: int, first_seq: int) -> bool:
        """A damaged segment stays where it is, so that its readers are told which file it is."""
        reader = SegmentReader(self._disk, self.directory(topic_id, cold=False), first_seq)
        try:
            reader.slices(0, reader.count, with_deleted=True)
        except CorruptFile:
            return False
        return True

    def _beyond_hot(self, segments: Mapping[int, SegmentImage]) -> list[int]:
        hot = [segment for segment in segments.values() if segment.sealed and not segment.cold and not segment.cleared]
        kept_bytes = 0
        moving: list[int] = []
        for age, segment in enumerate(reversed(hot)):
            kept_bytes += segment.data_bytes
            if age >= self._hot_retain_segments or (self._hot_retain_bytes and kept_bytes > self._hot_retain_bytes):
                moving.append(segment.first_seq)
        return sorted(moving)

    def _copy(self, topic_id: int, first_seq: int) -> None:
        source, target = self.directory(topic_id, cold=False), self.directory(topic_id, cold=True)
        self.cold.claim_topic(topic_id)
        # `.data` last: a cold segment with data is whole.
        for part in (SegmentPart.TAGS, SegmentPart.INDEX, SegmentPart.DATA):
            content = self._disk.read(paths.segment_path(source, first_seq, part))
            replace_file(self._disk, paths.segment_path(target, first_seq, part), content, sync_dir=False)
        self._disk.sync_dir(target)

    def changeable(self, topic_id: int, *, cold: bool) -> str:
        """The directory, for callers about to change something there. Raises `ColdTierNotOurs`."""
        directory = self.directory(topic_id, cold=cold)
        if cold:
            with failing_as(directory, "looking whose it is"):
                self.cold.check()
                self.cold.check_topic(topic_id)
        return directory

    def remove_segment(self, topic_id: int, first_seq: int, *, cold: bool) -> None:
        remove_segment(self._disk, self.changeable(topic_id, cold=cold), first_seq)

    def remove_topic(self, topic_id: int) -> None:
        for cold in (False, True) if self._cold_root else (False,):
            directory = self.changeable(topic_id, cold=cold)
            with failing_as(directory, "removing a topic"):
                self._disk.remove_tree(directory)

    def remove_orphans(
        self,
        known: Mapping[int, Mapping[int, SegmentImage]],
        kept_segments: AbstractSet[tuple[int, int, bool]],
        kept_topics: AbstractSet[int],
    ) -> None:
        """Removes the segments and topics that `known` does not have in that tier, but for the kept ones: segments
        by topic id, first seq and whether they are cold. On the cold tier only what says that it is ours."""
        with failing_as(self._cold_root, "looking whose it is"):
            self.cold.check()
        for root in self._roots():
            with failing_as(paths.topics_dir(root), "removing what nobody needs"):
                self._remove_orphans(root, known, kept_segments, kept_topics)

    def _remove_orphans(
        self,
        root: str,
        known: Mapping[int, Mapping[int, SegmentImage]],
        kept_segments: AbstractSet[tuple[int, int, bool]],
        kept_topics: AbstractSet[int],
    ) -> None:
        cold = root == self._cold_root
        for name in self._disk.list_dir(paths.topics_dir(root)):
            topic_id = paths.parse_topic_name(name)
            if topic_id is None or topic_id in kept_topics or (cold and not self.cold.names_us(topic_id)):
                continue
            directory = paths.topic_dir(root, topic_id)
            if topic_id not in known:
                self._disk.remove_tree(directory)
                continue
            for entry in self._disk.list_dir(directory):
                parsed = paths.parse_segment_name(entry)
                if parsed is None:
                    if paths.is_temporary(entry):
                        self._disk.remove(f"{directory}/{entry}")
                    continue
                segment = known[topic_id].get(parsed[0])
                if (topic_id, parsed[0], cold) in kept_segments:
                    continue
                if segment is None or segment.cleared or segment.cold != cold:
                    remove_segment(self._disk, directory, parsed[0])

    def _roots(self) -> list[str]:
        return [self._hot_root, self._cold_root] if self._cold_root else [self._hot_root]
