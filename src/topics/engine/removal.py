"""What a delete would remove, without removing it: counted block by block, so that whoever asks can let others in.

Blocks that go as a whole are counted without a look into them.
"""

from topics import limits
from topics.engine import log_reading
from topics.engine.block import AnyBlock
from topics.engine.topic_log import TopicLog
from topics.model.tag_match import TagMatch


class Removal:
    """Hand it the blocks of the log in their order. `add` and `last_seq` may raise `Busy`: try again later."""

    __slots__ = ("_earliest_seq", "_last", "before_seq", "bytes", "count", "match", "sample_seqs")

    def __init__(self, log: TopicLog, before_seq: int | None, match: TagMatch | None) -> None:
        self.before_seq = log.head_seq + 1 if before_seq is None else min(before_seq, log.head_seq + 1)
        self.match = match
        self._earliest_seq = log.earliest_seq
        self.count = 0
        self.bytes = 0
        self.sample_seqs: list[int] = []  # the first ones
        self._last: AnyBlock | int = 0  # the last that goes, or the block it is in

    def add(self, block: AnyBlock) -> None:
        end = self.before_seq - block.first_seq
        if end <= 0 or not block.live_count:
            return
        whole = self.match is None and end >= len(block)
        if whole and len(self.sample_seqs) == limits.DELETE_PREVIEW_RECORDS_MAX:
            self.count += block.live_count
            self.bytes += block.live_bytes
            self._last = block
            return
        block.prepare()
        positions = self._positions(block, end)
        if not positions:
            return
        self.count += len(positions)
        self.bytes += block.live_bytes if whole else block.size(positions)
        self._last = block.first_seq + positions[-1]
        room = limits.DELETE_PREVIEW_RECORDS_MAX - len(self.sample_seqs)
        self.sample_seqs += [block.first_seq + position for position in positions[:room]]

    def last_seq(self) -> int | None:
        """None when nothing would go."""
        if not self.count:
            return None
        if not isinstance(self._last, int):
            block = self._last
            block.prepare()
            # All of it may have gone meanwhile.
            self._last = block.first_seq + block.last_live() if block.live_count else block.last_seq
        return self._last

    def sample(self, log: TopicLog) -> list[bytes]:
        """The texts of the first ones, those left out that have gone meanwhile. May raise `Busy`."""
        log_reading.prepare(log, self.sample_seqs)
        texts = log_reading.texts_of(log, [seq for seq in self.sample_seqs if log_reading.is_live(log, seq)])
        while sum(map(len, texts)) > limits.DELETE_PREVIEW_BYTES_MAX:
            texts.pop()
        return texts

    def _positions(self, block: AnyBlock, end: int) -> list[int]:
        if self.match is not None:
            return sorted(position for position in block.matching(self.match) if position < end)
        positions, _ = block.window(max(self._earliest_seq - block.first_seq, 0), len(block))
        return [position for position in positions if position < end]
