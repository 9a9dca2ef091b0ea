"""What is kept of topics in snapshots and logs: the shapes older files have must go on being read."""

from typing import get_args

import msgspec
import pytest

from topics.model.config import DEFAULT_CONFIG, Durability, TopicConfig
from topics.model.gap import GapReason, LostRange
from topics.model.image import LeaseImage, NamedCursor, QueueImage, RouterImage, SegmentImage, TopicImage
from topics.model.operation import (
    CapReached,
    Claimed,
    ClockReached,
    ConfigChanged,
    Control,
    CursorSet,
    Extended,
    Forwarded,
    Grant,
    JobsDelayed,
    JobsDeleted,
    Moved,
    RecordsDeleted,
    Released,
    Restarted,
    RouterDeleted,
    RouterPut,
    SeqsReserved,
    TopicCreated,
    TopicDeleted,
)
from topics.model.producer import RememberedWrite
from topics.model.router import Guarantee, RouterSettings
from topics.model.tag_match import TagMatch

SEGMENT = SegmentImage(1, 10, 500, 9, 450, 1000, 1009, sealed=True, cold=True, deleted=[4])
KEY = ("k", RememberedWrite(3, 2, 1003))
SETTINGS = RouterSettings(filter=TagMatch("x", is_prefix=True), guarantee=Guarantee.EXACTLY_ONCE)
ROUTER = RouterImage(9, "a->b", 3, SETTINGS, 1000, 17, 12)
IMAGE = TopicImage(
    topic_id=7,
    name="orders",
    config=TopicConfig(durability=Durability.FSYNC, durable=True, dead_letter="dead"),
    exchange=True,
    head_seq=12,
    earliest_seq=2,
    last_ts=1009,
    cap_lost_seq=1,
    ttl_lost_seq=0,
    crash_lost_seq=0,
    lost_ranges=[LostRange(11, 12, GapReason.CRASH)],
    ceiling=64,
    last_write_ts=None,
    keys=[KEY],
    cursors={"reader": NamedCursor(4, 1005)},
    losses=[],
    queue=QueueImage(
        claim_cursor=5,
        dead_lettered=1,
        last_lease_id=8,
        leases=[LeaseImage(4, "w", 8, 1000, 2000)],
        deliveries={4: 2},
        delayed={10: 1500},
        reclaimable=[3],
    ),
    segments=[SEGMENT],
    source_trim_lost_seq=1,
    routers=[ROUTER],
    hops={12: 1},
)


def test_an_image_comes_back_as_it_was() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(IMAGE), type=TopicImage) == IMAGE


def test_segments_and_keys_are_kept_without_field_names() -> None:
    """There may be many of them, and every snapshot has them all."""
    plain = msgspec.to_builtins(IMAGE)
    assert list(plain["segments"][0]) == [1, 10, 500, 9, 450, 1000, 1009, True, True, False, [4]]
    assert list(plain["keys"][0]) == ["k", (3, 2, 1003)]


def test_a_segment_without_its_later_fields_is_hot_and_not_cleared() -> None:
    found = msgspec.convert([1, 10, 500, 9, 450, 1000, 1009, True], SegmentImage)
    assert (found.sealed, found.cold, found.cleared, found.deleted) == (True, False, False, [])


DOCUMENTED: list[tuple[Control, bytes]] = [
    (TopicDeleted(topic_id=7, ts=9), b'{"is":"topic-deleted","topic_id":7,"ts":9}'),
    (Moved(topic_id=7, ts=9), b'{"is":"moved","topic_id":7,"ts":9}'),
    (CursorSet(topic_id=7, ts=9, name="r", seq=5), b'{"is":"cursor-set","name":"r","seq":5,"topic_id":7,"ts":9}'),
    (CursorSet(topic_id=7, ts=9, name="r"), b'{"is":"cursor-set","name":"r","topic_id":7,"ts":9}'),
    (SeqsReserved(topic_id=7, ts=9, ceiling=64), b'{"is":"seqs-reserved","ceiling":64,"topic_id":7,"ts":9}'),
    (RecordsDeleted(topic_id=7, ts=9, before_seq=5), b'{"is":"records-deleted","before_seq":5,"topic_id":7,"ts":9}'),
    (
        RecordsDeleted(topic_id=7, ts=9, before_seq=5, match=TagMatch("x", is_prefix=True)),
        b'{"is":"records-deleted","before_seq":5,"match":["x",true],"topic_id":7,"ts":9}',
    ),
    (ClockReached(ts=9, topic_ids=[7, 8]), b'{"is":"clock-reached","topic_ids":[7,8],"ts":9}'),
    (CapReached(topic_id=7, ts=9, through_seq=3), b'{"is":"cap-reached","through_seq":3,"topic_id":7,"ts":9}'),
    (Restarted(ts=9), b'{"is":"restarted","ts":9}'),
    (
        Restarted(topic_id=7, ts=9, head_seq=4, cursors={9: 5}),
        b'{"is":"restarted","head_seq":4,"cursors":{"9":5},"topic_id":7,"ts":9}',
    ),
    (
        Claimed(topic_id=7, ts=9, grants=[Grant("w", 8, 2000, [4, 5])], cursor=6),
        b'{"is":"claimed","grants":[["w",8,2000,[4,5]]],"cursor":6,"topic_id":7,"ts":9}',
    ),
    (Released(topic_id=7, ts=9, seqs=[4]), b'{"is":"released","seqs":[4],"topic_id":7,"ts":9}'),
    (
        Extended(topic_id=7, ts=9, seqs=[4], deadline_ms=2000),
        b'{"is":"extended","seqs":[4],"deadline_ms":2000,"topic_id":7,"ts":9}',
    ),
    (
        JobsDelayed(topic_id=7, ts=9, seqs=[4], ready_ms=1500),
        b'{"is":"jobs-delayed","seqs":[4],"ready_ms":1500,"topic_id":7,"ts":9}',
    ),
    (
        JobsDeleted(topic_id=7, ts=9, seqs=[3, 7], node="w"),
        b'{"is":"jobs-deleted","seqs":[3,7],"node":"w","topic_id":7,"ts":9}',
    ),
    (
        JobsDeleted(topic_id=7, ts=9, seqs=[3], dead_letters=True),
        b'{"is":"jobs-deleted","seqs":[3],"dead_letters":true,"topic_id":7,"ts":9}',
    ),
    (
        RouterPut(topic_id=2, ts=9, router_id=9, name="r", source_id=1, settings=SETTINGS, cursor=5),
        b'{"is":"router-put","router_id":9,"name":"r","source_id":1,"settings":{"preserve_node":true,'
        b'"preserve_tag":true,"filter":["x",true],"allow_cycle":false,"guarantee":"exactly_once"},'
        b'"cursor":5,"topic_id":2,"ts":9}',
    ),
    (RouterDeleted(topic_id=2, ts=9, router_id=9), b'{"is":"router-deleted","router_id":9,"topic_id":2,"ts":9}'),
    (
        Forwarded(topic_id=1, ts=9, routers=[9], through_seq=5),
        b'{"is":"forwarded","routers":[9],"through_seq":5,"topic_id":1,"ts":9}',
    ),
    (
        Forwarded(topic_id=1, ts=9, routers=[9], through_seq=5, oldest_ts=8, lost=GapReason.SOURCE_TRIM, dest_seq=4),
        b'{"is":"forwarded","routers":[9],"through_seq":5,"oldest_ts":8,"lost":"source_trim","dest_seq":4,'
        b'"topic_id":1,"ts":9}',
    ),
]


@pytest.mark.parametrize(("operation", "text"), DOCUMENTED)
def test_an_operation_is_kept_as_documented(operation: Control, text: bytes) -> None:
    assert msgspec.json.encode(operation) == text
    assert msgspec.json.decode(text, type=Control) == operation


@pytest.mark.parametrize(
    "operation",
    [
        TopicCreated(topic_id=7, ts=9, name="orders", config=DEFAULT_CONFIG, ceiling=64, exchange=True),
        ConfigChanged(topic_id=7, ts=9, config=IMAGE.config),
    ],
)
def test_a_configuration_in_the_log_comes_back_as_it_was(operation: Control) -> None:
    assert msgspec.json.decode(msgspec.json.encode(operation), type=Control) == operation


def test_a_creation_without_a_ceiling_reserved_nothing() -> None:
    config = msgspec.json.encode(DEFAULT_CONFIG)
    text = b'{"is":"topic-created","topic_id":7,"ts":9,"name":"t","config":%b}' % config
    created = msgspec.json.decode(text, type=TopicCreated)
    assert created == TopicCreated(topic_id=7, ts=9, name="t", config=DEFAULT_CONFIG, ceiling=0, exchange=False)


def test_every_operation_of_the_log_is_one_of_the_documented_shapes() -> None:
    """A new one has to be added above, so that its shape is a decision."""
    documented = {type(operation) for operation, _ in DOCUMENTED} | {TopicCreated, ConfigChanged}
    assert documented == set(get_args(Control))
