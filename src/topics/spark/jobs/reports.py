"""What jobs that run by themselves tell of their runs: events in the topic `topics:pipelines`.

The console's page and `topics pipeline status` read them; nothing of Spark is needed for either. An idle job tells of
itself once a minute, so that what others told before is not pushed out of the topic.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, json

from topics.client.sync_client import Client
from topics.errors import TopicNotFound, TopicsError
from topics.limits import PIPELINE_REPORTS_MAX
from topics.spark.options import Server

REPORTS = "topics:pipelines"
STARTED, DONE, FAILED, STOPPED = "started", "done", "failed", "stopped"
DIFF_RECORDS = 1000


class Account(Struct, frozen=True):
    """Of a topic, up to `head`: `read + deleted + lost = head`, or something is wrong."""

    topic: str
    read: int
    deleted: int
    lost: int
    head: int


class Report(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event. `pipeline` is the user's name for it, `job` the kind. `wait_ms`: how long until the next run begins.
    `lag`: records that waited when the run ended, where that is known."""

    pipeline: str
    job: str
    state: str
    run: int
    wait_ms: int | None = None
    rows: int | None = None
    rows_per_s: int | None = None
    lag: int | None = None
    elapsed_ms: int | None = None
    topics: tuple[Account, ...] = ()
    error: str | None = None


class TopicReports:
    """Reports as events. Audits are told a topic each, under `audit`, as the console shows them."""

    def __init__(self, server: Server, say: Callable[[str], None]) -> None:
        self._client = server.client()
        self._say = say
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Makes the topic, bounded, if it is not there. Raises what the server says."""
        try:
            self._client.topic(REPORTS)
        except TopicNotFound:
            self._client.create(REPORTS, cap_records=PIPELINE_REPORTS_MAX)

    def tell(self, report: Report) -> None:
        """A report that cannot be sent is said to be lost: the work itself is done."""
        events: list[dict[str, Any]] = [json.decode(json.encode(report))]
        if report.job == "audit":
            events += [events[0] | {"audit": json.decode(json.encode(account))} for account in report.topics]
        with self._lock:
            try:
                for event in events:
                    self._client.append(REPORTS, event, tag=report.pipeline)
            except TopicsError as error:
                self._say(f"{report.pipeline}: {report.state}, and the report is lost: {error.message}")

    def close(self) -> None:
        with self._lock:
            self._client.close()


def told(client: Client) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every report there is, oldest first, and when it was told."""
    try:
        head = client.topic(REPORTS).head_seq
    except TopicNotFound:
        return
    cursor = max(0, head - PIPELINE_REPORTS_MAX)
    while cursor < head:
        reply = client.diff(REPORTS, cursor, limit=DIFF_RECORDS)
        for record in reply.records:
            data = json.decode(record.data)
            # Anybody may write to a topic; only what looks like a report is one.
            if isinstance(data, dict) and isinstance(data.get("pipeline"), str):
                yield record.ts, data
        if reply.caught_up or reply.next_from_seq <= cursor:
            return
        cursor = reply.next_from_seq
