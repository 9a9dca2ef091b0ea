"""Random histories of watchers that ask for the same, against the contract every watcher is given: those who go as a
crowd get what each would have got alone."""

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from test_delivery_model import Stage, Watcher

from topics import limits

WATCHERS = 5

numbers = st.integers(0, WATCHERS - 1)
steps = st.one_of(
    st.tuples(st.just("write"), st.sampled_from([None, "me"])),
    st.tuples(st.just("write"), st.none()),
    st.tuples(st.just("turn"), st.none()),
    st.tuples(st.just("settle"), st.none()),
    st.tuples(st.just("delete"), st.integers(-1, 2)),
    st.tuples(st.just("stall"), numbers),
    st.tuples(st.just("go on"), numbers),
    st.tuples(st.just("lose"), numbers),
    st.tuples(st.just("reconnect"), numbers),
    st.tuples(st.just("take over"), numbers),
    st.tuples(st.just("recreate"), st.none()),
)


@settings(max_examples=300, deadline=None)
@given(
    history=st.lists(steps, min_size=10, max_size=60),
    config=st.sampled_from([{}, {}, {"cap_records": 3}, {"durability": "ephemeral"}]),
    members_max=st.sampled_from([1, 2, 64]),
    turn_bytes_max=st.sampled_from([300, 2_000_000]),
)
def test_a_crowd_gets_what_each_would_have_got_alone(
    history: list[tuple[str, object]], config: dict[str, object], members_max: int, turn_bytes_max: int
) -> None:
    with patch.multiple(limits, CROWD_MEMBERS_MAX=members_max, DELIVERY_TURN_BYTES_MAX=turn_bytes_max):
        stage = Stage()
        stage.create("a", config)
        watchers = [Watcher(stage, (), 100, strong=False, names=("a",)) for _ in range(WATCHERS)]
        for _ in range(2):  # from here on they are a crowd
            stage.append("a", 1, None)
            _catch_up(stage, watchers)
        for step, detail in history:
            match step, detail:
                case "write", node:
                    assert node is None or isinstance(node, str)
                    stage.append("a", 1, node)
                case "turn", _:
                    stage.loop.turn()
                case "settle", _:
                    stage.settle()
                case "delete", int(back):
                    stage.delete_records("a", max(stage.topic("a").log.head_seq - back, 0))
                case "stall", int(number):
                    watchers[number].stall()
                case "go on", int(number):
                    watchers[number].go_on()
                case "recreate", _:
                    stage.engine.delete_topic("a")
                    stage.journal.sync()
                    stage.create("a", config)
                case _, int(number):
                    watchers[number].reconnect(losing=step == "lose", taking_over=step == "take over")
        _catch_up(stage, watchers)


def _catch_up(stage: Stage, watchers: list[Watcher]) -> None:
    """Everybody reads on to the end; then nothing may be missing."""
    for watcher in watchers:
        watcher.read_all()
        watcher.go_on()
    stage.journal.sync()
    stage.settle()
    for watcher in watchers:
        watcher.read_all()
        watcher.check_complete()
