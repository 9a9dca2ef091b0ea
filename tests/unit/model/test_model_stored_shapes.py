"""What is kept of topics in snapshots and logs: the shapes older files have must go on being read."""

import msgspec
import pytest
from msgspec import Struct

from topics.model.config import DEFAULT_CONFIG, Durability, TopicConfig
from topics.model.image import KeyImage, SegmentImage, TopicImage
from topics.model.operation import ConfigUpdated, HeadReserved, RecordsDeleted, RecordsExpired, TopicCreated
from topics.model.tag_match import TagMatch

SEGMENT = SegmentImage(1, 10, 500, 9, 450, 1000, 1009, sealed=True, cold=True)
KEY = KeyImage("k", 3, 2, 1003)
IMAGE = TopicImage(
    topic_id=7,
    name="orders",
    config=TopicConfig(durability=Durability.FSYNC, durable=True, dead_letter="dead"),
    head_seq=12,
    earliest_seq=2,
    last_ts=1009,
    cap_lost_seq=1,
    ttl_lost_seq=0,
    crash_lost_seq=0,
    lost_ranges=[(11, 12)],
    ceiling=64,
    last_write_ts=None,
    keys=[KEY],
    segments=[SEGMENT],
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
        (RecordsDeleted(5), b'{"before_seq":5,"match":null}'),
        (RecordsDeleted(5, TagMatch("x", is_prefix=True)), b'{"before_seq":5,"match":["x",true]}'),
        (HeadReserved(64), b'{"ceiling":64}'),
        (RecordsExpired(3), b'{"ttl_lost_seq":3}'),
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
