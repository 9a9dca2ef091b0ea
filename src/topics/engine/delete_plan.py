"""A delete by tag: its records are looked for block by block before it is decided.

Finding the records of a tag takes most of the time a delete takes, and it changes nothing: so it may be done in slices,
with others let in between, and from the cold tier one segment after the other. The delete itself is then one operation
and one instant for readers, as ever: it kills what was found.

A plan is a hint. What is dead or gone by then is skipped, and blocks it does not know are searched on the spot, as a
replay does for all of them. It holds for good, because a block's seqs never get other records.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from topics.engine.block import AnyBlock, Block
from topics.model.tag_match import TagMatch


class Doomed(NamedTuple):
    """Live positions of a block, and the bytes they held when they were found."""

    positions: Sequence[int]
    size: int


NOBODY = Doomed((), 0)


def doomed_in(block: AnyBlock, match: TagMatch, end: int) -> Doomed:
    """The live positions below `end` whose tag matches. The records have to be at hand."""
    positions = array("I", (position for position in block.matching(match) if position < end))
    return Doomed(positions, block.size(positions))


class DeletePlan:
    """The plan for the records with one tag, or with one prefix."""

    __slots__ = ("_found", "_match", "next_seq")

    def __init__(self, match: TagMatch) -> None:
        self._match = match
        self.next_seq = 0  # everything before it has been looked at
        self._found: dict[int, Doomed] = {}  # by the first seq of its block

    def proceed(self, blocks: Sequence[AnyBlock], start: int, before_seq: int, records_max: int) -> bool:
        """Looks at the next blocks, from number `start` on, at so many records; True when all below `before_seq` are
        known, but for blocks that still grow or reach beyond it. Raises `Busy` while a block has to be fetched."""
        for index in range(start, len(blocks)):
            block = blocks[index]
            grows = isinstance(block, Block) and block is blocks[-1]
            if grows or block.last_seq >= before_seq:
                if block.first_seq < before_seq:
                    block.prepare()
                    if not grows:
                        block.matching(self._match)  # a segment that cannot be read refuses the delete
                return True
            if block.first_seq < self.next_seq:
                continue
            if records_max <= 0:
                return False
            if block.live_count:
                block.prepare()
                self._found[block.first_seq] = doomed_in(block, self._match, len(block))
                records_max -= len(block)
            self.next_seq = block.last_seq + 1
        return True

    def take(self, block: AnyBlock) -> Doomed | None:
        """Hands out what was found in the block, once: after that it is dead. None if the block was not searched."""
        if block.first_seq >= self.next_seq:
            return None
        return self._found.pop(block.first_seq, NOBODY)
