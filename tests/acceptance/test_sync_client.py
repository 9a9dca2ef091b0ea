"""The client against a real server: what it appends it reads back, and every refusal has its type."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Raw

from conformance.process import ServerProcess
from topics import errors
from topics.client.core import NewRecord
from topics.client.sync_client import SyncClient
from topics.wire.responses import ExportEnd, RecordReply


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyncClient]:
    directory: Path = tmp_path_factory.mktemp("server")
    server = ServerProcess(directory, {})
    with SyncClient(f"http://127.0.0.1:{server.api.port}") as client:
        yield client
    server.stop()


def records(count: int) -> list[NewRecord]:
    return [NewRecord(Raw(b'{"n": %d}' % number), tag=f"k{number % 2}", meta={"a": "b"}) for number in range(count)]


def exported(client: SyncClient, topic: str, from_seq: int = 0) -> tuple[list[RecordReply], ExportEnd]:
    found = []
    export = client.export(topic, from_seq)
    while True:
        try:
            found.append(next(export))
        except StopIteration as stop:
            end: ExportEnd = stop.value
            return found, end


def test_what_is_appended_is_read_back(client: SyncClient) -> None:
    assert client.append("read", records(3)).last_seq == 3
    reply = client.read("read", match=("tag", "Eq", "k0"))
    assert [(record.seq, bytes(record.data), record.tag, record.meta) for record in reply.records] == [
        (1, b'{"n": 0}', "k0", {"a": "b"}),
        (3, b'{"n": 2}', "k0", {"a": "b"}),
    ]
    assert [record.seq for record in client.read("read", 1, to_seq=2).records] == [2]


def test_a_key_used_again_appends_nothing(client: SyncClient) -> None:
    first = client.append("once", records(2), idempotency_key="key")
    again = client.append("once", records(2), idempotency_key="key")
    assert (first.deduped, again.deduped, again.first_seq) == (False, True, first.first_seq)
    assert client.state("once").count == 2


def test_topics_have_states_and_epochs(client: SyncClient) -> None:
    client.append("list.a", records(1))
    client.append("list.b", records(2))
    assert [(listed.topic, listed.head_seq) for listed in client.topics("list.")] == [("list.a", 1), ("list.b", 2)]
    assert client.state("list.a").epoch != client.state("list.b").epoch


def test_an_export_has_every_record_and_the_losses(client: SyncClient) -> None:
    client.append("capped", records(2), config={"cap_records": 5})
    client.append("capped", records(8))
    found, end = exported(client, "capped")
    assert [record.seq for record in found] == [6, 7, 8, 9, 10]
    assert [(gap.gap_from, gap.gap_to, gap.reason) for gap in end.tombstones] == [(1, 5, "cap")]
    assert end.next_from_seq == 10
    assert [(loss.gap_from, loss.gap_to, loss.reason) for loss in client.losses("capped")] == [(1, 5, "cap")]


def test_a_cursor_is_kept_under_its_name(client: SyncClient) -> None:
    client.append("cursors", records(5))
    assert client.put_cursor("cursors", "reader", 3).lag == 2
    assert client.cursor("cursors", "reader").seq == 3
    client.delete_cursor("cursors", "reader")
    with pytest.raises(errors.CursorNotFound):
        client.cursor("cursors", "reader")


def test_refusals_have_their_types(client: SyncClient) -> None:
    with pytest.raises(errors.TopicNotFound):
        client.state("missing")
    with pytest.raises(errors.TopicNotFound):
        client.append("missing", records(1), create=False)
    with pytest.raises(errors.InvalidRequest):
        client.append("no name", records(1))
    with pytest.raises(errors.BatchTooLarge):
        client.append("large", records(10_001))


def test_a_worker_claims_extends_gives_back_and_completes_jobs(client: SyncClient) -> None:
    client.append("jobs", records(3), config={"type": "queue"})
    first, *rest = client.claim("jobs", "w", 3, lease_ms=60_000)
    assert (first.seq, bytes(first.data), first.tag, first.deliveries) == (1, b'{"n": 0}', "k0", 1)
    assert client.extend("jobs", "w", [first], 90_000) == []
    assert client.nack("jobs", "w", rest) == []
    assert client.ack("jobs", "w", [first]) == []
    assert client.ack("jobs", "w", [first, *rest]) == [1, 2, 3]
    again = client.claim("jobs", "w", 3)
    assert [(job.seq, job.deliveries) for job in again] == [(2, 2), (3, 2)]
    assert client.ack("jobs", "w", rest) == [2, 3], "the leases of the first claim are over"


def test_a_log_has_no_jobs(client: SyncClient) -> None:
    client.append("no-queue", records(1))
    with pytest.raises(errors.NotAQueue):
        client.claim("no-queue", "w")
