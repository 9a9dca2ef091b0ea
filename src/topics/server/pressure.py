"""Feeds the governor, and carries out what its ladder says."""

import asyncio
import logging

from topics import limits
from topics.clock import Clock, thread_cpu_ms
from topics.delivery.governor import Governor
from topics.delivery.hub import Hub
from topics.server.store import Store
from topics.server.vitals import LoopLag

log = logging.getLogger("topics.server")


class Pressure:
    def __init__(self, governor: Governor, hub: Hub, store: Store, clock: Clock, loop_lag: LoopLag) -> None:
        self._governor = governor
        self._hub = hub
        self._store = store
        self._clock = clock
        self._loop_lag = loop_lag

    async def run(self) -> None:
        """Samples until cancelled. How late the sample itself comes is how late everything on this loop comes."""
        interval_ms = limits.PRESSURE_SAMPLE_INTERVAL_MS
        while True:
            asleep_ns, cpu_ms = self._clock.monotonic_ns(), thread_cpu_ms()
            await asyncio.sleep(interval_ms / 1000)
            late_ms = max((self._clock.monotonic_ns() - asleep_ns) / 1e6 - interval_ms, 0.0)
            if late_ms >= limits.LOOP_STALL_MS:
                _report_stall(late_ms, thread_cpu_ms() - cpu_ms)
            self._loop_lag.add(late_ms)
            self.sample(max(late_ms, self._hub.take_latency_ms()))

    def sample(self, latency_ms: float) -> None:
        governor = self._governor
        governor.sample(self._clock.now_ms(), self._hub.ready_depth, latency_ms, self._store.wal_backlog_share)
        self._hub.defer(governor.deferring)
        self._store.widen_commits(governor.commit_window_ms)


def _report_stall(late_ms: float, cpu_ms: float) -> None:
    """So that a client's timeout can be traced to the side that stood still."""
    why = (
        "the server itself was busy, please report what it was asked to do"
        if cpu_ms > late_ms / 2
        else "the machine was paused, overloaded, or waiting for its disk"
    )
    log.warning(
        "no request was answered for %.1f s, and the server used the CPU for %.1f s of it: %s",
        late_ms / 1e3,
        cpu_ms / 1e3,
        why,
    )
