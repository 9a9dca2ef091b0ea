"""The engine rebuilt from images and operations; doing any of it again changes nothing."""

from collections.abc import Callable, Mapping

import pytest
from engine_on_a_fake_clock import EngineOnAFakeClock, record, seqs

from topics.engine.block import AnyBlock
from topics.engine.engine import Engine, Write
from topics.engine.rebuild import Rebuild
from topics.engine.topic import Topic
from topics.model.config import Durability, TopicConfig, TopicConfigPatch
from topics.model.gap import Gap, GapReason
from topics.model.image import KeyImage, SegmentImage, TopicImage
from topics.model.operation import TopicCreated, TopicDeleted
from topics.model.payload import join_payload
from topics.model.read_options import ReadOptions
from topics.model.tag_match import TagMatch
from topics.testing.fake_clock import FakeClock

HAS_TAG, HAS_NODE, CONTINUES = 1, 2, 8
EVERYTHING = ReadOptions(limit=1000, bytes_max=1 << 20, include_tags=True)
FSYNC = TopicConfig(durability=Durability.FSYNC, durable=True)
DISK = TopicConfig(durability=Durability.DISK)

Replayed = tuple[int, int, bytes, bytes, bytes]


def appended(
    payload: bytes = b"0", *, tag: bytes | None = None, node: bytes | None = None, more: bool = False
) -> Replayed:
    flags = HAS_TAG * (tag is not None) | HAS_NODE * (node is not None) | CONTINUES * more
    return flags, 1000, node or b"", tag or b"", payload


def image(config: TopicConfig = FSYNC, **fields: object) -> TopicImage:
    whole: dict[str, object] = {
        "topic_id": 1,
        "name": "t",
        "config": config,
        "head_seq": 0,
        "earliest_seq": 1,
        "last_ts": 0,
        "cap_lost_seq": 0,
        "config_version": 0,
        "ttl_lost_seq": 0,
        "crash_lost_seq": 0,
        "lost_ranges": [],
        "ceiling": 0,
        "last_write_ts": None,
        "keys": [],
        "segments": [],
    }
    return TopicImage(**(whole | fields))  # type: ignore[arg-type]


def no_segment(image: TopicImage, segment: SegmentImage) -> AnyBlock:
    raise AssertionError("there is no sealed segment")


class Rebuilt:
    """An engine under reconstruction."""

    def __init__(self) -> None:
        self.engine = Engine(FakeClock())
        self.recounts = 0
        self.under_test = Rebuild(self.engine, no_segment, self._recount)

    def _recount(self, block: AnyBlock, dead_below: int) -> None:
        self.recounts += 1

    def created(self, config: TopicConfig = FSYNC, ceiling: int = 0) -> "Rebuilt":
        self.under_test.topic_created(1, 1000, TopicCreated("t", config, ceiling))
        return self

    def finish(self, *, clean: bool = False, heads: Mapping[int, int] | None = None) -> "Rebuilt":
        self.under_test.finish(2, clean=clean, heads=heads)
        return self

    @property
    def topic(self) -> Topic:
        return self.engine.topic("t")

    def seqs(self) -> list[int]:
        return seqs(self.engine.read("t", 0, EVERYTHING)[1])

    def gap(self, from_seq: int = 0) -> Gap | None:
        return self.engine.read("t", from_seq, EVERYTHING)[1].gap


@pytest.fixture
def at() -> Rebuilt:
    return Rebuilt()


def test_records_come_back_as_a_reader_saw_them(at: Rebuilt) -> None:
    writer = EngineOnAFakeClock()
    writer.clock.set_wall(1000)
    writer.write(
        record(b'{"a": 1.0}', tag="x", node="n", meta=b'{"k" : "v"}'), record(b"null"), record(node="", tag="")
    )
    at.created()
    at.under_test.appended(
        1,
        1,
        [
            appended(join_payload(b'{"a": 1.0}', b'{"k" : "v"}', None), tag=b"x", node=b"n"),
            appended(b"null"),
            appended(b"0", tag=b"", node=b""),
        ],
    )
    at.finish()
    written, found = writer.engine.read("t", 0, EVERYTHING)[1], at.engine.read("t", 0, EVERYTHING)[1]
    assert found.fragments == written.fragments
    assert (at.engine.bytes_live, at.engine.records_live) == (writer.engine.bytes_live, 3)


def test_sizes_do_not_count_the_key_a_record_carries(at: Rebuilt) -> None:
    writer = EngineOnAFakeClock()
    writer.engine.append("t", Write([record(meta=b"{}"), record()], idempotency_key="key"))
    at.created()
    at.under_test.appended(
        1, 1, [appended(join_payload(b"0", b"{}", b"key")), appended(join_payload(b"0", None, b"k"))]
    )
    assert at.finish().engine.bytes_live == writer.engine.bytes_live


def test_what_an_image_has_already_is_passed_over(at: Rebuilt) -> None:
    at.created()
    for _ in range(2):
        at.under_test.appended(1, 1, [appended(b"1"), appended(b"2")])
    at.under_test.appended(1, 2, [appended(b"2"), appended(b"3")])
    assert at.finish().seqs() == [1, 2, 3]
    assert (at.engine.records_live, at.topic.assigned_seq) == (3, 3)


@pytest.mark.parametrize(
    "again",
    [
        lambda rebuild: rebuild.topic_created(1, 1000, TopicCreated("t", TopicConfig(), 0)),
        lambda rebuild: rebuild.config_updated(1, 1000, FSYNC, 1),
        lambda rebuild: rebuild.records_deleted(1, 2, None),
        lambda rebuild: rebuild.records_deleted(1, 4, TagMatch("x", is_prefix=False)),
        lambda rebuild: rebuild.records_expired(1, 3),
        lambda rebuild: rebuild.head_reserved(1, 5),
        lambda rebuild: rebuild.topic_deleted(9, TopicDeleted()),
    ],
)
def test_an_operation_done_again_changes_nothing(at: Rebuilt, again: Callable[[Rebuild], None]) -> None:
    at.created(ceiling=5)
    at.under_test.appended(1, 1, [appended(), appended(tag=b"x"), appended(), appended()])
    at.under_test.records_deleted(1, 2, None)
    at.under_test.records_deleted(1, 4, TagMatch("x", is_prefix=False))
    at.under_test.records_expired(1, 3)
    again(at.under_test)
    at.finish(clean=True)
    log = at.topic.log
    assert (at.seqs(), log.head_seq, log.earliest_seq, log.ttl_lost_seq, at.topic.ceiling) == ([4], 4, 4, 3, 5)
    assert at.topic.config == FSYNC


def test_operations_of_a_deleted_topic_are_passed_over(at: Rebuilt) -> None:
    at.created()
    at.under_test.appended(1, 1, [appended()])
    at.under_test.topic_deleted(1, TopicDeleted())
    at.under_test.appended(1, 2, [appended()])
    at.under_test.records_deleted(1, 5, None)
    at.under_test.records_expired(1, 5)
    at.under_test.head_reserved(1, 5)
    at.under_test.config_updated(1, 1000, DISK, 1)
    at.finish()
    assert (len(at.engine.topics), at.engine.records_live, at.engine.bytes_live) == (0, 0, 0)
    assert at.engine.take_changes() == ([], [1])


def test_a_name_that_was_used_again_belongs_to_the_later_topic(at: Rebuilt) -> None:
    """Shards are read one after the other, so the later one may be met first."""
    at.under_test.topic_created(2, 1000, TopicCreated("t", FSYNC))
    at.under_test.appended(2, 1, [appended(b"2")])
    at.created()
    at.under_test.topic_deleted(1, TopicDeleted())
    at.finish()
    assert (at.topic.topic_id, at.seqs()) == (2, [1])


def test_ids_go_on_after_the_highest_one(at: Rebuilt) -> None:
    at.created().under_test.finish(8, clean=True, heads=None)
    assert at.engine.put_topic("new", TopicConfigPatch()).topic.topic_id == 8


def test_keys_come_back_with_the_seqs_of_their_writes(at: Rebuilt) -> None:
    at.created()
    keyed = [appended(more=True), appended(join_payload(b"0", None, b"k1")), appended(join_payload(b"0", b"{}", b"k2"))]
    for _ in range(2):
        at.under_test.appended(1, 1, keyed)
    at.finish()
    found = {key: (write.first_seq, write.record_count, write.at_ms) for key, write in at.topic.keys.items()}
    assert found == {"k1": (1, 2, 1000), "k2": (3, 1, 1000)}


def test_keys_of_an_image_come_back_in_their_order(at: Rebuilt) -> None:
    at.under_test.load_topic(image(keys=[KeyImage("a", 1, 1, 5), KeyImage("b", 2, 3, 6)]), [])
    at.finish()
    assert [(key, *write) for key, write in at.topic.keys.items()] == [("a", 1, 1, 5), ("b", 2, 3, 6)]


# What a crash took


@pytest.mark.parametrize(
    ("clean", "heads", "gap"),
    [
        (True, None, None),
        (False, None, Gap(3, 64, GapReason.CRASH)),
        (False, {1: 5}, Gap(3, 5, GapReason.CRASH)),
        (False, {1: 2}, None),
        (False, {}, None),
    ],
)
def test_seqs_of_a_disk_topic_that_may_have_been_given_out_are_not_given_out_again(
    at: Rebuilt, clean: bool, heads: Mapping[int, int] | None, gap: Gap | None
) -> None:
    at.created(DISK, ceiling=64)
    at.under_test.appended(1, 1, [appended(), appended()])
    at.finish(clean=clean, heads=heads)
    assert at.gap(2) == gap
    head_seq = 2 if gap is None else gap.gap_to
    assert (at.topic.log.head_seq, at.topic.assigned_seq, at.seqs()) == (head_seq, head_seq, [1, 2])


@pytest.mark.parametrize("config", [FSYNC, TopicConfig(durability=Durability.MEMORY)])
def test_other_classes_lose_no_seqs_by_a_reservation(at: Rebuilt, config: TopicConfig) -> None:
    at.created(config, ceiling=64)
    at.under_test.appended(1, 1, [appended()])
    assert at.finish().topic.log.head_seq == 1


def test_seqs_the_log_jumps_over_are_a_tombstone(at: Rebuilt) -> None:
    at.created()
    at.under_test.appended(1, 1, [appended()])
    at.under_test.appended(1, 4, [appended()])
    at.finish()
    assert (at.seqs(), at.gap(1)) == ([1], Gap(2, 3, GapReason.CRASH))


def test_records_that_were_in_memory_alone_are_lost_with_a_tombstone(at: Rebuilt) -> None:
    """The image knows their seqs, and no segment has them."""
    ephemeral = TopicConfig(durability=Durability.EPHEMERAL)
    at.under_test.load_topic(image(ephemeral, head_seq=5), [])
    at.finish(clean=True)
    assert (at.seqs(), at.gap(), at.topic.log.head_seq) == ([], Gap(1, 5, GapReason.CRASH), 5)
    assert at.topic.log.resident_from == 6


# Segments of an image


def test_an_unsealed_segment_comes_back_as_a_block_that_can_be_written_on(at: Rebuilt) -> None:
    segment = SegmentImage(1, 3, 100, 2, 80, 1000, 1000, sealed=False)
    records = [(seq, 1000, None, b"x", b"%d" % seq) for seq in (1, 2, 3)]
    at.under_test.load_topic(
        image(head_seq=3, last_ts=1000, segments=[segment]), [(segment, records, [False, True, False])]
    )
    at.under_test.appended(1, 4, [appended()])
    at.finish()
    (block,) = at.topic.log.blocks
    assert (at.seqs(), block.flushed_count, block.unflagged, len(block)) == ([1, 3, 4], 3, [], 4)
    assert at.engine.records_live == 3


def test_positions_before_the_earliest_seq_are_dead_without_a_flag(at: Rebuilt) -> None:
    segment = SegmentImage(1, 3, 100, 1, 40, 1000, 1000, sealed=False)
    records = [(seq, 1000, None, None, b"0") for seq in (1, 2, 3)]
    at.under_test.load_topic(
        image(head_seq=3, earliest_seq=3, cap_lost_seq=2, segments=[segment]), [(segment, records, [False] * 3)]
    )
    at.finish()
    assert (at.seqs(), at.gap()) == ([3], Gap(1, 2, GapReason.CAP))


def test_the_first_delete_of_a_topic_counts_its_segments_anew_and_no_later_one(at: Rebuilt) -> None:
    at.created()
    at.under_test.appended(1, 1, [appended(), appended(), appended()])
    at.under_test.records_deleted(1, 2, None)
    at.under_test.records_deleted(1, 3, None)
    assert (at.recounts, at.finish().seqs()) == (1, [3])
