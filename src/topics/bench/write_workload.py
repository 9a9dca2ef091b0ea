"""Writes of one record and of a batch a call, compared with `XADD`, pipelined `XADD` and JetStream."""

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

import msgspec

from topics.bench.floors import sync_ms
from topics.bench.http1 import render_request
from topics.bench.journal_watch import JournalWatch
from topics.bench.measurement import Figure
from topics.bench.nats_wire import inbox_of, publish, subscribe
from topics.bench.plan import CirclePlan, LoadSettings
from topics.bench.records import data_of, stream_command, tag_of, write_body
from topics.bench.resp import LINES_PER_BULK_STRING
from topics.bench.samples import P99, Sample
from topics.bench.targets import Target, TargetKind
from topics.bench.workload import ClosedLoop, Expectation

SCRIPT_RECORDS = 1024
SYNC_PROBES = 100
BEYOND_SYNC_MS_MAX = 0.15


class WriteWorkload(ClosedLoop):
    """Appends to one topic of the chosen durability class."""

    def __init__(
        self, durability: str, records_per_request: int, connections: int | None = None, group: str = "write"
    ) -> None:
        self.group = group
        self.connections = connections
        self.name = f"{group}-{records_per_request}" + ("-alone" if connections == 1 else "")
        synced = durability == "fsync"
        over = ", one connection" if connections == 1 else ""
        self.summary = f"{_records(records_per_request)} a call, {durability} class{over}"
        self.records_per_request = records_per_request
        self.script_length = max(SCRIPT_RECORDS // records_per_request, 4)
        self.lines_per_reply = LINES_PER_BULK_STRING * records_per_request
        self.kinds = frozenset({TargetKind.TOPICS, TargetKind.REDIS})
        if not synced:  # Debian's JetStream does not sync before it answers
            self.kinds |= {TargetKind.NATS}
        if records_per_request == 1 and not synced:
            self.kinds |= {TargetKind.EMPTY_HANDLER}
        self.expectations = _expectations(durability, records_per_request, connections)
        self._durability = durability
        self._syncs_ms: list[float] = []
        super().__init__(durability)

    def measure(self, targets: Sequence[Target], settings: LoadSettings) -> list[Sample]:
        """Checks before and after a round whether servers journal what they acknowledge."""
        if self.synced and self.connections == 1:
            self._syncs_ms.append(sync_ms(SYNC_PROBES))
        with ExitStack() as stack:
            journals = {
                target: JournalWatch(self._durability, stack.enter_context(target.http()))
                for target in targets
                if target.kind is TargetKind.TOPICS
            }
            samples = super().measure(targets, settings)
            found = {target: journal.caveat() for target, journal in journals.items()}
        self.caveats += [f"{self.name} on {target.name}: {caveat}" for target, caveat in found.items() if caveat]
        return samples

    def own_figures(self, target: Target, typical: Sample) -> tuple[Figure, ...]:
        if not self._syncs_ms:
            return ()
        sync = median(self._syncs_ms)
        own = typical.p50_ms - sync
        most = None if target.older else BEYOND_SYNC_MS_MAX
        return (
            Figure(f"{target.name}: p50 beyond one fdatasync", own, "ms", most),
            Figure("one append and fdatasync beside it", sync, "ms"),
        )

    def plan(self, target: Target, settings: LoadSettings) -> CirclePlan:
        plan = super().plan(target, settings)
        if target.kind is not TargetKind.NATS:
            return plan
        openings = [subscribe(inbox_of(connection)) for connection in range(len(plan.scripts))]
        return msgspec.structs.replace(plan, openings=openings)

    def request(self, target: Target, connection: int, number: int) -> bytes:
        first = (connection * self.script_length + number) * self.records_per_request
        records = range(first, first + self.records_per_request)
        topic = self.topic.encode("ascii")
        match target.kind:
            case TargetKind.REDIS:
                return b"".join(stream_command(topic, b"*", record) for record in records)
            case TargetKind.NATS:
                inbox = inbox_of(connection)
                return b"".join(
                    publish(topic, data_of(record), reply_to=inbox, tag=tag_of(record)) for record in records
                )
            case _:
                body = write_body(first, self.records_per_request)
                path = f"/v0/topics/{self.topic}"
                return render_request("POST", path, body, host=target.host, api_key=target.api_key)


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _expectations(durability: str, records: int, connections: int | None) -> tuple[Expectation, ...]:
    """The marks. A synced write waits for the disk, so it is compared with a Redis that always syncs, not with an empty
    handler."""
    redis, older = TargetKind.REDIS, TargetKind.TOPICS
    if durability == "fsync":
        if connections == 1:
            return (Expectation(redis, 0.9), Expectation(older, 1.5))
        return (Expectation(redis, 0.7),) if records == 1 else ()
    if records > 1:
        return (Expectation(redis, 1.0), Expectation(redis, at_most=2.0, of=P99))
    return (Expectation(TargetKind.EMPTY_HANDLER, 0.5), Expectation(redis, 0.6))
