"""Appends with a key that the server knows: what is gone is appended anew, what is there is not."""

import json
from typing import Any

from conformance.client import Topic
from spark.readings import history
from spark.server import RestartableServer
from topics.spark.jobs.known_writes import Written, append_missing


def append(server: RestartableServer, topic: Topic, looked_seq: int) -> Written:
    with server.client() as client:
        body = json.dumps([{"data": n} for n in range(3)]).encode()
        return append_missing(client, topic.name, body, 3, "the-key", looked_seq)


def payloads(topic: Topic) -> dict[int, Any]:
    records, _ = history(topic)
    return {seq: record["data"] for seq, record in records.items()}


def test_records_that_were_deleted_since_are_appended_anew(server: RestartableServer, topic: Topic) -> None:
    first = append(server, topic, 0)
    assert first == Written(3, 0, 1, 3, created=True)
    topic.delete_records(before_seq=100)
    assert append(server, topic, 3) == Written(3, 0, 4, 6)
    assert payloads(topic) == {4: 0, 5: 1, 6: 2}


def test_only_those_that_are_gone_are(server: RestartableServer, topic: Topic) -> None:
    append(server, topic, 0)
    topic.delete_records(before_seq=3)
    assert append(server, topic, 3) == Written(2, 1, 4, 5)
    assert payloads(topic) == {3: 2, 4: 0, 5: 1}


def test_records_that_are_there_are_counted_as_such(server: RestartableServer, topic: Topic) -> None:
    append(server, topic, 0)
    assert append(server, topic, 3) == Written(0, 3, None, None)
    assert payloads(topic) == {1: 0, 2: 1, 3: 2}


def test_a_request_that_came_twice_is_not_repaired_for_what_a_cap_took(server: RestartableServer, topic: Topic) -> None:
    topic.configure(cap_records=1)
    append(server, topic, 0)
    # Sent again after a lost answer: the topic has had all three, in this order.
    assert append(server, topic, 0) == Written(0, 3, None, None)
    assert payloads(topic) == {3: 2}
