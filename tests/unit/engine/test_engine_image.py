"""Topics taken for a checkpoint, and what the logs learn when it is on disk."""

from engine_on_a_fake_clock import TOPIC, EngineOnAFakeClock, record

from topics.engine.image import Flushed, capture, give_back
from topics.model.config import Durability, TopicConfigPatch
from topics.model.image import BlockCapture, TopicCapture
from topics.model.producer import RememberedWrite
from topics.model.record import RECORD_OVERHEAD_BYTES
from topics.model.tag_match import TagMatch

X = TagMatch("x", is_prefix=False)


def taken(at: EngineOnAFakeClock, flushed: list[Flushed] | None = None) -> TopicCapture:
    return capture(at.topic, [] if flushed is None else flushed)


def only(captured: TopicCapture) -> BlockCapture:
    (block,) = captured.blocks
    return block


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
    first = only(taken(at))
    assert (first.flushed_count, first.flushed_bytes) == (0, 0)
    at.fill(2)
    block = only(taken(at))
    assert (block.flushed_count, block.record_count) == (3, 5)
    assert block.flushed_bytes == first.live_bytes
    assert block.columns is not None
    assert len(block.columns.fragments) == 2


def test_what_was_captured_and_not_written_is_taken_again() -> None:
    at = EngineOnAFakeClock()
    at.write(record(tag="x"), record())
    taken(at)
    flushed: list[Flushed] = []
    at.write(record(tag="x"), record())
    taken(at, flushed)
    at.engine.delete_records(TOPIC, None, X)
    give_back(flushed)
    block = only(taken(at))
    assert (block.flushed_count, block.record_count, block.unflagged) == (2, 4, [0])
    assert block.columns is not None
    assert [fragment is None for fragment in block.columns.fragments] == [True, False]


def test_a_delete_of_what_is_on_disk_is_listed_as_long_as_it_is_a_tail() -> None:
    at = EngineOnAFakeClock()
    at.write(record(tag="x"), record(), record())
    taken(at)
    at.engine.delete_records(TOPIC, None, X)
    for _ in range(3):
        assert only(taken(at)).unflagged == [0]


def test_a_delete_before_the_checkpoint_has_no_payload_to_write_and_is_not_listed() -> None:
    at = EngineOnAFakeClock()
    at.write(record(), record(tag="x"), record())
    at.engine.delete_records(TOPIC, None, X)
    captured = only(taken(at))
    assert captured.columns is not None
    assert captured.columns.fragments[1] is None
    again = only(taken(at))
    assert again.unflagged == []
    assert again.flushed_bytes == captured.live_bytes + RECORD_OVERHEAD_BYTES


def test_what_stays_in_memory_is_not_taken() -> None:
    at = EngineOnAFakeClock()
    at.configure(TopicConfigPatch(durability=Durability.MEMORY))
    at.write(record(), key="kept")
    at.configure(TopicConfigPatch(durability=Durability.EPHEMERAL))
    at.write(record(), key="with its record")
    captured = taken(at)
    assert (only(captured).first_seq, only(captured).record_count) == (1, 1)
    assert [key for key, _ in captured.image.keys] == ["kept"]
    assert captured.image.head_seq == 2


def test_what_stayed_in_memory_is_taken_when_the_class_rises() -> None:
    at = EngineOnAFakeClock()
    at.configure(TopicConfigPatch(durability=Durability.EPHEMERAL))
    at.fill(2)
    assert taken(at).blocks == []
    at.configure(TopicConfigPatch(durability=Durability.DISK))
    assert only(taken(at)).record_count == 2
