"""A delete by tag is looked for in slices and happens in one instant."""

import random
from collections.abc import Sequence

import pytest
from engine_on_a_fake_clock import EngineOnAFakeClock, record

from topics import limits
from topics.engine.apply import apply
from topics.engine.block import Block
from topics.engine.engine import DeletedRecords
from topics.engine.image import image_of
from topics.engine.journal import Busy
from topics.engine.topic_log import TopicLog
from topics.model.config import TopicConfigPatch
from topics.model.operation import RecordsDeleted
from topics.model.tag_match import TagMatch

A = TagMatch("a", is_prefix=False)
BLOCK = 100


class Sliced(EngineOnAFakeClock):
    """Blocks are small, and a turn of the loop comes when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slice_records: int = 2 * BLOCK) -> None:
        super().__init__(block_events_max=BLOCK)
        monkeypatch.setattr(limits, "DELETE_SLICE_RECORDS", slice_records)
        self.turns = 0
        self.engine.flow.call_soon = self._turn

    def _turn(self, call: object) -> None:
        self.turns += 1
        assert callable(call)
        call()

    def tags(self, count: int) -> None:
        self.write(*(record(tag="ab"[number % 2]) for number in range(count)))

    def delete(self, match: TagMatch = A, before_seq: int | None = None) -> DeletedRecords:
        while True:
            try:
                return self.engine.delete_records("t", before_seq, match)
            except Busy:
                continue  # its turn has come already


def in_one_piece(at: EngineOnAFakeClock, match: TagMatch, before_seq: int) -> int:
    """As a restart has it, from the log."""
    topic = at.topic
    bound = min(before_seq, topic.log.head_seq + 1)
    deleted = RecordsDeleted(topic_id=topic.topic_id, ts=at.clock.now_ms(), before_seq=bound, match=match)
    return apply(at.engine.state, deleted)


def test_a_delete_looks_at_so_many_records_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Sliced(monkeypatch)
    at.configure(TopicConfigPatch())
    for _ in range(20):
        at.tags(BLOCK)
    looked: list[int] = []
    matching = Block.matching

    def noting(block: Block, match: TagMatch) -> list[int]:
        looked.append(at.turns)
        return matching(block, match)

    monkeypatch.setattr(Block, "matching", noting)
    assert at.delete().count == 20 * BLOCK // 2
    assert len(looked) == 20  # each block once
    assert max(looked.count(turn) for turn in set(looked)) <= 3
    assert at.turns >= 9
    at.check_totals()


def test_nothing_is_gone_before_all_of_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Sliced(monkeypatch)
    at.configure(TopicConfigPatch())
    for _ in range(10):
        at.tags(BLOCK)
    with pytest.raises(Busy):
        at.engine.delete_records("t", None, A)
    assert at.topic.log.count == 10 * BLOCK
    at.tags(10)  # what comes meanwhile is there when the delete is decided
    assert at.delete().count == (10 * BLOCK + 10) // 2
    assert at.topic.log.count == (10 * BLOCK + 10) // 2


@pytest.mark.parametrize("seed", range(30))
def test_a_sliced_delete_takes_what_one_in_one_piece_takes(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever else happens to the topic between its slices."""
    at = Sliced(monkeypatch, slice_records=1)
    whole = EngineOnAFakeClock(block_events_max=BLOCK)
    dice = random.Random(seed)
    for each in (at, whole):
        each.configure(TopicConfigPatch(cap_records=8 * BLOCK))
    matches = [A, TagMatch("b", is_prefix=False), TagMatch("", is_prefix=True)]
    for _ in range(60):
        count, before_seq, match = dice.randrange(1, 2 * BLOCK), dice.randrange(1, 4000), dice.choice(matches)
        match dice.randrange(6):
            case 0:
                try:  # begun, and perhaps never finished
                    at.engine.delete_records("t", before_seq, match)
                except Busy:
                    continue
                in_one_piece(whole, match, before_seq)
            case 1:
                assert at.delete(match, before_seq).count == in_one_piece(whole, match, before_seq)
            case 2:
                for each in (at, whole):
                    each.engine.delete_records("t", before_seq, None)
            case _:
                for each in (at, whole):
                    each.write(*(record(tag="ab"[number % 2]) for number in range(count)))
        at.check_totals()
        assert at.topic.log.bytes == whole.topic.log.bytes
        assert image_of(at.topic) == image_of(whole.topic)


def test_a_delete_of_all_below_a_seq_does_not_look_into_what_goes_whole() -> None:
    prepared: list[int] = []

    class Noting(Block):
        def prepare(self, removing: Sequence[int] = ()) -> None:
            prepared.append(self.first_seq)

    at = EngineOnAFakeClock(block_events_max=BLOCK)
    at.configure(TopicConfigPatch())
    for _ in range(10):
        at.write(*[record()] * BLOCK)
    log: TopicLog = at.topic.log
    for block in list(log.blocks):
        assert isinstance(block, Block)
        noting = Noting(block.first_seq)
        for name in Block.__slots__:
            setattr(noting, name, getattr(block, name))
        log.replace_block(noting)
    assert at.engine.delete_records("t", 5 * BLOCK + 50, None).count == 5 * BLOCK + 49
    assert set(prepared) == {5 * BLOCK + 1, 6 * BLOCK + 1}


def test_topics_that_expire_together_do_so_a_slice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXPIRY_SLICE_TOPICS", 10)
    at = EngineOnAFakeClock()
    for number in range(25):
        at.configure(TopicConfigPatch(ttl_ms=10), f"t{number}")
        at.write(record(), topic=f"t{number}")
    at.clock.advance(11)
    left = [at.engine.state.records_live]
    while at.engine.expire_due():
        left.append(at.engine.state.records_live)
    left.append(at.engine.state.records_live)
    assert left == [25, 15, 5, 0]
