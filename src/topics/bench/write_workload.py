"""Writes of one record and of a batch a call, against `XADD` and pipelined `XADD`."""

from collections.abc import Sequence
from contextlib import ExitStack

from topics.bench.http1 import render_request
from topics.bench.journal_watch import JournalWatch
from topics.bench.plan import LoadSettings
from topics.bench.records import stream_command, write_body
from topics.bench.resp import LINES_PER_BULK_STRING
from topics.bench.samples import Sample
from topics.bench.targets import Target, TargetKind
from topics.bench.workload import ClosedLoop, Expectation

SCRIPT_RECORDS = 1024


class WriteWorkload(ClosedLoop):
    """Appends to one topic of the chosen durability class."""

    group = "write"

    def __init__(self, durability: str, records_per_request: int) -> None:
        self.name = f"write-{records_per_request}"
        self.summary = f"{_records(records_per_request)} a call, {durability} class"
        self.records_per_request = records_per_request
        self.script_length = max(SCRIPT_RECORDS // records_per_request, 4)
        self.lines_per_reply = LINES_PER_BULK_STRING * records_per_request
        self.kinds = frozenset({TargetKind.TOPICS, TargetKind.REDIS})
        if records_per_request == 1:
            self.kinds |= {TargetKind.EMPTY_HANDLER}
        self.expectations = _expectations(durability, records_per_request)
        self._durability = durability
        super().__init__(durability)

    def measure(self, targets: Sequence[Target], settings: LoadSettings) -> list[Sample]:
        """Asks servers before and after whether they journal what they acknowledge."""
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

    def request(self, target: Target, connection: int, number: int) -> bytes:
        first = (connection * self.script_length + number) * self.records_per_request
        if target.kind is TargetKind.REDIS:
            stream = self.topic.encode("ascii")
            records = range(first, first + self.records_per_request)
            return b"".join(stream_command(stream, b"*", record) for record in records)
        body = write_body(first, self.records_per_request)
        return render_request("POST", f"/v0/topics/{self.topic}", body, host=target.host, api_key=target.api_key)


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _expectations(durability: str, records_per_request: int) -> tuple[Expectation, ...]:
    """A synced write waits for the disk: it is held against Redis syncing always, not an empty handler."""
    if records_per_request > 1:
        return (Expectation(TargetKind.REDIS, 2.0),) if durability != "fsync" else ()
    against_redis = Expectation(TargetKind.REDIS, 1.0)
    if durability == "fsync":
        return (against_redis,)
    return (Expectation(TargetKind.EMPTY_HANDLER, 0.5), against_redis)
