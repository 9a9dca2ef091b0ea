"""Who is served, when, and in which order."""

from doubles.live_stage import LiveStage
from topics import limits
from topics.delivery.shared_batches import SharedBatches
from topics.engine.topic import Topic


class RecordingWatcher:
    """Remembers whom it was served, with what, and what it was told."""

    def __init__(self, stage: LiveStage, takes_ms: int = 0) -> None:
        self._stage = stage
        self._takes_ms = takes_ms
        self.takes_bytes = 0
        self.served: list[str] = []
        self.shared: list[SharedBatches] = []
        self.paced: list[tuple[list[str], int]] = []

    def serve(self, topic: Topic, shared: SharedBatches) -> int:
        self.served.append(topic.name)
        self.shared.append(shared)
        self._stage.clock.advance(self._takes_ms)
        return self.takes_bytes

    def pace(self, topics: list[str], retry_after_ms: int) -> None:
        self.paced.append((topics, retry_after_ms))


def test_a_write_serves_nobody_before_the_next_turn() -> None:
    stage = LiveStage()
    watcher = RecordingWatcher(stage)
    stage.hub.watch(stage.configure(), watcher)
    stage.write()
    assert watcher.served == []
    assert stage.hub.ready_depth == 1
    stage.loop.turn()
    assert watcher.served == ["t"]
    assert stage.hub.ready_depth == 0


def test_many_writes_of_one_turn_are_one_serving() -> None:
    stage = LiveStage()
    watcher = RecordingWatcher(stage)
    stage.hub.watch(stage.configure(), watcher)
    for _ in range(10):
        stage.write()
    stage.settle()
    assert watcher.served == ["t"]
    assert stage.loop.delays_s == [0]


def test_a_topic_nobody_watches_costs_no_turn() -> None:
    stage = LiveStage()
    stage.hub.watch(stage.configure("watched"), RecordingWatcher(stage))
    stage.write("other")
    assert stage.loop.delays_s == []
    assert stage.hub.ready_depth == 0


def test_only_the_watchers_of_the_topic_are_served() -> None:
    stage = LiveStage()
    one, two = RecordingWatcher(stage), RecordingWatcher(stage)
    stage.hub.watch(stage.configure("a"), one)
    stage.hub.watch(stage.configure("b"), two)
    stage.write("b")
    stage.settle()
    assert (one.served, two.served) == ([], ["b"])


def test_the_watchers_of_a_topic_share_what_is_read_for_one_of_them() -> None:
    stage = LiveStage()
    topic = stage.configure()
    watchers = [RecordingWatcher(stage) for _ in range(3)]
    for watcher in watchers:
        stage.hub.watch(topic, watcher)
    stage.write()
    stage.settle()
    assert len({id(shared) for watcher in watchers for shared in watcher.shared}) == 1
    stage.write()
    stage.settle()
    assert watchers[0].shared[0] is not watchers[0].shared[1]  # but not for longer than one serving


def test_who_has_left_is_not_served() -> None:
    stage = LiveStage()
    topic = stage.configure()
    stays, leaves = RecordingWatcher(stage), RecordingWatcher(stage)
    stage.hub.watch(topic, leaves)
    stage.hub.watch(topic, stays)
    stage.write()
    stage.hub.unwatch(topic, leaves)
    stage.settle()
    assert (stays.served, leaves.served) == (["t"], [])


def test_the_last_one_to_leave_takes_the_topic_out_of_the_ready_ones() -> None:
    stage = LiveStage()
    topic = stage.configure()
    watcher = RecordingWatcher(stage)
    stage.hub.watch(topic, watcher)
    stage.write()
    stage.hub.unwatch(topic, watcher)
    assert stage.hub.ready_depth == 0
    stage.hub.unwatch(topic, watcher)  # again: nothing to do
    stage.settle()
    assert watcher.served == []


def test_the_end_of_a_topic_is_a_change() -> None:
    stage = LiveStage()
    watcher = RecordingWatcher(stage)
    stage.hub.watch(stage.configure(), watcher)
    stage.engine.delete_topic("t")
    stage.settle()
    assert watcher.served == ["t"]


def test_the_higher_priority_is_served_first() -> None:
    stage = LiveStage()
    watcher = RecordingWatcher(stage)
    for name, priority in (("low", -500), ("middle", 300), ("high", 900)):
        stage.hub.watch(stage.configure(name, priority=priority), watcher)
        stage.write(name)
    stage.settle()
    assert watcher.served == ["high", "middle", "low"]


def test_a_long_turn_lets_the_loop_do_other_things() -> None:
    stage = LiveStage()
    slow = RecordingWatcher(stage, takes_ms=limits.DELIVERY_SLICE_NS // 1_000_000 + 1)
    for name in ("a", "b", "c"):
        stage.hub.watch(stage.configure(name), slow)
        stage.write(name)
    stage.loop.turn()
    assert slow.served == ["a"]
    stage.loop.turn()
    assert slow.served == ["a", "b"]
    stage.settle()
    assert slow.served == ["a", "b", "c"]


def test_a_change_made_while_serving_is_served_in_a_turn_of_its_own() -> None:
    stage = LiveStage()
    topic = stage.configure()

    class Writer(RecordingWatcher):
        def serve(self, topic: Topic, shared: SharedBatches) -> int:
            sent = super().serve(topic, shared)
            if len(self.served) < 3:
                stage.write()
            return sent

    watcher = Writer(stage)
    stage.hub.watch(topic, watcher)
    stage.write()
    stage.settle()
    assert watcher.served == ["t"] * 3


def test_under_pressure_changes_are_gathered() -> None:
    stage = LiveStage()
    watcher = RecordingWatcher(stage)
    stage.hub.watch(stage.configure(), watcher)
    stage.governor.pressure = 1.0
    stage.write()
    stage.settle()
    assert watcher.served == []
    stage.loop.pass_time(int(limits.COALESCE_MS_MAX))
    assert watcher.served == ["t"]


def test_a_turn_that_comes_late_is_noticed_once() -> None:
    stage = LiveStage()
    stage.hub.watch(stage.configure(), RecordingWatcher(stage))
    stage.write()
    stage.clock.advance(7)
    stage.settle()
    assert stage.hub.take_latency_ms() == 7
    assert stage.hub.take_latency_ms() == 0


def test_deferring_pauses_negative_priorities_and_tells_their_watchers_once() -> None:
    stage = LiveStage()
    both, high_only = RecordingWatcher(stage), RecordingWatcher(stage)
    low, high = stage.configure("low", priority=-1), stage.configure("high", priority=1)
    stage.hub.watch(low, both)
    stage.hub.watch(high, both)
    stage.hub.watch(high, high_only)
    stage.hub.defer(True)
    stage.hub.defer(True)
    assert both.paced == [(["low"], limits.PACED_RETRY_AFTER_MS)]
    assert high_only.paced == []
    stage.write("low")
    stage.write("high")
    stage.settle()
    assert both.served == ["high"]
    assert stage.hub.ready_depth == 0  # what is paused must not keep the pressure up


def test_what_was_paused_is_served_when_deferring_ends() -> None:
    stage = LiveStage()
    watcher = RecordingWatcher(stage)
    stage.hub.watch(stage.configure("low", priority=-1), watcher)
    stage.hub.defer(True)
    stage.write("low")
    stage.settle()
    stage.hub.defer(False)
    stage.settle()
    assert watcher.served == ["low"]
    assert len(watcher.paced) == 1


def test_many_watchers_are_told_of_a_pause_over_several_turns_and_each_of_all_its_topics() -> None:
    stage = LiveStage()
    watchers = [RecordingWatcher(stage) for _ in range(limits.PACED_TURN_STEPS)]
    for name in ("low", "lower"):
        topic = stage.configure(name, priority=-1)
        for watcher in watchers:
            stage.hub.watch(topic, watcher)
    stage.hub.defer(True)
    told_by_turn = []
    while any(not watcher.paced for watcher in watchers):
        told_by_turn.append(sum(len(watcher.paced) for watcher in watchers))
        stage.loop.turn()
    assert told_by_turn == [0, 0]  # in the first two turns it is gathered who is to be told
    assert all(watcher.paced == [(["low", "lower"], limits.PACED_RETRY_AFTER_MS)] for watcher in watchers)


def test_a_pause_that_is_over_before_everybody_was_told_is_not_told_to_the_rest() -> None:
    stage = LiveStage()
    watchers = [RecordingWatcher(stage) for _ in range(limits.PACED_TURN_STEPS)]
    topic = stage.configure("low", priority=-1)
    for watcher in watchers:
        stage.hub.watch(topic, watcher)
    stage.hub.defer(True)
    stage.hub.defer(False)
    stage.settle()
    assert not any(watcher.paced for watcher in watchers)
    stage.hub.defer(True)
    stage.settle()
    assert all(len(watcher.paced) == 1 for watcher in watchers)


# A crowd


def test_a_crowd_that_a_large_batch_is_for_is_served_over_several_turns() -> None:
    stage = LiveStage()
    topic = stage.configure()
    crowd = [RecordingWatcher(stage) for _ in range(300)]
    for watcher in crowd:
        watcher.takes_bytes = 200_000
        stage.hub.watch(topic, watcher)
    stage.write()
    most = limits.DELIVERY_TURN_BYTES_MAX // 200_000 + 1
    served, turns = 0, 0
    while stage.loop.is_due:
        stage.loop.turn()
        before, served = served, sum(len(watcher.served) for watcher in crowd)
        assert served - before <= most
        turns += 1
    assert [len(watcher.served) for watcher in crowd] == [1] * 300
    assert turns == -(-300 // most)


def test_a_write_while_a_crowd_is_served_reaches_those_who_were_served_already() -> None:
    stage = LiveStage()
    topic = stage.configure()
    crowd = [RecordingWatcher(stage) for _ in range(3)]
    for watcher in crowd:
        watcher.takes_bytes = limits.DELIVERY_TURN_BYTES_MAX
        stage.hub.watch(topic, watcher)
    stage.write()
    stage.loop.turn()
    stage.write()
    stage.settle()
    assert [len(watcher.served) for watcher in crowd] == [2, 2, 2]
    assert stage.hub.ready_depth == 0


def test_one_who_has_more_to_come_is_served_again_behind_the_rest_of_the_crowd() -> None:
    stage = LiveStage()
    topic = stage.configure()

    class WantsMore(RecordingWatcher):
        def serve(self, topic: Topic, shared: SharedBatches) -> int:
            if not self.served:
                stage.hub.changed(topic)
            return super().serve(topic, shared)

    crowd = [WantsMore(stage), RecordingWatcher(stage), RecordingWatcher(stage)]
    for watcher in crowd:
        watcher.takes_bytes = limits.DELIVERY_TURN_BYTES_MAX
        stage.hub.watch(topic, watcher)
    stage.write()
    stage.settle()
    assert [len(watcher.served) for watcher in crowd] == [2, 2, 2]


def test_others_are_served_between_the_parts_of_a_crowd() -> None:
    stage = LiveStage()
    large, small = stage.configure("large"), stage.configure("small")
    crowd = [RecordingWatcher(stage) for _ in range(50)]
    for watcher in crowd:
        watcher.takes_bytes = limits.DELIVERY_TURN_BYTES_MAX
        stage.hub.watch(large, watcher)
    one = RecordingWatcher(stage)
    stage.hub.watch(small, one)
    stage.write("large")
    stage.write("small")
    for _ in range(3):
        stage.loop.turn()
    assert one.served == ["small"]


def test_a_watcher_that_goes_before_its_turn_is_not_served() -> None:
    stage = LiveStage()
    topic = stage.configure()
    crowd = [RecordingWatcher(stage) for _ in range(3)]
    for watcher in crowd:
        watcher.takes_bytes = limits.DELIVERY_TURN_BYTES_MAX
        stage.hub.watch(topic, watcher)
    stage.write()
    stage.loop.turn()
    for watcher in crowd:
        stage.hub.unwatch(topic, watcher)
    stage.settle()
    assert sum(len(watcher.served) for watcher in crowd) == 1
    assert stage.hub.ready_depth == 0
