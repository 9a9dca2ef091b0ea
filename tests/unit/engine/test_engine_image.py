"""Topics taken for a checkpoint, and what the logs learn when it is on disk."""

from engine_on_a_fake_clock import TOPIC, EngineOnAFakeClock, record

from topics.engine.block import AnyBlock, Block
from topics.engine.image import capture, settle
from topics.engine.topic import Topic
from topics.model.config import Durability, TopicConfigPatch
from topics.model.image import BlockCapture, TopicCapture
from topics.model.producer import RememberedWrite
from topics.model.tag_match import TagMatch

NEVER_MS = 0
X = TagMatch("x", is_prefix=False)


def taken(at: EngineOnAFakeClock, block_age_ms_max: int = NEVER_MS) -> TopicCapture:
    return capture(at.topic, at.clock.now_ms(), block_age_ms_max)


def only(captured: TopicCapture) -> BlockCapture:
    (block,) = captured.blocks
    return block


def not_sealed(topic: Topic, block: Block) -> AnyBlock:
    raise AssertionError("it is not to be sealed")


def test_a_capture_has_all_a_snapshot_needs_of_a_topic() -> None:
    at = EngineOnAFakeClock()
    at.configure(TopicConfigPatch(cap_records=2))
    at.write(record(tag="x"), record(node="n", meta=b"{}"), record(), key="k")
    image = taken(at).image
    assert (image.topic_id, image.name, image.config) == (1, TOPIC, at.topic.config)
    assert (image.head_seq, image.earliest_seq, image.cap_lost_seq, image.ttl_lost_seq) == (3, 2, 1, 0)
    assert (image.last_ts, image.last_write_ts) == (at.clock.now_ms(), at.clock.now_ms())
    assert image.keys == [("k", RememberedWrite(1, 3, at.clock.now_ms()))]


def test_columns_are_copies_the_log_may_go_on() -> None:
    at = EngineOnAFakeClock()
    at.write(record(b"1", tag="x"), record(b"2", node="n", meta=b"{}"))
    block = only(taken(at))
    at.engine.delete_records(TOPIC, 3, None)
    at.write(record())
    assert block.columns is not None
    assert [fragment is not None for fragment in block.columns.fragments] == [True, True]
    assert (block.columns.tags, block.columns.nodes) == (["x", None], [None, "n"])
    assert (block.record_count, block.live_count, len(block.columns.timestamps)) == (2, 2, 2)


def test_after_a_checkpoint_only_what_came_since_is_taken() -> None:
    at = EngineOnAFakeClock()
    at.fill(3)
    settle(at.topic, only(taken(at)), not_sealed)
    at.fill(2)
    block = only(taken(at))
    assert (block.flushed_count, block.record_count) == (3, 5)
    assert block.columns is not None
    assert len(block.columns.fragments) == 2


def test_a_delete_of_what_is_on_disk_is_listed_until_its_byte_is_set() -> None:
    at = EngineOnAFakeClock()
    at.write(record(tag="x"), record(), record())
    settle(at.topic, only(taken(at)), not_sealed)
    at.engine.delete_records(TOPIC, None, X)
    for _ in range(2):
        captured = only(taken(at))
        assert captured.unflagged == [0], "the snapshot that lists it may not be the last"
        settle(at.topic, captured, not_sealed)
    at.topic.log.blocks[0].unflagged.clear()
    assert only(taken(at)).unflagged == []


def test_a_delete_while_the_checkpoint_is_written_is_flagged_by_the_next_one() -> None:
    at = EngineOnAFakeClock()
    at.write(record(), record(tag="x"), record())
    captured = only(taken(at))
    at.engine.delete_records(TOPIC, None, X)
    settle(at.topic, captured, not_sealed)
    assert only(taken(at)).unflagged == [1]


def test_a_delete_before_the_checkpoint_has_no_payload_to_write_and_no_byte_to_flag() -> None:
    at = EngineOnAFakeClock()
    at.write(record(), record(tag="x"), record())
    at.engine.delete_records(TOPIC, None, X)
    captured = only(taken(at))
    assert captured.columns is not None
    assert captured.columns.fragments[1] is None
    settle(at.topic, captured, not_sealed)
    assert only(taken(at)).unflagged == []


def test_a_block_that_has_waited_long_enough_is_sealed() -> None:
    at = EngineOnAFakeClock()
    at.fill(1)
    at.clock.advance(99)
    assert not only(taken(at, 100)).seal
    at.clock.advance(1)
    assert only(taken(at, 100)).seal
    at.fill(1)
    assert [block.seal for block in taken(at, 100).blocks] == [True, False]


def test_without_an_age_a_block_waits_until_it_is_full() -> None:
    at = EngineOnAFakeClock()
    at.fill(1)
    at.clock.advance(10**9)
    assert not only(taken(at)).seal


def test_a_sealed_block_takes_the_place_of_the_one_in_memory() -> None:
    at = EngineOnAFakeClock()
    at.fill(2)
    at.clock.advance(100)
    sealed = Block(1)

    def seal(topic: Topic, block: Block) -> AnyBlock:
        assert (topic, block.first_seq) == (at.topic, 1)
        return sealed

    settle(at.topic, only(taken(at, 100)), seal)
    assert at.topic.log.blocks == [sealed]


def test_a_block_that_went_while_it_was_written_is_let_go() -> None:
    at = EngineOnAFakeClock()
    at.fill(2)
    captured = only(taken(at))
    at.engine.delete_records(TOPIC, 3, None)
    settle(at.topic, captured, not_sealed)
    assert at.topic.log.blocks == []


def test_what_stays_in_memory_is_not_taken() -> None:
    at = EngineOnAFakeClock()
    at.configure(TopicConfigPatch(durability=Durability.MEMORY))
    at.write(record(), key="kept")
    at.configure(TopicConfigPatch(durability=Durability.EPHEMERAL))
    at.write(record(), key="with its record")
    captured = taken(at)
    assert (only(captured).first_seq, only(captured).record_count, only(captured).seal) == (1, 1, True)
    assert [key for key, _ in captured.image.keys] == ["kept"]
    assert captured.image.head_seq == 2


def test_what_stayed_in_memory_is_taken_when_the_class_rises() -> None:
    at = EngineOnAFakeClock()
    at.configure(TopicConfigPatch(durability=Durability.EPHEMERAL))
    at.fill(2)
    assert taken(at).blocks == []
    at.configure(TopicConfigPatch(durability=Durability.DISK))
    assert only(taken(at)).record_count == 2
