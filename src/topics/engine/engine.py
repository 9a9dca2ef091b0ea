"""The engine: every operation on topics, as plain synchronous calls. Decide, journal, apply, wake.

Deterministic: the clock is handed in, and there are no sockets, files, threads or tasks. All calls come from
one thread, so a call sees the effects of all calls before it and of none after it.

Composed of those who decide, over one state and one flow: `topics`, `records`, `routers` and `queues`. The names below
are everything you can ask of the engine.
"""

from collections.abc import Sequence
from functools import partial

from topics.clock import Clock
from topics.engine.admission import check_record_count
from topics.engine.dead_letters import DeadLetters
from topics.engine.flow import EngineLimits, Flow
from topics.engine.forwarding import Forwarding
from topics.engine.journal import Journal, NoJournal
from topics.engine.queues import Queues
from topics.engine.records import Appended, DeletedRecords, Records, Write
from topics.engine.routers import PutRouter, Routers
from topics.engine.state import State
from topics.engine.topics import DeletedTopic, Page, PutTopic, Topics
from topics.model.operation import Operation, Restarted

__all__ = [
    "Appended",
    "DeletedRecords",
    "DeletedTopic",
    "Engine",
    "EngineLimits",
    "Page",
    "PutRouter",
    "PutTopic",
    "Write",
]


class Engine:
    def __init__(
        self,
        clock: Clock,
        bounds: EngineLimits = EngineLimits(),  # noqa: B008 - immutable
        journal: Journal = NoJournal(),  # noqa: B008 - stateless
    ) -> None:
        self.state = State(bounds.block_events_max, bounds.block_bytes_max)
        self.flow = Flow(self.state, clock, journal, bounds.unsealed_bytes_max)
        forwarding = Forwarding(self.flow, bounds)
        topics = Topics(self.flow, bounds, forwarding)
        records = Records(self.flow, bounds, topics, forwarding)
        routers = Routers(self.flow, bounds, topics, forwarding)
        self.queues = Queues(self.flow, topics, records, DeadLetters(self.flow, topics, records, forwarding))

        self.topics = self.state.topics
        self.put_topic = topics.put
        self.topic = topics.get
        self.find_topic = topics.find
        self.refresh = topics.refresh
        self.page_of_topics = topics.page
        self.delete_topic = topics.delete
        self.put_cursor = topics.put_cursor
        self.delete_cursor = topics.delete_cursor

        self.check_record_count = partial(check_record_count, count_max=bounds.write.batch_records_max)
        self.append = records.append
        self.prepare = records.prepare
        self.append_single = records.append_single
        self.check_disk = records.check_disk
        self.read = records.read
        self.cursor_at = records.cursor_at
        self.add_strong_reader = records.add_strong_reader
        self.durable_seq = records.durable_seq
        self.delete_records = records.delete
        self.expire_due = records.expire_due

        self.routers = self.state.routers
        self.put_router = routers.put
        self.router = routers.get
        self.page_of_routers = routers.page
        self.delete_router = routers.delete
        self.forward = forwarding.forward
        self.router_stall = forwarding.stall_of
        self.catch_up = forwarding.catch_up
        self.forward_pending = forwarding.forward_pending

    def restart(self, operations: Sequence[Operation]) -> None:
        """What a start has found, before anything else happens. Not durable when it returns."""
        flow, state = self.flow, self.state
        now_ms = flow.clock.now_ms()
        flow.journal.submit([Restarted(ts=now_ms)], gated=False)
        for operation in operations:
            topic = state.topics.by_id(operation.topic_id)
            assert topic is not None, operation
            flow.submit([operation], (topic,), gated=False)
            topic.assigned_seq, topic.assigned_ts = topic.log.head_seq, topic.log.last_ts
        for topic in state.topics:
            if topic.outbound:
                state.on_forwardable(topic)
