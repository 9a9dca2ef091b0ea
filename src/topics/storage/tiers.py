"""The two places a sealed segment may be in: hot, under the data directory, and cold, under another one.

Relocation copies a segment to the cold tier and syncs it; only then does a snapshot point there, and only after
that is the hot copy removed. Every step may be repeated.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from topics.model.image import SegmentImage
from topics.storage import paths
from topics.storage.errors import failing_as
from topics.storage.fs import Disk
from topics.storage.paths import SegmentPart
from topics.storage.segment_writer import remove_segment


class Tiers:
    """`cold_root` is empty when there is no cold tier. `hot_retain_bytes` 0 is no bound by bytes."""

    def __init__(
        self, disk: Disk, hot_root: str, cold_root: str, hot_retain_segments: int, hot_retain_bytes: int
    ) -> None:
        self._disk = disk
        self._hot_root = hot_root
        self._cold_root = cold_root
        self._hot_retain_segments = hot_retain_segments
        self._hot_retain_bytes = hot_retain_bytes

    def directory(self, topic_id: int, *, cold: bool) -> str:
        return paths.topic_dir(self._cold_root if cold else self._hot_root, topic_id)

    def relocate(self, topic_id: int, segments: Mapping[int, SegmentImage]) -> list[int]:
        """Copies what is beyond the hot bounds to the cold tier, durably; returns which those were."""
        if not self._cold_root:
            return []
        moving = self._beyond_hot(segments)
        for first_seq in moving:
            self._copy(topic_id, first_seq)
        return moving

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
        with failing_as(target, "copying a segment to the cold tier"):
            self._disk.make_dir(target)
            # `.data` last: a cold segment with data is whole.
            for part in (SegmentPart.TAGS, SegmentPart.INDEX, SegmentPart.DATA):
                path = paths.segment_path(target, first_seq, part)
                self._disk.remove(paths.temporary(path))
                file = self._disk.create(paths.temporary(path))
                try:
                    file.write(self._disk.read(paths.segment_path(source, first_seq, part)))
                    file.full_sync()
                finally:
                    file.close()
                self._disk.rename(paths.temporary(path), path)
            self._disk.sync_dir(target)

    def remove_topic(self, topic_id: int) -> None:
        for root in self._roots():
            directory = paths.topic_dir(root, topic_id)
            with failing_as(directory, "removing a topic"):
                self._disk.remove_tree(directory)

    def remove_orphans(
        self,
        known: Mapping[int, Mapping[int, SegmentImage]],
        kept: AbstractSet[tuple[int, int, bool]],
        kept_topics: AbstractSet[int],
    ) -> None:
        """Removes the segments and topics that `known` does not have in that tier, but for those `kept`: segments
        by topic id, first seq and whether they are cold."""
        for root in self._roots():
            for name in self._disk.list_dir(paths.topics_dir(root)):
                topic_id = paths.parse_topic_name(name)
                if topic_id is None:
                    continue
                if topic_id in kept_topics:
                    continue
                if topic_id not in known:
                    self.remove_topic(topic_id)
                    continue
                directory = paths.topic_dir(root, topic_id)
                for entry in self._disk.list_dir(directory):
                    parsed = paths.parse_segment_name(entry)
                    if parsed is None:
                        if paths.is_temporary(entry):
                            self._disk.remove(f"{directory}/{entry}")
                        continue
                    segment = known[topic_id].get(parsed[0])
                    is_cold = root == self._cold_root
                    if (topic_id, parsed[0], is_cold) in kept:
                        continue
                    if segment is None or segment.cleared or segment.cold != is_cold:
                        remove_segment(self._disk, directory, parsed[0])

    def _roots(self) -> list[str]:
        return [self._hot_root, self._cold_root] if self._cold_root else [self._hot_root]
