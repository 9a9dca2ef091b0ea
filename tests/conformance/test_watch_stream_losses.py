"""What the stream of a watch session tells of losses, and of topics that end."""

import pytest

from conformance.client import Topic, eventually
from conformance.sse import create, streaming, watching
from conformance.watch_frames import NewTopic, summary, until_caught_up

# Losses


@pytest.fixture
def capped(topic: Topic) -> Topic:
    """Ten records written, the last three kept."""
    topic.configure(cap_records=3)
    topic.fill(10)
    return topic


def test_a_cursor_that_is_too_old_is_told_at_connect(capped: Topic) -> None:
    with watching(capped.api, {capped.name: {"from_seq": 4}}) as stream:
        frame = stream.next()
        assert (frame.event, frame.json) == (
            "tombstone",
            {
                "topic": capped.name,
                "reason": "from_seq_too_old",
                "gap_from": 5,
                "gap_to": 7,
                "earliest_seq": 8,
                "head_seq": 10,
            },
        )
        assert frame.cursors == {capped.name: 7}
        record = stream.record()
    assert (record.seqs, record.json["from_seq"]) == ([8, 9, 10], 7)


def test_a_cursor_that_lost_nothing_is_told_nothing(capped: Topic) -> None:
    with watching(capped.api, {capped.name: {"from_seq": 7}}) as stream:
        assert until_caught_up(stream) == [("record", [8, 9, 10]), ("caught-up", 10)]


def test_a_deleted_prefix_is_silent(topic: Topic) -> None:
    topic.fill(5)
    topic.delete_records(before_seq=4)
    with watching(topic.api, {topic.name: {}}) as stream:
        assert until_caught_up(stream) == [("record", [4, 5]), ("caught-up", 5)]


def test_a_topic_whose_records_are_all_deleted_is_caught_up(topic: Topic) -> None:
    topic.fill(5)
    topic.delete_records(before_seq=6)
    with watching(topic.api, {topic.name: {}}) as stream:
        frame = stream.next()
    assert (frame.event, frame.cursors) == ("caught-up", {topic.name: 5})


def test_records_deleted_in_the_middle_are_passed_over(topic: Topic) -> None:
    topic.write({"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3})
    topic.delete_records(match="gone")
    with watching(topic.api, {topic.name: {}}) as stream:
        frame = stream.record()
    assert (frame.seqs, frame.json["from_seq"], frame.json["to_seq"]) == ([1, 3], 0, 3)


def test_what_a_cap_takes_before_it_is_pushed_is_a_tombstone(topic: Topic) -> None:
    topic.configure(cap_records=3)
    with watching(topic.api, {topic.name: {}}) as stream:
        stream.until("caught-up")
        topic.fill(10)
        tombstone = stream.next()
        assert summary([tombstone]) == [("tombstone", ("cap", 1, 7))]
        assert tombstone.cursors == {topic.name: 7}
        assert stream.record().seqs == [8, 9, 10]


def test_what_expires_before_it_is_read_is_a_tombstone(topic: Topic) -> None:
    topic.configure(ttl_ms=300, durability="ephemeral")
    with watching(topic.api, {topic.name: {}}, receive_buffer_bytes=4096, limit=1) as stream:
        stream.until("caught-up")
        topic.write(*({"data": "x" * 1_000_000} for _ in range(20)))
        eventually(lambda: topic.state()["count"] == 0)
        frames = stream.until("caught-up")
    kinds = [frame.event for frame in frames]
    delivered = kinds.count("record")
    assert kinds == ["record"] * delivered + ["tombstone", "caught-up"]
    assert [seq for frame in frames[:delivered] for seq in frame.seqs] == list(range(1, delivered + 1))
    assert summary(frames[delivered:]) == [("tombstone", ("ttl", delivered + 1, 20)), ("caught-up", 20)]


def test_what_a_cap_takes_while_the_client_does_not_read_is_a_tombstone(topic: Topic) -> None:
    topic.configure(cap_records=1, durability="ephemeral")
    with watching(topic.api, {topic.name: {}}, receive_buffer_bytes=4096) as stream:
        stream.until("caught-up")
        for _ in range(20):
            topic.write({"data": "x" * 1_000_000})
        seen = 0
        reasons = set()
        while seen < 20:
            frame = stream.next()
            if frame.event == "record":
                assert frame.seqs == [seen + 1]
                seen += 1
            elif frame.event == "tombstone":
                assert frame.json["gap_from"] == seen + 1
                seen = frame.json["gap_to"]
                reasons.add(frame.json["reason"])
    assert reasons == {"cap"}


# Topics that end


def test_the_end_of_a_topic_ends_nothing_else(topic: Topic, new_topic: NewTopic) -> None:
    other = new_topic()
    other.fill(1)
    topic.fill(2)
    with watching(topic.api, {topic.name: {}, other.name: {}}) as stream:
        stream.take(4)
        topic.remove()
        frame = stream.next()
        assert (frame.event, frame.json) == (
            "topic-deleted",
            {"topic": topic.name, "head_seq": 2, "reason": "deleted"},
        )
        assert frame.cursors[other.name] == 1
        topic.fill(1)  # one of the same name is another topic
        other.fill(1)
        record = stream.record()
        assert (record.json["topic"], record.seqs) == (other.name, [2])


def test_a_topic_recreated_while_connected_is_told_at_the_next_connect(topic: Topic) -> None:
    topic.fill(2)
    path = create(topic.api, {topic.name: {}})["stream_url"]
    with streaming(topic.api, path) as stream:
        stream.until("caught-up")
        topic.remove()
        assert stream.next().event == "topic-deleted"
        topic.fill(4)
    with streaming(topic.api, path) as stream:
        assert until_caught_up(stream) == [
            ("tombstone", ("recreated", 1, 4)),
            ("record", [1, 2, 3, 4]),
            ("caught-up", 4),
        ]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_a_topic_recreated_while_disconnected_is_read_from_its_beginning(topic: Topic, count: int) -> None:
    topic.fill(2)
    path = create(topic.api, {topic.name: {}})["stream_url"]
    with streaming(topic.api, path) as stream:
        last = stream.until("caught-up")[-1]
    topic.remove()
    topic.configure()
    if count:
        topic.fill(count)
    records = [("record", list(range(1, count + 1)))] if count else []
    with streaming(topic.api, path, last.id) as stream:
        assert until_caught_up(stream) == [("tombstone", ("recreated", 1, count)), *records, ("caught-up", count)]
    with streaming(topic.api, path) as stream:
        assert until_caught_up(stream) == [("caught-up", count)]  # told once


def test_a_recreated_topic_begins_at_its_earliest_record(topic: Topic) -> None:
    topic.fill(2)
    path = create(topic.api, {topic.name: {"tail": True}})["stream_url"]
    topic.remove()
    topic.fill(5)
    topic.delete_records(before_seq=4)
    with streaming(topic.api, path) as stream:
        tombstone, record = stream.take(2)
    assert tombstone.cursors is not None
    assert (tombstone.json["earliest_seq"], tombstone.cursors[topic.name]) == (4, 3)
    assert record.seqs == [4, 5]


def test_a_cursor_beyond_the_head_means_the_topic_was_recreated(topic: Topic) -> None:
    topic.fill(2)
    with watching(topic.api, {topic.name: {"from_seq": 100}}) as stream:
        assert until_caught_up(stream) == [
            ("tombstone", ("recreated", 1, 2)),
            ("record", [1, 2]),
            ("caught-up", 2),
        ]


def test_a_topic_deleted_before_the_stream_opens_is_told_so(topic: Topic, new_topic: NewTopic) -> None:
    other = new_topic()
    other.fill(1)
    topic.fill(2)
    path = create(topic.api, {topic.name: {"tail": True}, other.name: {}})["stream_url"]
    topic.remove()
    with streaming(topic.api, path) as stream:
        frames = stream.take(3)
    assert {frame.event: frame.json["topic"] for frame in frames} == {
        "topic-deleted": topic.name,
        "record": other.name,
        "caught-up": other.name,
    }
