"""How the client of a watch stream goes on where it was, and what a server that stops says."""

import pytest

from conformance.client import Topic
from conformance.conftest import StartServer
from conformance.sse import create, cursors_of, id_of, streaming, watching
from conformance.watch_frames import NewTopic, summary, until_caught_up


@pytest.fixture
def session(topic: Topic) -> str:
    """The path of a stream over `topic`, which is empty."""
    topic.configure()
    path = create(topic.api, {topic.name: {}}, limit=1)["stream_url"]
    assert isinstance(path, str)
    return path


@pytest.fixture
def capped(topic: Topic) -> Topic:
    """Ten records written, the last three kept."""
    topic.configure(cap_records=3)
    topic.fill(10)
    return topic


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
