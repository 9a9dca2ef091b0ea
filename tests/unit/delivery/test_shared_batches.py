"""One reading and one rendering serve all who stand at the same place and want the same."""

import pytest

from doubles.fake_channel import FakeChannel
from doubles.live_stage import LiveStage, read_options
from topics import limits
from topics.delivery.shared_batches import SharedBatches
from topics.delivery.watch_session import Position, WatchOptions, WatchSessions
from topics.delivery.watch_stream import WatchStream
from topics.model.read_options import ReadOptions
from topics.model.record import node_of, render_fragment, with_tag, without_data, without_meta


def test_the_same_place_is_read_once() -> None:
    stage = LiveStage()
    topic = stage.configure()
    stage.write(count=3)
    shared = SharedBatches(topic)
    assert shared.read(1, read_options()) is shared.read(1, read_options())


@pytest.mark.parametrize(
    "other",
    [
        (2, read_options()),
        (1, read_options(limit=1)),
        (1, read_options()._replace(include_tags=True)),
        (1, read_options()._replace(include_meta=False)),
        (1, read_options()._replace(include_data=False)),
        (1, read_options()._replace(bytes_max=1)),
        (1, read_options()._replace(to_seq=2)),
    ],
)
def test_another_place_or_another_wish_is_another_batch(other: tuple[int, ReadOptions]) -> None:
    stage = LiveStage()
    topic = stage.configure()
    stage.write(count=3)
    shared = SharedBatches(topic)
    assert shared.read(1, read_options()) is not shared.read(*other)


def test_whoever_wrote_nothing_of_a_batch_shares_it() -> None:
    stage = LiveStage()
    topic = stage.configure()
    stage.write(node="me")
    stage.write(node="you")
    shared = SharedBatches(topic)
    of_all = shared.read(0, read_options())
    assert len(of_all.batch.fragments) == 2
    assert shared.read(0, read_options(), frozenset({"he", "she"})) is of_all
    mine = shared.read(0, read_options(), frozenset({"me"}))
    assert [node_of(fragment) for fragment in mine.batch.fragments] == ["you"]
    assert shared.read(0, read_options(), frozenset({"me"})) is mine
    assert shared.read(1, read_options(), frozenset({"me"})) is shared.read(1, read_options())


def test_far_from_the_head_everybody_reads_alone() -> None:
    stage = LiveStage()
    topic = stage.configure()
    stage.write(count=limits.OWN_NODES_SHARED_SEQS_MAX + 1)
    shared = SharedBatches(topic)
    assert shared.read(0, read_options(), frozenset({"me"})) is not shared.read(0, read_options())
    assert shared.read(1, read_options(), frozenset({"me"})) is shared.read(1, read_options())


@pytest.mark.parametrize("node", [None, "n", "węzeł", '"quoted"', ',"data":'])
@pytest.mark.parametrize("data", [b"1", b'{"$node":"other"}', b"1e400", b'"\\u0000"'])
def test_who_wrote_a_record_is_read_off_every_rendering(data: bytes, node: str | None) -> None:
    fragment, meta_at = render_fragment(1, 2, node, data, b'{"$node":"meta"}')
    for text in (fragment, without_meta(fragment, meta_at), without_data(fragment), with_tag(fragment, "t")):
        assert node_of(text) == node


def open_stream(stage: LiveStage, *names: str) -> FakeChannel:
    sessions = WatchSessions(stage.clock, 0)
    positions = {name: Position(stage.engine.topic(name).topic_id, 0) for name in names}
    session = sessions.create(b"", WatchOptions(read_options(), 15_000, strong=False), positions)
    stream = WatchStream(stage.engine, stage.hub, stage.clock, sessions, session, stage.loop.call_later, lambda: None)
    channel = FakeChannel()
    stream.opened(channel)
    return channel


def test_streams_of_one_topic_write_the_same_bytes_object() -> None:
    stage = LiveStage()
    stage.configure()
    channels = [open_stream(stage, "t") for _ in range(3)]
    stage.settle()
    stage.write()
    stage.settle()
    assert b"event: record" in channels[0].writes[-1]
    assert len({id(channel.writes[-1]) for channel in channels}) == 1


def test_streams_of_different_topics_write_their_own_ids() -> None:
    stage = LiveStage()
    stage.configure("a")
    stage.configure("b")
    one, two = open_stream(stage, "a"), open_stream(stage, "a", "b")
    stage.settle()
    stage.write("a")
    stage.settle()
    (id_one, *record_one), (id_two, *record_two) = (channel.writes[-1].splitlines() for channel in (one, two))
    assert record_one == record_two
    assert id_one != id_two
