"""Reports of jobs that run by themselves, as records in the topic `topics:pipelines`.

The console and `topics pipeline status` read them, without Spark. An idle job reports only once a minute, so that it
does not push the reports of others out of the topic.
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
    """What an audit counted in a topic up to `head`. If `read + deleted + lost` is not `head`, something is wrong."""

    topic: str
    read: int
    deleted: int
    lost: int
    head: int


class Report(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The report of a run. `pipeline` is the user's name for it, `job` the kind. `wait_ms`: how long until the next run
    begins. `lag`: records that waited when the run ended, if known."""

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
    """Writes reports to the topic. An audit adds one for each topic, under `audit`, as the console shows them."""

    def __init__(self, server: Server, say: Callable[[str], None]) -> None:
        self._client = server.client()
        self._say = say
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Creates the topic, with a cap, if it does not exist. Raises the server's refusals."""
        try:
            self._client.topic(REPORTS)
        except TopicNotFound:
            self._client.create(REPORTS, cap_records=PIPELINE_REPORTS_MAX)

    def tell(self, report: Report) -> None:
        """Sends a report. If that fails it only says so: the work itself is done."""
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
    """Every report in the topic and its time, oldest first."""
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
