"""What comes over the stream of a watch session."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from conformance.client import TIMEOUT_S, Topic
from conformance.sse import Frame, create, streaming, watching
from conformance.watch_frames import NewTopic, summary, until_caught_up

# Frames


def test_a_stream_begins_with_its_retry_and_says_it_once(topic: Topic) -> None:
    topic.fill(1)
    with watching(topic.api, {topic.name: {}}) as stream:
        assert stream.opening == Frame("message", "", None, "2000", ())
        assert [frame.retry for frame in stream.take(2)] == [None, None]


def test_a_record_frame_has_the_records_as_stored_and_three_seqs(topic: Topic) -> None:
    topic.write({"data": {"a": 1}, "node": "n", "tag": "t", "meta": {"m": "1"}}, {"data": None})
    stamps = [record["$ts"] for record in topic.diff()["records"]]
    with watching(topic.api, {topic.name: {}}) as stream:
        frame = stream.record()
    assert frame.data == (
        f'{{"topic":"{topic.name}","records":['
        f'{{"$seq":1,"$ts":{stamps[0]},"$node":"n","data":{{"a":1}},"meta":{{"m":"1"}}}},'
        f'{{"$seq":2,"$ts":{stamps[1]},"data":null}}],"from_seq":0,"to_seq":2,"head_seq":2}}'
    )
    assert frame.cursors == {topic.name: 2}


def test_frames_of_a_backlog_tell_how_far_they_are(topic: Topic) -> None:
    topic.fill(5)
    with watching(topic.api, {topic.name: {}}, limit=2) as stream:
        frames = stream.take(3)
    assert [frame.seqs for frame in frames] == [[1, 2], [3, 4], [5]]
    assert [(frame.json["from_seq"], frame.json["to_seq"], frame.json["head_seq"]) for frame in frames] == [
        (0, 2, 5),
        (2, 4, 5),
        (4, 5, 5),
    ]


def test_a_written_record_is_pushed(topic: Topic) -> None:
    topic.configure()
    with watching(topic.api, {topic.name: {}}) as stream:
        stream.until("caught-up")
        for number in range(1, 4):
            topic.fill(1)
            frame = stream.record()
            assert (frame.seqs, frame.json["from_seq"], frame.json["head_seq"]) == ([number], number - 1, number)


def test_every_watcher_gets_every_record(topic: Topic) -> None:
    topic.configure()
    with watching(topic.api, {topic.name: {}}) as one, watching(topic.api, {topic.name: {}}) as two:
        one.until("caught-up")
        two.until("caught-up")
        topic.fill(1)
        assert one.record() == two.record()


def test_many_topics_share_a_stream(new_topic: NewTopic) -> None:
    topics = [new_topic() for _ in range(3)]
    for count, topic in enumerate(topics, 1):
        topic.fill(count)
    with watching(topics[0].api, {topic.name: {} for topic in topics}) as stream:
        frames = stream.take(6)
        heads = {topic.name: head for head, topic in enumerate(topics, 1)}
        assert {frame.json["topic"]: frame.seqs for frame in frames if frame.event == "record"} == {
            name: list(range(1, head + 1)) for name, head in heads.items()
        }
        assert frames[-1].cursors == heads
        topics[1].fill(1)
        assert stream.record().cursors == {**heads, topics[1].name: 3}


def test_a_session_that_tails_gets_what_was_written_since_it_was_made(topic: Topic) -> None:
    topic.fill(3)
    path = create(topic.api, {topic.name: {"tail": True}})["stream_url"]
    topic.fill(2)
    with streaming(topic.api, path) as stream:
        assert until_caught_up(stream) == [("record", [4, 5]), ("caught-up", 5)]


def test_from_seq_is_exclusive(topic: Topic) -> None:
    topic.fill(5)
    with watching(topic.api, {topic.name: {"from_seq": 3}}) as stream:
        frame = stream.record()
    assert (frame.seqs, frame.json["from_seq"]) == ([4, 5], 3)


def test_a_queue_is_watched_like_a_log(topic: Topic) -> None:
    topic.configure(type="queue")
    topic.fill(2)
    with watching(topic.api, {topic.name: {}}) as stream:
        assert until_caught_up(stream) == [("record", [1, 2]), ("caught-up", 2)]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
@pytest.mark.parametrize("consistency", ["eventual", "strong"])
def test_every_class_is_watched_with_either_consistency(topic: Topic, durability: str, consistency: str) -> None:
    topic.configure(durability=durability)
    topic.fill(2)
    with watching(topic.api, {topic.name: {}}, consistency=consistency) as stream:
        assert until_caught_up(stream) == [("record", [1, 2]), ("caught-up", 2)]
        topic.fill(1)
        assert stream.record().seqs == [3]


def test_a_strong_watcher_gets_one_tombstone_for_one_gap(topic: Topic) -> None:
    topic.configure(cap_records=3)
    topic.fill(10)
    with watching(topic.api, {topic.name: {}}, consistency="strong") as stream:
        assert until_caught_up(stream) == [
            ("tombstone", ("from_seq_too_old", 1, 7)),
            ("record", [8, 9, 10]),
            ("caught-up", 10),
        ]


# What a record shows


@pytest.fixture
def told(topic: Topic) -> Callable[..., list[dict[str, Any]]]:
    """The records of a first frame, without their `$ts`."""
    topic.write({"data": [1], "tag": "t", "node": "n", "meta": {"m": "v"}}, {"data": 2})

    def records(**options: Any) -> list[dict[str, Any]]:
        with watching(topic.api, {topic.name: {}}, **options) as stream:
            found = stream.record().json["records"]
        assert all(isinstance(record.pop("$ts"), int) for record in found)
        assert isinstance(found, list)
        return found

    return records


def test_by_default_there_is_no_tag(told: Callable[..., list[dict[str, Any]]]) -> None:
    assert told() == [{"$seq": 1, "$node": "n", "data": [1], "meta": {"m": "v"}}, {"$seq": 2, "data": 2}]


def test_tags_come_when_asked_for(told: Callable[..., list[dict[str, Any]]]) -> None:
    assert told(include_tags=True) == [
        {"$seq": 1, "$node": "n", "$tag": "t", "data": [1], "meta": {"m": "v"}},
        {"$seq": 2, "data": 2},
    ]


def test_meta_can_be_left_out(told: Callable[..., list[dict[str, Any]]]) -> None:
    assert told(include_meta=False) == [{"$seq": 1, "$node": "n", "data": [1]}, {"$seq": 2, "data": 2}]


def test_without_data_only_the_servers_own_fields_come(told: Callable[..., list[dict[str, Any]]]) -> None:
    assert told(include_data=False) == [{"$seq": 1, "$node": "n"}, {"$seq": 2}]
    assert told(include_data=False, include_tags=True) == [{"$seq": 1, "$node": "n", "$tag": "t"}, {"$seq": 2}]


@pytest.mark.parametrize("line_break", [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\n\r", b"\r\n\r\n"])
def test_line_breaks_between_the_tokens_of_a_payload_do_not_break_the_stream(topic: Topic, line_break: bytes) -> None:
    body = b'{"records":[{"data":{~"event":~"tombstone",~"id":[~1~,~2]~}~,"meta":~{~"a":"b"~}~},{"data":~3}]}'
    assert topic.api.post_bytes(topic.path, body.replace(b"~", line_break)).status == 201
    with watching(topic.api, {topic.name: {}}) as stream:
        frames = stream.take(2)
    assert summary(frames) == [("record", [1, 2]), ("caught-up", 2)]
    first, second = frames[0].json["records"]
    assert (first["data"], first["meta"]) == ({"event": "tombstone", "id": [1, 2]}, {"a": "b"})
    assert second["data"] == 3
    assert frames[0].cursors == {topic.name: 2}


def test_a_payload_is_handed_on_as_it_was_written(topic: Topic) -> None:
    payload = '{"\\u00e9": "é\\n\\r\u2028\u0085", "n":1.0,  "n":1e400,"d":"data: x"}'
    assert topic.api.post_bytes(topic.path, f'{{"records":[{{"data":{payload}}}]}}'.encode()).status == 201
    with watching(topic.api, {topic.name: {}}) as stream:
        assert f'"data":{payload}}}' in stream.record().data


# Batches


def test_a_frame_has_256_records_by_default(topic: Topic) -> None:
    topic.fill(300)
    for options in ({}, {"limit": 0}):
        with watching(topic.api, {topic.name: {}}, **options) as stream:
            assert [len(frame.seqs) for frame in stream.take(2)] == [256, 44]


def test_a_frame_never_has_more_than_1000_records(topic: Topic) -> None:
    topic.fill(1001)
    with watching(topic.api, {topic.name: {}}, limit=5000) as stream:
        assert [len(frame.seqs) for frame in stream.take(2)] == [1000, 1]


@pytest.mark.parametrize(("bytes_max", "sizes"), [(2500, [2, 2, 1]), (1, [1] * 5), (1_000_000, [5])])
def test_a_frame_stays_within_its_bytes(topic: Topic, bytes_max: int, sizes: list[int]) -> None:
    topic.write(*({"data": "x" * 1000} for _ in range(5)))
    with watching(topic.api, {topic.name: {}}, max_batch_bytes=bytes_max) as stream:
        assert [len(frame.seqs) for frame in stream.take(len(sizes))] == sizes


def test_a_record_larger_than_the_bytes_of_a_frame_comes_alone(topic: Topic) -> None:
    topic.write({"data": 1}, {"data": "x" * 5000}, {"data": 3})
    with watching(topic.api, {topic.name: {}}, max_batch_bytes=1000) as stream:
        assert [frame.seqs for frame in stream.take(3)] == [[1], [2], [3]]


@pytest.mark.parametrize(("options", "sizes"), [({}, [1] * 4), ({"max_batch_bytes": 0}, [3, 1])])
def test_the_bytes_of_a_frame_have_a_default(topic: Topic, options: dict[str, int], sizes: list[int]) -> None:
    """256 KiB when nothing is said, 1 MiB for 0."""
    topic.write(*({"data": "x" * 300_000} for _ in range(4)))
    with watching(topic.api, {topic.name: {}}, **options) as stream:
        assert [len(frame.seqs) for frame in stream.take(len(sizes))] == sizes


def test_a_frame_never_exceeds_8_mib(topic: Topic) -> None:
    topic.write(*({"data": "x" * 1_000_000} for _ in range(9)))
    with watching(topic.api, {topic.name: {}}, max_batch_bytes=2**40) as stream:
        assert [frame.seqs for frame in stream.take(2)] == [list(range(1, 9)), [9]]


# Whose records


@pytest.mark.parametrize(("node", "seqs"), [("a", [2, 3]), (["a", "b"], [3]), ("A", [1, 2, 3]), ([], [1, 2, 3])])
def test_a_watcher_does_not_get_its_own_records(topic: Topic, node: Any, seqs: list[int]) -> None:
    topic.write({"data": 1, "node": "a"}, {"data": 2, "node": "b"}, {"data": 3})
    with watching(topic.api, {topic.name: {}}, node=node) as stream:
        frame = stream.record()
    assert (frame.seqs, frame.json["to_seq"]) == (seqs, 3)


def test_a_watchers_own_records_are_passed_over_silently(topic: Topic) -> None:
    topic.configure()
    with watching(topic.api, {topic.name: {}}, node="me") as stream:
        assert until_caught_up(stream) == [("caught-up", 0)]
        topic.write({"data": 1}, node="me")
        topic.write({"data": 2}, node="you")
        assert stream.record().seqs == [2]


def test_a_topic_may_have_its_watchers_get_their_own_records(topic: Topic) -> None:
    topic.configure(dedupe_node=False)
    with watching(topic.api, {topic.name: {}}, node="me") as stream:
        stream.until("caught-up")
        topic.write({"data": 1}, node="me")
        assert stream.record().seqs == [1]


# Caught up


def test_an_empty_topic_is_caught_up_at_once(topic: Topic) -> None:
    topic.configure()
    with watching(topic.api, {topic.name: {}}) as stream:
        frame = stream.next()
    assert (frame.event, frame.json) == ("caught-up", {"topic": topic.name, "head_seq": 0})
    assert frame.cursors == {topic.name: 0}


def test_caught_up_comes_once_for_each_backlog(topic: Topic) -> None:
    topic.fill(2)
    with watching(topic.api, {topic.name: {}}, limit=1) as stream:
        assert until_caught_up(stream) == [("record", [1]), ("record", [2]), ("caught-up", 2)]
        topic.fill(1)
        assert stream.record().seqs == [3]  # live: it was never behind
        topic.fill(2)
        assert until_caught_up(stream) == [("record", [4]), ("record", [5]), ("caught-up", 5)]


def test_caught_up_comes_again_on_a_new_connection(topic: Topic) -> None:
    topic.fill(1)
    path = create(topic.api, {topic.name: {}})["stream_url"]
    with streaming(topic.api, path) as stream:
        assert until_caught_up(stream) == [("record", [1]), ("caught-up", 1)]
    with streaming(topic.api, path) as stream:
        assert until_caught_up(stream) == [("caught-up", 1)]


# Heartbeats


def test_an_idle_stream_has_a_heartbeat_that_is_no_event(topic: Topic) -> None:
    topic.configure()
    with watching(topic.api, {topic.name: {}}, heartbeat_ms=1) as stream:  # clamped to a second
        stream.until("caught-up")
        began = time.monotonic()
        frame = stream.next()
        idle_s = time.monotonic() - began
        topic.fill(1)
        assert stream.record().seqs == [1]
    assert 0.9 <= idle_s < TIMEOUT_S
    (comment,) = frame.comments
    kind, _, stamp = comment.partition(" ")
    assert (kind, frame.id, frame.data, frame.retry) == ("hb", None, "", None)
    assert abs(int(stamp) - time.time() * 1000) < 60_000
