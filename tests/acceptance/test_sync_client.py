"""The client against a real server: what it appends it reads back, and every refusal has its type."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Raw

from conformance.process import ServerProcess
from topics import errors
from topics.client.calls import NewRecord
from topics.client.sync_client import Client
from topics.wire.responses import ExportEnd, RecordReply


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory: Path = tmp_path_factory.mktemp("server")
    server = ServerProcess(directory, {})
    with Client(f"http://127.0.0.1:{server.api.port}") as client:
        yield client
    server.stop()


def records(count: int) -> list[NewRecord]:
    return [NewRecord(Raw(b'{"n": %d}' % number), tag=f"k{number % 2}", meta={"a": "b"}) for number in range(count)]


def exported(client: Client, topic: str, from_seq: int = 0) -> tuple[list[RecordReply], ExportEnd]:
    found = []
    export = client.export(topic, from_seq)
    while True:
        try:
            found.append(next(export))
        except StopIteration as stop:
            end: ExportEnd = stop.value
            return found, end


def test_what_is_appended_is_read_back(client: Client) -> None:
    assert client.append_many("read", records(3)).last_seq == 3
    reply = client.diff("read", match=("tag", "Eq", "k0"))
    assert [(record.seq, bytes(record.data), record.tag, bytes(record.meta)) for record in reply.records] == [
        (1, b'{"n": 0}', "k0", b'{"a":"b"}'),
        (3, b'{"n": 2}', "k0", b'{"a":"b"}'),
    ]
    assert [record.seq for record in client.diff("read", 1, to_seq=2).records] == [2]


def test_a_key_used_again_appends_nothing(client: Client) -> None:
    first = client.append_many("once", records(2), key="key")
    again = client.append_many("once", records(2), key="key")
    assert (first.deduped, again.deduped, again.first_seq) == (False, True, first.first_seq)
    assert client.topic("once").count == 2


def test_topics_have_states_and_epochs(client: Client) -> None:
    client.append_many("list.a", records(1))
    client.append_many("list.b", records(2))
    assert [(listed.topic, listed.head_seq) for listed in client.topics("list.")] == [("list.a", 1), ("list.b", 2)]
    assert client.topic("list.a").epoch != client.topic("list.b").epoch


def test_an_export_has_every_record_and_the_losses(client: Client) -> None:
    client.append_many("capped", records(2), config={"cap_records": 5})
    client.append_many("capped", records(8))
    found, end = exported(client, "capped")
    assert [record.seq for record in found] == [6, 7, 8, 9, 10]
    assert [(gap.gap_from, gap.gap_to, gap.reason) for gap in end.tombstones] == [(1, 5, "cap")]
    assert end.next_from_seq == 10
    assert [(loss.gap_from, loss.gap_to, loss.reason) for loss in client.losses("capped").losses] == [(1, 5, "cap")]


def test_a_cursor_is_kept_under_its_name(client: Client) -> None:
    client.append_many("cursors", records(5))
    assert client.set_cursor("cursors", "reader", 3).lag == 2
    assert client.cursor("cursors", "reader").seq == 3
    client.delete_cursor("cursors", "reader")
    with pytest.raises(errors.CursorNotFound):
        client.cursor("cursors", "reader")


def test_refusals_have_their_types(client: Client) -> None:
    with pytest.raises(errors.TopicNotFound):
        client.topic("missing")
    with pytest.raises(errors.TopicNotFound):
        client.append_many("missing", records(1), create=False)
    with pytest.raises(errors.InvalidRequest):
        client.append_many("no name", records(1))
    with pytest.raises(errors.BatchTooLarge):
        client.append_many("large", records(10_001))


def test_a_worker_claims_extends_gives_back_and_completes_jobs(client: Client) -> None:
    client.append_many("jobs", records(3), config={"type": "queue"})
    first, *rest = client.claim("jobs", node="w", max=3, lease_ms=60_000).claimed
    assert (first.seq, bytes(first.data), first.tag, first.deliveries) == (1, b'{"n": 0}', "k0", 1)
    assert client.extend("jobs", [first], node="w", lease_ms=90_000).skipped == []
    assert client.nack("jobs", rest, node="w").skipped == []
    assert client.ack("jobs", [first], node="w").skipped == []
    assert client.ack("jobs", [first, *rest], node="w").skipped == [1, 2, 3]
    again = client.claim("jobs", node="w", max=3).claimed
    assert [(job.seq, job.deliveries) for job in again] == [(2, 2), (3, 2)]
    assert client.ack("jobs", rest, node="w").skipped == [2, 3], "the leases of the first claim are over"


def test_a_log_has_no_jobs(client: Client) -> None:
    client.append_many("no-queue", records(1))
    with pytest.raises(errors.NotAQueue):
        client.claim("no-queue", node="w")
