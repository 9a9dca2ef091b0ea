"""Writes spread over many topics. Each topic belongs to one connection, which therefore knows its head without asking
and can render a delete of the oldest records.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle

from topics.bench.closed_loop import ClosedLoop, Connection, Tally
from topics.bench.http1 import HttpReply, render_request
from topics.bench.plan import ManyTopicsPlan
from topics.bench.records import write_body
from topics.bench.samples import Counts
from topics.clock import Clock

WRITES_BETWEEN_DELETES = 4


class TopicsConnection(Connection):
    """Writes to its topics one after the other; with `kept_records`, it now and then deletes a topic's oldest
    records."""

    def __init__(self, plan: ManyTopicsPlan, topics: Sequence[str], clock: Clock) -> None:
        super().__init__([], HttpReply(), clock)
        self._plan = plan
        self._topics: Iterator[str] = iter(topics) if plan.once else cycle(topics)
        self._topic = topics[0]
        self._written = dict.fromkeys(topics, 0)
        self._body = write_body(0, plan.records_per_request)
        self._records_acked = 0
        self._deletes_next = False
        self._writing = True

    def next_request(self) -> bytes | None:
        """Renders one request. Hot: once per reply."""
        plan = self._plan
        self._writing = not self._deletes_next
        if self._deletes_next:
            self._deletes_next = False
            before_seq = self._written[self._topic] - (plan.kept_records or 0) + 1
            return self._request("/delete", b'{"before_seq":%d}' % before_seq)
        topic = next(self._topics, None)
        if topic is None:
            return None
        self._topic = topic
        written = self._written[topic] = self._written[topic] + plan.records_per_request
        often = WRITES_BETWEEN_DELETES * plan.records_per_request
        self._deletes_next = plan.kept_records is not None and written > plan.kept_records and written % often == 0
        return self._request("", self._body)

    def note_success(self, tally: Tally, latency_ns: int) -> None:
        tally.latencies_ns.append(latency_ns)
        if self._writing:
            self._records_acked += self._plan.records_per_request

    def take_acked(self) -> int:
        """How many of its records were acknowledged since the last call."""
        acked, self._records_acked = self._records_acked, 0
        return acked

    def _request(self, action: str, body: bytes) -> bytes:
        target = self._plan.target
        path = f"/v0/topics/{self._topic}{action}"
        return render_request("POST", path, body, host=target.host, api_key=target.api_key)


class ManyTopics(ClosedLoop):
    """Counts written records as records, writes and deletes as requests."""

    def __init__(self, plan: ManyTopicsPlan, clock: Clock) -> None:
        connections = min(plan.settings.connections, len(plan.topics))
        self._writers = [TopicsConnection(plan, plan.topics[at::connections], clock) for at in range(connections)]
        super().__init__(self._writers, clock)

    def counts(self, tally: Tally, elapsed_ns: int) -> Counts:
        records = sum(writer.take_acked() for writer in self._writers)
        latencies = tally.latencies_ns
        return Counts(latencies, len(latencies), records, elapsed_ns, tally.errors, tally.first_error)
