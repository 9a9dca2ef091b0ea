"""What is kept of topics in snapshots and logs: the shapes older files have must go on being read."""

import msgspec
import pytest
from msgspec import Struct

from topics.model.config import DEFAULT_CONFIG, Durability, TopicConfig
from topics.model.gap import GapReason, LostRange
from topics.model.image import KeyImage, RouterImage, SegmentImage, TopicImage
from topics.model.operation import (
    ConfigUpdated,
    ForwardedLate,
    HeadReserved,
    RecordsDeleted,
    RecordsExpired,
    RingChanged,
    RouterChanged,
    RouterDeleted,
    RouterLag,
    RouterPut,
    SourceSkipped,
    TopicCreated,
    TopicDeleted,
)
from topics.model.router import Guarantee, RouterSettings
from topics.model.tag_match import TagMatch

SEGMENT = SegmentImage(1, 10, 500, 9, 450, 1000, 1009, sealed=True, cold=True)
KEY = KeyImage("k", 3, 2, 1003)
SETTINGS = RouterSettings(filter=TagMatch("x", is_prefix=True), guarantee=Guarantee.EXACTLY_ONCE)
ROUTER = RouterImage(9, "a->b", 3, SETTINGS, 1000, 17, 12)
IMAGE = TopicImage(
    topic_id=7,
    name="orders",
    config=TopicConfig(durability=Durability.FSYNC, durable=True, dead_letter="dead"),
    config_version=3,
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
    assert list(plain["segments"][0]) == [1, 10, 500, 9, 450, 1000, 1009, True, True, False]
    assert list(plain["keys"][0]) == ["k", 3, 2, 1003]


def test_a_segment_without_its_later_fields_is_hot_and_not_cleared() -> None:
    found = msgspec.convert([1, 10, 500, 9, 450, 1000, 1009, True], SegmentImage)
    assert (found.sealed, found.cold, found.cleared) == (True, False, False)


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (RecordsDeleted(5), b'{"before_seq":5}'),
        (RecordsDeleted(5, TagMatch("x", is_prefix=True)), b'{"before_seq":5,"match":["x",true]}'),
        (RecordsDeleted(seqs=[3, 7], node="w"), b'{"seqs":[3,7],"node":"w"}'),
        (HeadReserved(64), b'{"ceiling":64}'),
        (RecordsExpired(3), b'{"ttl_lost_seq":3}'),
        (TopicDeleted(), b"{}"),
        (TopicDeleted({4: 7}), b'{"forwarded":{"4":7}}'),
        (RouterDeleted(9), b'{"router_id":9}'),
        (RouterChanged(lag=RouterLag(9, 5)), b'{"lag":{"router_id":9,"cursor":5}}'),
        (RouterChanged(late=ForwardedLate(5, 1000)), b'{"late":{"until_seq":5,"ts":1000}}'),
        (
            RouterChanged(skipped=SourceSkipped(4, 9, GapReason.SOURCE_TRIM)),
            b'{"skipped":{"seq":4,"cursor":9,"reason":"source_trim"}}',
        ),
        (
            RouterChanged(put=RouterPut(9, "r", 1, 2, SETTINGS, 1000, 5)),
            b'{"put":{"router_id":9,"name":"r","source_id":1,"dest_id":2,"settings":{"preserve_node":true,'
            b'"preserve_tag":true,"filter":["x",true],"allow_cycle":false,"guarantee":"exactly_once"},'
            b'"created_ts":1000,"cursor":5}}',
        ),
        (
            RouterChanged(put=RouterPut(9, "r", 1, 2, SETTINGS, 1000, 5, ring=0)),
            b'{"put":{"router_id":9,"name":"r","source_id":1,"dest_id":2,"settings":{"preserve_node":true,'
            b'"preserve_tag":true,"filter":["x",true],"allow_cycle":false,"guarantee":"exactly_once"},'
            b'"created_ts":1000,"cursor":5,"ring":0}}',
        ),
        (
            RouterChanged(ring=RingChanged(3, {9: 5}, 7)),
            b'{"ring":{"size":3,"cursors":{"9":5},"source_seq":7}}',
        ),
    ],
)
def test_an_operation_is_kept_as_documented(operation: Struct, text: bytes) -> None:
    assert msgspec.json.encode(operation) == text
    assert msgspec.json.decode(text, type=type(operation)) == operation


@pytest.mark.parametrize("operation", [TopicCreated("orders", DEFAULT_CONFIG, 64), ConfigUpdated(IMAGE.config)])
def test_a_configuration_in_the_log_comes_back_as_it_was(operation: Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(operation), type=type(operation)) == operation


def test_a_creation_without_a_ceiling_reserved_nothing() -> None:
    config = msgspec.json.encode(DEFAULT_CONFIG)
    created = msgspec.json.decode(b'{"name":"t","config":%b}' % config, type=TopicCreated)
    assert created == TopicCreated("t", DEFAULT_CONFIG, 0)
