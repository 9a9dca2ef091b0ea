"""From a write to its delivery over SSE, to one watcher and to a thousand."""

from topics.bench.live_plan import FanoutPlan
from topics.bench.live_workload import LiveWorkload
from topics.bench.plan import LoadSettings
from topics.bench.targets import Target

# A rate that leaves the loop idle most of the time: what is measured is a delivery, not a queue of them.
DELIVERIES_PER_S = 20_000
WRITES_PER_S_MAX = 200
P99_MS_MAX = {1: 1.0, 100: 5.0, 1000: 15.0}


class FanoutWorkload(LiveWorkload):
    """One writer of single records, and many watchers of its topic."""

    group = "fanout"

    def __init__(self, durability: str, watchers: int) -> None:
        self.name = f"fanout-{watchers}"
        self.p99_ms_max = P99_MS_MAX.get(watchers) if durability != "fsync" else None
        self._watchers = watchers
        self._writes_per_s = min(WRITES_PER_S_MAX, DELIVERIES_PER_S // watchers)
        to_whom = "1 SSE watcher" if watchers == 1 else f"{watchers} SSE watchers"
        self.summary = f"{self._writes_per_s} single writes/s to {to_whom}, write to delivery, {durability} class"
        super().__init__(durability)

    def plan(self, target: Target, settings: LoadSettings) -> FanoutPlan:
        return FanoutPlan(
            host=target.host,
            port=target.port,
            api_key=target.api_key,
            topic=self.topic,
            warm_up_s=settings.warm_up_s,
            seconds=settings.seconds,
            watchers=self._watchers,
            writes_per_s=self._writes_per_s,
        )
