"""The segments of all topics as readers, a bounded number of them open.

A segment of the hot tier is mapped: reading it costs page faults at worst. One of the cold tier is read whole by
`fetch`, off the thread that uses it, before anything looks into it; so a slow cold tier delays only those who read
from it. Used from one thread, but for `fetch`.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import NoReturn

from topics.errors import TooManyOpenFiles
from topics.storage import paths
from topics.storage.cold_tier import ColdTier
from topics.storage.fs import Disk
from topics.storage.segment_reader import SegmentReader

Key = tuple[int, int]
"""(topic_id, first_seq)"""

OnMiss = Callable[[Key, Callable[[], SegmentReader]], NoReturn]
"""Has the fetch run elsewhere and its result handed to `Segments.loaded`, and raises to make the caller wait."""


class Segments:
    """`cold_root` is empty when there is no cold tier. Without `on_miss` the caller waits for the cold tier."""

    def __init__(self, disk: Disk, hot_root: str, cold_root: str, open_max: int, cold_bytes_max: int) -> None:
        self._disk = disk
        self._hot_root = hot_root
        self._cold_tier = ColdTier(disk, hot_root, cold_root)
        self._open_max = open_max
        self._cold_bytes_max = cold_bytes_max
        self._hot: OrderedDict[Key, SegmentReader] = OrderedDict()
        self._cold: OrderedDict[Key, SegmentReader] = OrderedDict()
        self._cold_bytes = 0
        self.on_miss: OnMiss | None = None

    def reader(self, topic_id: int, first_seq: int, *, cold: bool) -> SegmentReader:
        """Waits for the cold tier where `require_loaded` was not asked first."""
        key = (topic_id, first_seq)
        readers = self._cold if cold else self._hot
        reader = readers.get(key)
        if reader is not None:
            readers.move_to_end(key)
            return reader
        if cold:
            reader = self._fetch(key)
            self.loaded(key, reader)
            return reader
        try:
            reader = self._open(key)
        except TooManyOpenFiles:
            # Others may have taken what was shared out to us: open maps hold some, and can be had again.
            for _ in range((len(readers) + 1) // 2):
                readers.popitem(last=False)
            reader = self._open(key)
        readers[key] = reader
        if len(readers) > self._open_max:
            readers.popitem(last=False)
        return reader

    def _open(self, key: Key) -> SegmentReader:
        return SegmentReader(self._disk, paths.topic_dir(self._hot_root, key[0]), key[1])

    def is_loaded(self, topic_id: int, first_seq: int) -> bool:
        """Whether it can be read now: it is at hand, or the caller waits here."""
        return self.on_miss is None or (topic_id, first_seq) in self._cold

    def require_loaded(self, topic_id: int, first_seq: int) -> None:
        """Returns if the cold segment is at hand; otherwise has it fetched."""
        key = (topic_id, first_seq)
        if key not in self._cold and self.on_miss is not None:
            self.on_miss(key, lambda: self._fetch(key))

    def loaded(self, key: Key, reader: SegmentReader) -> None:
        """Keeps a fetched segment at hand, as long as there is room."""
        before = self._cold.pop(key, None)
        if before is not None:
            # Two fetched it, one who waited for it on the spot and one on a thread.
            self._cold_bytes -= before.data.size
        self._cold[key] = reader
        self._cold_bytes += reader.data.size
        while self._cold_bytes > self._cold_bytes_max and len(self._cold) > 1:
            _, dropped = self._cold.popitem(last=False)
            self._cold_bytes -= dropped.data.size

    def forget(self, topic_id: int, first_seq: int) -> None:
        """Closes a hot segment that is gone or has moved."""
        self._hot.pop((topic_id, first_seq), None)

    def close(self, segments: Iterable[tuple[int, int, bool]], topics: Collection[int]) -> None:
        """Closes those whose files are gone, as (topic_id, first_seq, cold), and all of these topics: the disk gives
        the room of a file back when nobody has it open any more."""
        gone = list(segments)
        if topics:
            topic_ids = set(topics)
            gone += [(*key, False) for key in self._hot if key[0] in topic_ids]
            gone += [(*key, True) for key in self._cold if key[0] in topic_ids]
        for topic_id, first_seq, cold in gone:
            if not cold:
                self.forget(topic_id, first_seq)
            elif (loaded := self._cold.pop((topic_id, first_seq), None)) is not None:
                self._cold_bytes -= loaded.data.size

    def _fetch(self, key: Key) -> SegmentReader:
        """May run on any thread."""
        self._cold_tier.check_topic(key[0])
        directory = paths.topic_dir(self._cold_tier.root, key[0])
        return SegmentReader(self._disk, directory, key[1], mapped=False).preload()
