"""Writes spread over a thousand topics, alone and with deletes of the oldest in between."""

from topics.bench.plan import LoadSettings, ManyTopicsPlan
from topics.bench.targets import Target, TargetKind
from topics.bench.workload import Expectation, Workload

TOPICS = 1000
BATCH_RECORDS = 10
KEPT_RECORDS = 20


class ManyTopicsWorkload(Workload):
    """Creates the topics before a round, because that is not to be measured."""

    group = "topics"
    kinds = frozenset({TargetKind.TOPICS})

    def __init__(self, durability: str, *, deletes: bool, topics: int = TOPICS) -> None:
        self.name = f"topics-{topics}-deletes" if deletes else f"topics-{topics}"
        super().__init__(durability)
        self._records_per_request = BATCH_RECORDS if deletes else 1
        self._kept_records = KEPT_RECORDS if deletes else None
        self._topics = [f"{self.topic}-{number:04d}" for number in range(topics)]
        self.summary = f"{topics} topics, 1 record a call in turn, {durability} class"
        if deletes:
            self.summary = (
                f"{topics} topics, {BATCH_RECORDS} records a call in turn, deletes of all but the last {KEPT_RECORDS}"
                f" by before_seq in between, {durability} class"
            )
        self.expectations = (Expectation(TargetKind.TOPICS, 1.4 if deletes else 1.3),)

    def set_up(self, target: Target, settings: LoadSettings) -> None:
        with target.http() as control:
            for topic in self._topics:
                control.call("PUT", f"/v0/topics/{topic}", self.config)

    def plan(self, target: Target, settings: LoadSettings) -> ManyTopicsPlan:
        return ManyTopicsPlan(
            target=target,
            settings=settings,
            topics=self._topics,
            records_per_request=self._records_per_request,
            kept_records=self._kept_records,
        )

    def clean_up(self, target: Target) -> None:
        with target.http() as control:
            for topic in self._topics:
                control.call("DELETE", f"/v0/topics/{topic}")
