"""What the workloads of live delivery have in common: one topic, and what is sent keeps to a fixed rate."""

import secrets
from abc import abstractmethod

from topics.bench.live_plan import FanoutPlan, MediaPlan, run_live_load
from topics.bench.plan import LoadSettings
from topics.bench.samples import Sample
from topics.bench.targets import Target, TargetKind
from topics.bench.workload import Workload


class LiveWorkload(Workload):
    """Every round has an empty topic."""

    kinds = frozenset({TargetKind.TOPICS})
    fixed_rate = True

    def __init__(self, durability: str) -> None:
        super().__init__()
        self.topic = f"bench-{self.name}-{secrets.token_hex(4)}"
        self._config = b'{"durability":"%b"}' % durability.encode("ascii")

    @abstractmethod
    def plan(self, target: Target, settings: LoadSettings) -> FanoutPlan | MediaPlan: ...

    def prepare(self, target: Target) -> None:
        """Nothing lasts longer than a round."""

    def run_round(self, target: Target, settings: LoadSettings) -> Sample:
        try:
            with target.http() as control:
                control.call("PUT", f"/v0/topics/{self.topic}", self._config)
            return run_live_load(self.plan(target, settings))
        finally:
            self.clean_up(target)

    def clean_up(self, target: Target) -> None:
        with target.http() as control:
            control.call("DELETE", f"/v0/topics/{self.topic}")
