"""What a snapshot holds, and that another format is told from damage."""

import msgspec
import pytest

from topics.model.config import DEFAULT_CONFIG
from topics.model.gap import GapReason, LostRange
from topics.model.image import SegmentImage, TopicImage
from topics.storage.errors import UnknownVersion
from topics.storage.state import STATE_FORMAT, decode_state, encode_state, encode_topic


def image(topic_id: int) -> TopicImage:
    return TopicImage(
        topic_id=topic_id,
        name=f"t{topic_id}",
        config=DEFAULT_CONFIG,
        exchange=False,
        head_seq=3,
        earliest_seq=1,
        last_ts=1000,
        cap_lost_seq=0,
        ttl_lost_seq=0,
        crash_lost_seq=0,
        source_trim_lost_seq=0,
        lost_ranges=[LostRange(2, 3, GapReason.CRASH)],
        ceiling=64,
        last_write_ts=1000,
        keys=[],
        cursors={},
        losses=[],
        queue=None,
        routers=[],
        hops={},
        segments=[SegmentImage(1, 1, 47, 0, 0, 1000, 1000, sealed=True, cold=True, deleted=[0])],
    )


@pytest.mark.parametrize("clean", [True, False])
def test_a_state_comes_back_as_it_was(clean: bool) -> None:
    images = [image(1), image(5)]
    body = encode_state(6, {"": 17, "shard-01": 2}, [encode_topic(each) for each in images], start=4, clean=clean)
    state, found = decode_state(body, "/snapshot")
    assert (state.next_id, state.clean, state.shards, state.start, state.format) == (
        6,
        clean,
        {"": 17, "shard-01": 2},
        4,
        STATE_FORMAT,
    )
    assert found == images


def test_a_topic_that_has_not_changed_is_kept_without_being_decoded() -> None:
    topic = encode_topic(image(1))
    assert topic in encode_state(2, {}, [topic], start=1, clean=True)


def test_another_format_is_named_and_not_called_damage() -> None:
    body = msgspec.msgpack.encode({"format": STATE_FORMAT + 1, "something": "else"})
    with pytest.raises(UnknownVersion) as caught:
        decode_state(body, "/snapshot")
    assert caught.value.message == (
        f"/snapshot has a format this version of topics does not know (state format {STATE_FORMAT + 1}): "
        "start the version that wrote it"
    )


def test_an_earlier_format_is_refused_with_the_way_to_take_the_topics_along() -> None:
    body = msgspec.msgpack.encode({"format": STATE_FORMAT - 1, "next_topic_id": 7})
    with pytest.raises(UnknownVersion) as caught:
        decode_state(body, "/snapshot")
    assert caught.value.message == (
        "/snapshot was written by an earlier version of topics, and this one does not read its format "
        f"(state format {STATE_FORMAT - 1}): start that version on the directory and export your topics, "
        "then start this one on an empty directory"
    )
