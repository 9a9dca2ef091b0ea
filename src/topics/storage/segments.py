"""The segments of all topics as readers: found in the hot or the cold tier, a bounded number of them open.

Used from one thread.
"""

from collections import OrderedDict

from topics.storage import paths
from topics.storage.fs import Disk
from topics.storage.segment_reader import SegmentReader


class Segments:
    """`cold_root` is empty when there is no cold tier."""

    def __init__(self, disk: Disk, hot_root: str, cold_root: str, open_max: int) -> None:
        self._disk = disk
        self._hot_root = hot_root
        self._cold_root = cold_root
        self._open_max = open_max
        self._open: OrderedDict[tuple[int, int], SegmentReader] = OrderedDict()

    def directory(self, topic_id: int, *, cold: bool) -> str:
        return paths.topic_dir(self._cold_root if cold else self._hot_root, topic_id)

    def reader(self, topic_id: int, first_seq: int, *, cold: bool) -> SegmentReader:
        key = (topic_id, first_seq)
        reader = self._open.get(key)
        if reader is None:
            reader = SegmentReader(self._disk, self.directory(topic_id, cold=cold), first_seq)
            self._open[key] = reader
            if len(self._open) > self._open_max:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(key)
        return reader

    def forget(self, topic_id: int, first_seq: int) -> None:
        """Closes a segment that is gone or has moved."""
        self._open.pop((topic_id, first_seq), None)
