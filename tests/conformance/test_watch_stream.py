"""What comes over the stream of a watch session, and how a client goes on where it was."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from conformance.client import TIMEOUT_S, Topic, eventually
from conformance.conftest import StartServer
from conformance.sse import EventStream, Frame, create, cursors_of, id_of, streaming, watching

NewTopic = Callable[..., Topic]


def summary(frames: list[Frame]) -> list[tuple[str, Any]]:
    """Frames in short: records as seqs, tombstones as reason and range, the rest as its head_seq."""
    return [(frame.event, _gist(frame)) for frame in frames]


def _gist(frame: Frame) -> Any:
    match frame.event:
        case "record":
            return frame.seqs
        case "tombstone":
            return frame.json["reason"], frame.json["gap_from"], frame.json["gap_to"]
        case _:
            return frame.json["head_seq"]


def until_caught_up(stream: EventStream) -> list[tuple[str, Any]]:
    return summary(stream.until("caught-up"))


@pytest.fixture
def session(topic: Topic) -> str:
    """The path of a stream over `topic`, which is empty."""
    topic.configure()
    path = create(topic.api, {topic.name: {}}, limit=1)["stream_url"]
    assert isinstance(path, str)
    return path


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


# Going on


def test_a_session_goes_on_where_its_last_stream_was(topic: Topic, session: str) -> None:
    topic.fill(3)
    with streaming(topic.api, session) as stream:
        assert until_caught_up(stream) == [("record", [1]), ("record", [2]), ("record", [3]), ("caught-up", 3)]
    topic.fill(1)
    with streaming(topic.api, session) as stream:
        assert until_caught_up(stream) == [("record", [4]), ("caught-up", 4)]


def test_last_event_id_takes_the_session_back(topic: Topic, session: str) -> None:
    topic.fill(3)
    with streaming(topic.api, session) as stream:
        first = stream.until("caught-up")[0]
    with streaming(topic.api, session, first.id) as stream:
        assert until_caught_up(stream) == [("record", [2]), ("record", [3]), ("caught-up", 3)]


def test_last_event_id_never_takes_the_session_forward(topic: Topic, session: str) -> None:
    topic.fill(3)
    with streaming(topic.api, session, id_of({topic.name: 2})) as stream:
        assert until_caught_up(stream) == [("record", [1]), ("record", [2]), ("record", [3]), ("caught-up", 3)]


def test_every_id_takes_all_topics_back_to_its_moment(new_topic: NewTopic) -> None:
    topics = [new_topic() for _ in range(3)]
    for topic in topics:
        topic.fill(4)
    api = topics[0].api
    path = create(api, {topic.name: {} for topic in topics}, limit=2)["stream_url"]
    with streaming(api, path) as stream:
        frames = stream.take(9)
    for frame in frames:
        behind = {name: list(range(seq + 1, 5)) for name, seq in frame.cursors.items()}
        with streaming(api, path, frame.id) as stream:
            seen: dict[str, list[int]] = {topic.name: [] for topic in topics}
            caught_up = 0
            while caught_up < 3:
                again = stream.next()
                caught_up += again.event == "caught-up"
                if again.event == "record":
                    seen[again.json["topic"]] += again.seqs
        assert seen == behind


def test_an_id_may_name_some_topics_only_and_others_too(topic: Topic, new_topic: NewTopic) -> None:
    other = new_topic()
    for each in (topic, other):
        each.fill(2)
    path = create(topic.api, {topic.name: {}, other.name: {}})["stream_url"]
    with streaming(topic.api, path) as stream:
        stream.take(4)
    with streaming(topic.api, path, id_of({topic.name: 1, "elsewhere": 0})) as stream:
        frames = stream.take(3)
    assert sorted(summary(frames)) == [("caught-up", 2), ("caught-up", 2), ("record", [2])]


@pytest.mark.parametrize(
    "last_event_id",
    [
        "",
        "garbage",
        "!!!!",
        "z.",
        "z.garbage",
        "%00",
        "\xe9\xff",
        "x" * 5000,
        id_of({}),
        "W10",  # []
        "eyJhIjoiMSJ9",  # {"a":"1"}
        "eyJ",
        "bnVsbA",  # null
    ],
)
def test_an_id_that_is_none_is_ignored(topic: Topic, session: str, last_event_id: str) -> None:
    topic.fill(2)
    with streaming(topic.api, session) as stream:
        stream.until("caught-up")
    with streaming(topic.api, session, last_event_id) as stream:
        assert until_caught_up(stream) == [("caught-up", 2)]


@pytest.mark.parametrize("seq", [-1, 2**64, 2**200, 3])
def test_an_id_with_an_impossible_seq_changes_nothing(topic: Topic, session: str, seq: int) -> None:
    topic.fill(2)
    with streaming(topic.api, session) as stream:
        stream.until("caught-up")
    with streaming(topic.api, session, id_of({topic.name: seq})) as stream:
        assert until_caught_up(stream) == [("caught-up", 2)]


def test_going_back_to_what_is_lost_is_a_tombstone(capped: Topic) -> None:
    path = create(capped.api, {capped.name: {"tail": True}})["stream_url"]
    with streaming(capped.api, path, id_of({capped.name: 2})) as stream:
        assert until_caught_up(stream) == [
            ("tombstone", ("from_seq_too_old", 3, 7)),
            ("record", [8, 9, 10]),
            ("caught-up", 10),
        ]


def test_a_tombstone_is_not_told_again(capped: Topic) -> None:
    path = create(capped.api, {capped.name: {}}, limit=1)["stream_url"]
    with streaming(capped.api, path) as stream:
        tombstone = stream.until("caught-up")[0]
    with streaming(capped.api, path, tombstone.id) as stream:
        assert until_caught_up(stream) == [("record", [8]), ("record", [9]), ("record", [10]), ("caught-up", 10)]


def test_a_second_stream_takes_the_session_over(topic: Topic, session: str) -> None:
    topic.fill(1)
    with streaming(topic.api, session) as first:
        assert until_caught_up(first) == [("record", [1]), ("caught-up", 1)]
        with streaming(topic.api, session) as second:
            assert first.rest() == []
            assert until_caught_up(second) == [("caught-up", 1)]
            topic.fill(1)
            assert second.record().seqs == [2]


def test_a_session_of_more_than_64_topics_can_be_taken_back(new_topic: NewTopic) -> None:
    topics = [new_topic() for _ in range(70)]
    for topic in topics:
        topic.configure(durability="ephemeral")
        topic.fill(2)
    api = topics[0].api
    path = create(api, {topic.name: {} for topic in topics}, limit=1)["stream_url"]
    with streaming(api, path) as stream:
        frames = stream.take(210)
    assert all(frame.id for frame in frames)
    middle = 100
    missed = {(frame.json["topic"], *frame.seqs) for frame in frames[middle + 1 :] if frame.event == "record"}
    with streaming(api, path, frames[middle].id) as stream:
        again = stream.take(len(missed) + 70)
    assert {(frame.json["topic"], *frame.seqs) for frame in again if frame.event == "record"} == missed


def test_up_to_64_topics_the_id_is_the_map(new_topic: NewTopic) -> None:
    topics = [new_topic() for _ in range(64)]
    for topic in topics:
        topic.configure(durability="ephemeral")
    with watching(topics[0].api, {topic.name: {} for topic in topics}) as stream:
        frame = stream.next()
    assert frame.id is not None
    assert cursors_of(frame.id) == {topic.name: 0 for topic in topics}


# The server stops


def test_a_server_that_stops_says_so_and_closes(server: StartServer) -> None:
    process = server()
    topic = Topic(process.api, "a")
    topic.fill(1)
    with watching(process.api, {"a": {}}) as stream:
        stream.until("caught-up")
        process.stop()
        (frame,) = stream.rest()
    assert (frame.event, frame.id) == ("error", None)
    assert frame.json["code"] == 503
    assert frame.json["error"]
    assert frame.json["retry_after_ms"] > 0
