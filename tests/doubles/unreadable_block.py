"""A block on a cold tier that cannot be reached: every fetch fails on the loop's next turn."""

from collections.abc import Sequence

from doubles.fake_loop import FakeLoop
from topics.engine.block import Block
from topics.engine.journal import Busy, Commit
from topics.engine.topic_log import TopicLog
from topics.errors import StorageFailed, TopicsError


class UnreadableBlock(Block):
    """`fetches` counts how often its records were asked for. Without `error` a fetch succeeds."""

    def __init__(self, loop: FakeLoop, of: Block) -> None:
        super().__init__(of.first_seq)
        for name in Block.__slots__:
            setattr(self, name, getattr(of, name))
        self._loop = loop
        self.fetches = 0
        self.error: TopicsError | None = StorageFailed("the cold tier cannot be read")

    @property
    def cold(self) -> bool:  # type: ignore[override]
        return True

    def prepare(self, removing: Sequence[int] = ()) -> None:
        if self.error is not None:
            self.fetches += 1
            commit = Commit()
            self._loop.call_later(0, lambda: commit.resolve(self.error, 0))
            raise Busy(commit)


def make_unreadable(log: TopicLog, loop: FakeLoop) -> UnreadableBlock:
    """Puts one in the place of the first block."""
    first = log.blocks[0]
    assert isinstance(first, Block)
    block = UnreadableBlock(loop, first)
    log.replace_block(block)
    return block
