"""When routers work: on the loop, in small slices, soon after their source was written to.

A write only marks its source. On a later turn the topics it is copied to are served in the scheduler's order, a batch
each; under pressure they stand one band lower. One that is full is asked again after a while, longer each time.
"""

import logging

from topics import limits
from topics.clock import Clock
from topics.delivery.governor import Governor
from topics.delivery.hub import CallLater
from topics.delivery.scheduler import BAND_FLOORS, Scheduler
from topics.engine.engine import Engine
from topics.engine.forwarding import Outcome
from topics.engine.topic import Topic

log = logging.getLogger("topics.routers")

_BAND = BAND_FLOORS[1] - BAND_FLOORS[0]


class Forwarder:
    def __init__(self, engine: Engine, clock: Clock, governor: Governor, call_later: CallLater) -> None:
        self._engine = engine
        self._clock = clock
        self._governor = governor
        self._call_later = call_later
        self._sources: dict[Topic, None] = {}
        self._ready: Scheduler[Topic] = Scheduler(self._priority)
        self._pauses_ms: dict[Topic, int] = {}
        self._asked_again: set[Topic] = set()  # a timer runs for these
        self._stalled: set[Topic] = set()  # it is in the server's log that nothing is copied into these
        self._scheduled = True  # not before `start`
        self._stopped = False

    def start(self) -> None:
        """Everything is recovered: begins to forward, with what was left to do."""
        self._scheduled = False
        if self._sources:
            self._schedule()

    def stop(self) -> None:
        """Stops forwarding: the journal is about to close."""
        self._stopped = True

    def forwardable(self, source: Topic) -> None:
        """Hot: once per write to a topic that is forwarded. Before `start` it may be called on any one thread."""
        self._sources[source] = None
        if not self._scheduled:
            self._schedule(self._governor.coalesce_ms / 1000)

    def _priority(self, dest: Topic, now_ms: int) -> int:
        return dest.effective_priority(now_ms) - (_BAND if self._governor.deferring else 0)

    def _schedule(self, delay_s: float = 0) -> None:
        self._scheduled = True
        self._call_later(delay_s, self._turn)

    def _turn(self) -> None:
        """Forwards for one slice of time, then lets the loop do other things."""
        if self._stopped:
            return
        began_ns = self._clock.monotonic_ns()
        self._scheduled = False
        now_ms = self._clock.now_ms()
        sources, self._sources = self._sources, {}
        for source in sources:
            for router in source.outbound.values():
                self._ready.mark(router.dest, now_ms)
        try:
            while (dest := self._ready.take(now_ms)) is not None:
                self._serve(dest, now_ms)
                if self._clock.monotonic_ns() - began_ns > limits.ROUTER_SLICE_NS:
                    break
        finally:
            if (self._ready.ready_depth or self._sources) and not self._scheduled:
                self._schedule()

    def _serve(self, dest: Topic, now_ms: int) -> None:
        outcome = self._engine.forward(dest, limits.ROUTER_BATCH_RECORDS_MAX)
        if outcome is Outcome.MORE:
            self._ready.mark(dest, now_ms)
        if outcome is Outcome.STALLED:
            self._note_stall(dest)
        elif outcome is not Outcome.HELD and dest in self._stalled:
            self._stalled.discard(dest)
            log.warning('copying into topic "%s" goes on again', dest.name)
        if outcome is Outcome.FULL or outcome is Outcome.STALLED:
            self._ask_again_later(dest)
        elif outcome is not Outcome.HELD:
            self._pauses_ms.pop(dest, None)

    def _note_stall(self, dest: Topic) -> None:
        stall = self._engine.router_stall(dest)
        if dest not in self._stalled and stall is not None:
            self._stalled.add(dest)
            log.error('nothing can be copied into topic "%s" and it is retried: %s', dest.name, stall.reason)

    def _ask_again_later(self, dest: Topic) -> None:
        pause_ms = min(2 * self._pauses_ms.get(dest, 0) or limits.ROUTER_RETRY_MS_MIN, limits.ROUTER_RETRY_MS_MAX)
        self._pauses_ms[dest] = pause_ms
        if dest in self._asked_again:
            return  # one timer a topic, however often its sources are written to meanwhile
        self._asked_again.add(dest)

        def again() -> None:
            self._asked_again.discard(dest)
            if dest.deleted or not dest.inbound:
                self._pauses_ms.pop(dest, None)
                self._stalled.discard(dest)
                return
            self._ready.mark(dest, self._clock.now_ms())
            if not self._scheduled:
                self._schedule()

        self._call_later(pause_ms / 1000, again)
