"""The state brought back at a start: images, the log behind them, copies no log has, and what was lost."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from engine_on_a_fake_clock import record
from logged_engine import LoggedEngine, shown
from msgspec import structs

from topics.engine import log_reading
from topics.engine.apply import apply
from topics.engine.block import AnyBlock
from topics.engine.engine import Engine, Write
from topics.engine.image import capture, image_of, load_tail
from topics.engine.log_reading import ReadBatch
from topics.engine.queues import Claimer
from topics.engine.replay import derive_copies, end_of_log, load_images, restarts
from topics.engine.state import State
from topics.engine.topic import Topic
from topics.model.config import Discard, Durability, TopicConfig, TopicConfigPatch, TopicType
from topics.model.gap import Gap, GapReason
from topics.model.image import SegmentImage, TopicImage
from topics.model.operation import (
    Appended,
    Operation,
    RecordsDeleted,
    Restarted,
    SeqsReserved,
    TopicCreated,
    TopicDeleted,
    WriteEnd,
)
from topics.model.producer import RememberedWrite
from topics.model.read_options import ReadOptions
from topics.model.record import Batch, render_fragment
from topics.model.router import RouterSettings
from topics.model.tag_match import TagMatch
from topics.testing.fake_clock import FakeClock

EVERYTHING = ReadOptions(limit=1000, bytes_max=1 << 20, include_tags=True)
FSYNC = TopicConfig(durability=Durability.FSYNC, durable=True)
DISK = TopicConfig(durability=Durability.DISK)
X = TagMatch("x", is_prefix=False)
NOW_MS = 5000

Heads = Mapping[int, int] | None


def created(config: TopicConfig = FSYNC, ceiling: int = 0, topic_id: int = 1) -> TopicCreated:
    return TopicCreated(topic_id=topic_id, ts=1000, name="t", config=config, ceiling=ceiling)


def batch(first_seq: int, count: int, tag: str | None = None) -> Batch:
    texts = [render_fragment(seq, 1000, None, b"%d" % seq, b"")[0] for seq in range(first_seq, first_seq + count)]
    return Batch(texts, [39] * count, [None] * count, [tag] * count, [0] * count, 39 * count)


def appended(first_seq: int, count: int = 1, key: str | None = None, topic_id: int = 1) -> Appended:
    last_seq = first_seq + count - 1
    return Appended(topic_id, first_seq, batch(first_seq, count), [1000] * count, [WriteEnd(last_seq, key)])


def image(config: TopicConfig = FSYNC, **fields: object) -> TopicImage:
    return structs.replace(image_of(folded(created(config)).topics.by_name["t"]), **fields)


def folded(*operations: Operation) -> State:
    state = State()
    for operation in operations:
        apply(state, operation)
    end_of_log(state)
    return state


def crashed(state: State, heads: Heads = None) -> list[Operation]:
    """What a start that follows no clean stop makes of it."""
    derive_copies(state, heads)
    found = restarts(state, heads, NOW_MS)
    for operation in found:
        apply(state, operation)
    return found


def read(topic: Topic, from_seq: int = 0) -> ReadBatch:
    return log_reading.read(topic.log, from_seq, EVERYTHING)


def no_segment(image: TopicImage, segment: SegmentImage) -> AnyBlock:
    raise AssertionError("there is no segment")


# The log


def test_records_come_back_as_a_reader_saw_them() -> None:
    at = LoggedEngine()
    at.make("t")
    at.write(
        record(b'{"a": 1.0}', tag="x", node="n", meta=b'{"k" : "v"}'),
        record(b"null"),
        record(node="", tag=""),
        topic="t",
    )
    state = at.folded()
    assert read(state.topics.by_name["t"]).fragments == at.read(topic="t", include_tags=True).fragments
    assert (state.bytes_live, state.records_live) == (at.engine.state.bytes_live, 3)


def test_sizes_do_not_count_the_key_a_record_carries() -> None:
    at = LoggedEngine()
    at.make("t")
    at.write(record(meta=b"{}"), record(), topic="t", key="key")
    at.write(record(meta=b"{}"), topic="t", key="other")
    assert at.folded().bytes_live == at.engine.state.bytes_live


def test_operations_of_a_deleted_topic_are_passed_over() -> None:
    state = folded(
        created(),
        appended(1),
        TopicDeleted(topic_id=1, ts=1000),
        appended(2),
        RecordsDeleted(topic_id=1, ts=1000, before_seq=5),
        SeqsReserved(topic_id=1, ts=1000, ceiling=5),
    )
    assert (len(state.topics), state.records_live, state.bytes_live) == (0, 0, 0)
    assert (state.changed, state.begin_capture(lambda topic: None)) == ({}, [1])


def test_a_name_that_was_used_again_belongs_to_the_later_topic() -> None:
    """Logs are read one after the other, so the later one may be met first."""
    state = folded(
        created(topic_id=2),
        appended(1, topic_id=2),
        created(topic_id=1),
        appended(1, 3, topic_id=1),
        TopicDeleted(topic_id=1, ts=1000),
    )
    assert (state.topics.by_name["t"].topic_id, state.records_live) == (2, 1)


def test_a_topic_whose_name_another_one_has_is_deleted_by_the_start() -> None:
    """It was refused: its disk failed while it was made."""
    state = folded(created(topic_id=2), created(topic_id=1), appended(1, topic_id=1))
    assert crashed(state)[0] == TopicDeleted(topic_id=1, ts=NOW_MS)
    assert ([topic.topic_id for topic in state.topics], state.topics.by_id(1), state.records_live) == ([2], None, 0)


def test_ids_go_on_after_the_highest_one() -> None:
    at = LoggedEngine()
    at.make("a")
    at.make("b")
    router = at.route("a", "b")
    assert at.folded().next_id == router.router_id + 1
    state = State()
    load_images(state, [image(topic_id=41)], no_segment)
    assert state.next_id == 42


def test_keys_come_back_with_the_seqs_of_their_writes() -> None:
    topic = folded(created(), appended(1, 2, "k1"), appended(3, 1, "k2"), appended(4)).topics.by_name["t"]
    found = {key: tuple(write) for key, write in topic.keys.items()}
    assert found == {"k1": (1, 2, 1000), "k2": (3, 1, 1000)}


def test_seqs_the_log_jumps_over_are_a_tombstone() -> None:
    topic = folded(created(), appended(1), appended(4)).topics.by_name["t"]
    assert (read(topic).fragments, read(topic, 1).gap) == (
        [appended(1).batch.fragments[0]],
        Gap(2, 3, GapReason.CRASH),
    )


# Images


def everything() -> LoggedEngine:
    """A topic of each sort, each with something to remember."""
    at = LoggedEngine()
    at.make("a", cap_records=2)
    at.make("b", Durability.DISK)
    at.make("q", Durability.DISK, type=TopicType.QUEUE)
    at.route("a", "b")
    at.write(*[record(tag="x")] * 4, topic="a", key="k")
    at.engine.put_cursor("a", "c", 1)
    for _ in range(2):
        at.journal.sync()
        at.engine.forward_pending()
    at.put("q", 1, 2, 3)
    at.engine.queues.claim(at.engine.topic("q"), (Claimer("w", 2),))
    at.journal.sync()
    return at


def test_a_topic_loaded_from_its_image_is_as_it_was() -> None:
    at = everything()
    captures = {topic.topic_id: capture(topic, []) for topic in at.engine.topics}

    def load_block(image: TopicImage, segment: SegmentImage) -> AnyBlock:
        (block,) = captures[image.topic_id].blocks
        columns = block.columns
        assert columns is not None
        texts = [text or b"" for text in columns.fragments]
        sizes = [39 + len(tag or "") for tag in columns.tags]
        made = Batch(texts, sizes, list(columns.nodes), list(columns.tags), list(columns.meta_at), sum(sizes))
        return load_tail(
            image.earliest_seq, segment, made, columns.timestamps, [text is None for text in columns.fragments]
        )

    images = [
        structs.replace(
            each.image,
            segments=[
                SegmentImage(
                    block.first_seq, block.record_count, 0, block.live_count, block.live_bytes, 0, 0, sealed=False
                )
                for block in each.blocks
            ],
        )
        for each in captures.values()
    ]
    state = State()
    load_images(state, images, load_block)
    end_of_log(state)
    assert shown(state) == shown(at.engine.state)
    assert (state.bytes_live, state.records_live) == (at.engine.state.bytes_live, at.engine.state.records_live)
    assert not state.has_changes, "nothing of it has to be written again"
    (router,) = state.routers
    assert (router.source.name, router.dest.name, router.decided, router.logged) == ("a", "b", 4, 4)
    assert state.topics.by_name["a"].outbound == {router.router_id: router}


def test_keys_of_an_image_come_back_in_their_order() -> None:
    state = State()
    keys = [("a", RememberedWrite(1, 1, 5)), ("b", RememberedWrite(2, 3, 6))]
    load_images(state, [image(keys=keys)], no_segment)
    assert list(state.topics.by_name["t"].keys.items()) == keys


def test_records_that_were_in_memory_alone_are_lost_with_a_tombstone() -> None:
    """The image knows their seqs, and no segment has them."""
    state = State()
    load_images(state, [image(TopicConfig(durability=Durability.EPHEMERAL), head_seq=5)], no_segment)
    topic = state.topics.by_name["t"]
    assert (read(topic).fragments, read(topic).gap, topic.log.head_seq) == ([], Gap(1, 5, GapReason.CRASH), 5)
    assert topic.log.resident_from == 6


def tail_of(count: int, deleted: list[bool], **fields: object) -> Topic:
    segment = SegmentImage(1, count, 100, count - sum(deleted), 39 * (count - sum(deleted)), 1000, 1000, sealed=False)
    state = State()

    def load_block(image: TopicImage, segment: SegmentImage) -> AnyBlock:
        return load_tail(image.earliest_seq, segment, batch(1, count), [1000] * count, deleted)

    fields |= {"head_seq": count, "last_ts": 1000, "segments": [segment]}
    load_images(state, [structs.replace(image(), **fields)], load_block)
    end_of_log(state)
    apply(state, appended(count + 1))
    assert state.records_live == state.topics.by_name["t"].log.count
    return state.topics.by_name["t"]


def test_an_unsealed_segment_comes_back_as_a_block_that_can_be_written_on() -> None:
    topic = tail_of(3, [False, True, False])
    (block,) = topic.log.blocks
    assert (log_reading.live_from(topic.log, 1, 10), block.flushed_count, block.unflagged, len(block)) == (
        [1, 3, 4],
        3,
        [],
        4,
    )


def test_positions_before_the_earliest_seq_are_dead_without_a_flag() -> None:
    topic = tail_of(3, [False] * 3, earliest_seq=3, cap_lost_seq=2)
    (block,) = topic.log.blocks
    assert (log_reading.live_from(topic.log, 1, 10), read(topic).gap, block.unflagged) == (
        [3, 4],
        Gap(1, 2, GapReason.CAP),
        [],
    )


# What a crash took


@pytest.mark.parametrize(
    ("heads", "gap"),
    [
        (None, Gap(3, 64, GapReason.CRASH)),
        ({1: 5}, Gap(3, 5, GapReason.CRASH)),
        ({1: 2}, None),
        ({}, None),
    ],
)
def test_seqs_of_a_disk_topic_that_may_have_been_given_out_are_not_given_out_again(
    heads: Heads, gap: Gap | None
) -> None:
    state = folded(created(DISK, ceiling=64), appended(1, 2))
    operations = crashed(state, heads)
    topic = state.topics.by_name["t"]
    head_seq = 2 if gap is None else gap.gap_to
    assert (read(topic, 2).gap, topic.log.head_seq, log_reading.live_from(topic.log, 1, 9)) == (gap, head_seq, [1, 2])
    told = [Restarted(topic_id=1, ts=NOW_MS, head_seq=head_seq)] if gap else []
    assert operations == told, "what is as it was needs no word"


def test_after_a_clean_stop_nothing_was_lost() -> None:
    state = folded(created(DISK, ceiling=64), appended(1, 2))
    assert (state.topics.by_name["t"].log.head_seq, state.topics.by_name["t"].assigned_seq) == (2, 2)


@pytest.mark.parametrize("config", [FSYNC, TopicConfig(durability=Durability.MEMORY)])
@pytest.mark.parametrize("heads", [None, {1: 9}])
def test_other_classes_lose_no_seqs_by_a_reservation(config: TopicConfig, heads: Heads) -> None:
    state = folded(created(config, ceiling=64), appended(1))
    assert (crashed(state, heads), state.topics.by_name["t"].log.head_seq) == ([], 1)


def test_what_a_start_found_is_in_the_log_so_that_the_next_one_finds_the_same() -> None:
    at = LoggedEngine()
    topic = at.make("t", Durability.DISK)
    at.put("t", 1, 2)
    at.journal.batches.pop()  # a power cut took it
    heads = {topic.topic_id: 2}
    again = Engine(at.clock, journal=at.journal)
    for operation in at.log():
        apply(again.state, operation)
    end_of_log(again.state)
    again.restart(restarts(again.state, heads, at.clock.now_ms()))
    assert at.kinds() == ["TopicCreated", "Restarted", "Restarted"]
    assert not any(at.journal.gates(Restarted))
    assert again.append("t", Write([record()])).first_seq == 3
    assert shown(at.folded()) == shown(again.state)
    assert restarts(at.folded(), {topic.topic_id: 3}, NOW_MS) == []


@pytest.mark.parametrize("durable", [False, True])
def test_leases_end_with_their_process_unless_they_are_durable(durable: bool) -> None:
    at = LoggedEngine()
    at.make("q", Durability.DISK, type=TopicType.QUEUE, leases_durable=durable)
    at.put("q", 1, 2, 3)
    at.engine.queues.claim(at.engine.topic("q"), (Claimer("w", 2),))
    at.journal.sync()
    state = at.folded()
    crashed(state, {1: 3})
    queue = state.topics.by_name["q"].queue
    assert queue is not None
    assert sorted(queue.leases.by_seq) == ([1, 2] if durable else [])
    assert queue.deliveries == {1: 1, 2: 1}, "they were delivered all the same"
    assert queue.choose(9, partial(log_reading.live_from, state.topics.by_name["q"].log)) == (
        [3] if durable else [1, 2, 3]
    )


def test_a_claim_of_jobs_that_were_lost_is_forgotten() -> None:
    """The next jobs may have been claimed in this life alone: their seqs are new."""
    at = LoggedEngine()
    at.make("q", Durability.MEMORY, type=TopicType.QUEUE)
    at.put("q", 1)
    at.put("q", 2, 3)
    at.engine.queues.claim(at.engine.topic("q"), (Claimer("w", 3),))
    lost = at.journal.batches.pop(2)
    assert isinstance(lost[0][0], Appended)
    state = at.folded()
    crashed(state)
    topic = state.topics.by_name["q"]
    assert topic.queue is not None
    assert (topic.log.head_seq, topic.queue.claim_cursor, sorted(topic.queue.deliveries)) == (1, 2, [1])
    apply(state, appended(2, topic_id=topic.topic_id))
    assert topic.queue.choose(9, partial(log_reading.live_from, topic.log)) == [1, 2]


# Copies no log has


def fanned_out(settings: RouterSettings | None = None, **dest: object) -> LoggedEngine:
    """Five records, all forwarded, and the log says nothing of it."""
    at = LoggedEngine()
    at.make("a")
    at.make("b", **dest)  # type: ignore[arg-type]
    at.route("a", "b", settings or RouterSettings())
    for value in range(5):
        at.write(record(b"%d" % value, tag="x" if value % 2 else "y"), topic="a")
    at.engine.forward_pending()
    assert at.kinds()[-1] == "Appended"
    return at


@pytest.mark.parametrize("settings", [RouterSettings(), RouterSettings(filter=X)])
def test_copies_are_made_again_as_they_were(settings: RouterSettings) -> None:
    at = fanned_out(settings)
    state = at.folded()
    assert state.topics.by_name["b"].log.head_seq == 0
    derive_copies(state, dict(at.journal.heads))
    assert shown(state) == shown(at.engine.state)
    assert state.topics.by_name["b"].assigned_seq == at.engine.topic("b").log.head_seq


def test_copies_are_made_again_up_to_what_was_seen_and_no_further() -> None:
    at = fanned_out()
    state = at.folded()
    derive_copies(state, {1: 5, 2: 3})
    (router,) = state.routers
    assert (router.dest.log.head_seq, router.cursor, router.decided) == (3, 3, 3)


def test_where_nobody_knows_what_was_seen_all_there_is_room_for_is_copied() -> None:
    state = fanned_out().folded()
    derive_copies(state, None)
    assert state.topics.by_name["b"].log.head_seq == 5
    full = fanned_out(cap_records=2, discard=Discard.REJECT).folded()
    derive_copies(full, None)
    assert (full.topics.by_name["b"].log.count, next(iter(full.routers)).cursor) == (2, 2)


def test_copies_of_copies_are_made_again() -> None:
    at = fanned_out()
    at.make("c")
    at.route("b", "c", RouterSettings(filter=X))
    at.write(record(tag="x"), record(tag="y"), topic="a")
    at.engine.forward_pending()
    state = at.folded()
    derive_copies(state, dict(at.journal.heads))
    assert shown(state) == shown(at.engine.state)


@pytest.mark.parametrize("cap", [{"cap_records": 1}, {"cap_bytes": 45}])
def test_copies_of_copies_that_a_cap_has_taken_since_are_made_again(cap: dict[str, Any]) -> None:
    """Each was copied on before the next one pushed it out."""
    at = LoggedEngine()
    at.make("a")
    at.make("b", Durability.MEMORY, **cap)
    at.make("c")
    at.route("a", "b")
    at.route("b", "c")
    for value in range(3):
        at.put("a", value)
        assert at.data("c") == list(range(value + 1))
    state = at.folded()
    assert crashed(state, dict(at.journal.heads)) == []
    assert shown(state) == shown(at.engine.state)


def test_copies_whose_originals_were_lost_leave_their_seqs_taken() -> None:
    """Readers have seen them. Routers go on behind what was lost."""
    at = LoggedEngine()
    at.make("a", Durability.DISK)
    at.make("b", Durability.DISK)
    at.route("a", "b")
    at.put("a", 1)
    at.put("a", 2, 3)
    at.engine.forward_pending()
    at.journal.batches.pop()  # a power cut took the last write
    state = at.folded()
    operations = crashed(state, dict(at.journal.heads))
    (router,) = state.routers
    assert [type(each) for each in operations] == [Restarted, Restarted]
    for name in "ab":
        topic = state.topics.by_name[name]
        assert (log_reading.live_from(topic.log, 1, 9), topic.log.head_seq, read(topic, 1).gap) == (
            [1],
            3,
            Gap(2, 3, GapReason.CRASH),
        )
    assert (router.cursor, router.decided, router.logged) == (3, 3, 3), "the loss is not told twice"


def test_a_jump_over_lost_records_that_is_not_in_the_log_was_seen_by_nobody() -> None:
    at = LoggedEngine()
    at.make("a", cap_records=1)
    at.make("b")
    at.route("a", "b")
    at.put("a", 1, 2)
    assert at.data("b") == []
    at.journal.batches.pop()  # what the router said of it
    state = at.folded()
    derive_copies(state, None)
    (router,) = state.routers
    assert (router.dest.log.head_seq, router.cursor) == (0, 0)


def test_a_full_start_shows_readers_what_they_saw_before() -> None:
    at = fanned_out()
    at.put("b", 9)
    at.engine.delete_records("a", 3, None)
    at.put("a", 10)
    at.engine.forward_pending()
    state = at.folded()
    assert crashed(state, dict(at.journal.heads)) == []
    assert shown(state) == shown(at.engine.state)


def test_an_engine_that_starts_tells_who_forwards_of_every_source() -> None:
    engine = Engine(FakeClock())
    for operation in fanned_out().log():
        apply(engine.state, operation)
    end_of_log(engine.state)
    told: list[str] = []
    engine.state.on_forwardable = lambda topic: told.append(topic.name)
    engine.restart([])
    assert told == ["a"]


def test_a_configuration_patch_of_a_folded_topic_goes_on_from_what_it_had() -> None:
    at = LoggedEngine()
    at.make("t", cap_records=3)
    engine = Engine(at.clock)
    for operation in at.log():
        apply(engine.state, operation)
    put = engine.put_topic("t", TopicConfigPatch(ttl_ms=5))
    assert (put.created, put.topic.config.cap_records, put.topic.config.ttl_ms) == (False, 3, 5)
