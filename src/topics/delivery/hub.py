"""Who watches which topic, and who is served next.

A write only marks its topic. On the loop's next turn the marked topics are taken in the scheduler's order and the
watchers of each are served; one rendering of a batch serves all watchers of a topic that ask for the same.

A turn is bounded in time and in bytes, also within a topic: a crowd that a large batch is for is served over several
turns, and whoever else has something to do on the loop does it in between.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator

from topics import limits
from topics.clock import Clock, monotonic_ms
from topics.delivery.governor import Governor
from topics.delivery.scheduler import Scheduler
from topics.delivery.shared_batches import Audience, Crowd, SharedBatches, Watcher
from topics.engine.topic import Topic

_DONE = object()

CallLater = Callable[[float, Callable[[], None]], object]


class Hub:
    """`call_later` runs a call on the loop after so many seconds; 0 is its next turn."""

    def __init__(self, clock: Clock, governor: Governor, call_later: CallLater) -> None:
        self._clock = clock
        self._governor = governor
        self._call_later = call_later
        self._watchers: dict[Topic, Audience] = {}
        self._ready: Scheduler[Topic] = Scheduler(lambda topic, now_ms: topic.effective_priority(now_ms))
        self._unserved: dict[Topic, deque[Watcher]] = {}  # those that a turn did not get to
        self._again: set[Topic] = set()  # of these topics, those with more for the watchers that were served already
        self._telling: Iterator[None] | None = None  # those whose deliveries pause; None = all are told
        self._latency_ms = 0.0
        self._scheduled_ns = 0  # when the coming turn was asked for; 0 = none is

    @property
    def ready_depth(self) -> int:
        """How many topics wait to be served."""
        return self._ready.ready_depth

    def take_latency_ms(self) -> float:
        """The longest delay of a turn since the last call."""
        latency_ms, self._latency_ms = self._latency_ms, 0.0
        return latency_ms

    def watch(self, topic: Topic, watcher: Watcher) -> None:
        audience = self._watchers.get(topic)
        if audience is None:
            audience = self._watchers[topic] = Audience()
        audience.watchers[watcher] = audience.served[watcher] = None

    def unwatch(self, topic: Topic, watcher: Watcher) -> None:
        audience = self._watchers.get(topic)
        if audience is not None:
            audience.watchers.pop(watcher, None)
            audience.served.pop(watcher, None)
            if not audience.watchers:
                del self._watchers[topic]
                self._unserved.pop(topic, None)
                self._again.discard(topic)
                self._ready.discard(topic)

    def watchers_of(self, topic: Topic) -> Collection[Watcher]:
        audience = self._watchers.get(topic)
        return () if audience is None else audience.watchers

    def go_with(self, crowd: Crowd, watcher: Watcher) -> None:
        """The watcher is served with the crowd from now on."""
        self._watchers[crowd.topic].served.pop(watcher, None)

    def go_alone(self, topic: Topic, watcher: Watcher) -> None:
        """The watcher is in no crowd any more."""
        audience = self._watchers.get(topic)
        if audience is not None and watcher in audience.watchers:
            audience.served[watcher] = None

    def changed(self, topic: Topic) -> None:
        """Marks the topic, to be served on the loop's next turn. Once per write."""
        if topic in self._watchers:
            if self._unserved and topic in self._unserved:
                self._again.add(topic)
            self._ready.mark(topic, self._clock.now_ms())
            if not self._scheduled_ns:
                self._schedule(self._governor.coalesce_ms / 1000)

    def defer(self, deferring: bool) -> None:
        """Pauses deliveries of topics with a negative priority, or resumes them."""
        if deferring == self._ready.deferring:
            return
        self._ready.deferring = deferring
        if deferring:
            is_telling = self._telling is not None
            self._telling = self._pace_all()
            if not is_telling:
                self._tell_paced()
            return
        if self._telling is not None:
            self._telling = iter(())  # those who were not told yet need not be told
        if self._ready.ready_depth and not self._scheduled_ns:
            self._schedule(0)

    def _tell_paced(self) -> None:
        """One turn's part of it: 2000 watchers of 256 topics each take 75 ms in all."""
        assert self._telling is not None
        for _ in range(limits.PACED_TURN_STEPS):
            if next(self._telling, _DONE) is _DONE:
                self._telling = None
                return
        self._call_later(0, self._tell_paced)

    def _pace_all(self) -> Iterator[None]:
        """Tells every watcher once, with all of its topics that are paused. A step each."""
        now_ms = self._clock.now_ms()
        paced: dict[Watcher, list[str]] = {}
        for topic in [topic for topic in self._watchers if topic.effective_priority(now_ms) < 0]:
            for watcher in list(self.watchers_of(topic)):
                paced.setdefault(watcher, []).append(topic.name)
                yield
        for watcher, names in paced.items():
            watcher.pace(names, limits.PACED_RETRY_AFTER_MS)
            yield

    def _schedule(self, delay_s: float) -> None:
        self._scheduled_ns = self._clock.monotonic_ns() + int(delay_s * 1e9)
        self._call_later(delay_s, self._turn)

    def _turn(self) -> None:
        """Serves marked topics for one slice of time and bytes, then lets the loop do other things."""
        began_ns = self._clock.monotonic_ns()
        self._latency_ms = max(self._latency_ms, (began_ns - self._scheduled_ns) / 1e6)
        self._scheduled_ns = 0
        ends_ns = began_ns + limits.DELIVERY_SLICE_NS
        budget = limits.DELIVERY_TURN_BYTES_MAX
        while budget > 0 and (topic := self._ready.take(self._clock.now_ms())) is not None:
            budget = self._serve(topic, budget, ends_ns)
        # What is paused does not count: its turn comes when the pressure is gone.
        if self._ready.ready_depth and not self._scheduled_ns:
            self._schedule(0)

    def _serve(self, topic: Topic, budget: int, ends_ns: int) -> int:
        """Serves the watchers of a topic, or the rest of them. Returns what is left of the budget, 0 when the time is
        up."""
        audience = self._watchers.get(topic)
        if audience is None:
            return budget
        unserved = self._unserved.pop(topic, None) or deque(audience.served)
        shared = SharedBatches(topic, monotonic_ms(self._clock), alone=not self._ready.ready_depth, audience=audience)
        try:
            while unserved and budget > 0:
                watcher = unserved.popleft()
                if watcher in audience.served:  # it may have gone meanwhile
                    budget -= watcher.serve(topic, shared)
                    if shared.goes_on:
                        shared.goes_on = False
                        unserved.appendleft(watcher)
                    if self._clock.monotonic_ns() > ends_ns:
                        budget = 0
        finally:
            if audience.crowds:
                audience.end_serving()
        if unserved and audience.watchers:
            if topic in self._ready:
                self._again.add(topic)  # somebody of those served has more to come
            self._unserved[topic] = unserved
            self._ready.mark(topic, self._clock.now_ms())
        elif topic in self._again:
            self._again.discard(topic)
            self._ready.mark(topic, self._clock.now_ms())
        return budget
