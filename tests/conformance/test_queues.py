"""Queues: claim, ack, nack, extend, dead letters, and what the state of a topic says of them.

Where a rule needs time to pass, leases are as short as they can be, and the test polls.
"""

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from conformance.client import Api, Topic, assert_error, eventually, success
from conformance.conftest import StartServer
from conformance.queue import Queue

NewTopic = Callable[..., Topic]
SHORT_MS = 100


@pytest.fixture
def queue(topic: Topic) -> Queue:
    topic.configure(type="queue")
    return Queue(topic)


# Claim


def test_a_claimed_job_is_its_record_with_the_fields_of_its_lease(queue: Queue) -> None:
    queue.topic.write({"data": {"type": "resize"}, "tag": "tenant42:job", "meta": {"trace": "z9"}, "node": "eu"})
    before_ms = time.time_ns() // 1_000_000
    reply = queue.claim("worker-eu-1", max=16, lease_ms=30_000)
    (job,) = reply["claimed"]
    assert set(reply) == {"topic", "claimed", "count", "ready", "performance"}
    assert (reply["topic"], reply["count"], reply["ready"]) == (queue.topic.name, 1, 0)
    assert set(reply["performance"]) == {"server_total_ms", "throttle_wait_ms"}
    assert int(job.pop("lease_id").removeprefix("lease_"), 16) > 0
    assert before_ms + 30_000 <= job.pop("deadline") <= time.time_ns() // 1_000_000 + 30_000
    assert job.pop("$ts") > 0
    assert job == {
        "$seq": 1,
        "deliveries": 1,
        "$node": "eu",
        "$tag": "tenant42:job",
        "data": {"type": "resize"},
        "meta": {"trace": "z9"},
    }


def test_what_a_job_does_not_have_is_left_out(queue: Queue) -> None:
    queue.topic.write({"data": 1.5})
    (job,) = queue.jobs()
    assert set(job) == {"$seq", "$ts", "lease_id", "deadline", "deliveries", "data"}


def test_one_job_is_claimed_where_no_number_is_given(queue: Queue) -> None:
    queue.topic.fill(3)
    reply = queue.claim()
    assert (reply["count"], reply["ready"]) == (1, 2)


def test_jobs_come_ascending_and_only_once(queue: Queue) -> None:
    queue.topic.fill(5)
    assert queue.seqs("a", max=3) == [1, 2, 3]
    assert queue.seqs("b", max=3) == [4, 5]
    assert queue.seqs("c", max=3) == []


def test_an_empty_queue_is_no_error(queue: Queue) -> None:
    assert queue.claim()["count"] == 0


def test_payloads_come_byte_for_byte(queue: Queue) -> None:
    queue.topic.api.post_bytes(queue.topic.path, b'{"records":[{"data":{"b": 1.0, "a":[1e400]}}]}')
    reply = queue.topic.api.post(f"{queue.topic.path}/claim", {"node": "w"})
    assert b'"data":{"b": 1.0, "a":[1e400]}' in reply.body


@pytest.mark.parametrize(("lease_ms", "clamped"), [(0, 100), (99, 100), (86_400_001, 86_400_000)])
def test_the_lease_time_is_clamped(queue: Queue, lease_ms: int, clamped: int) -> None:
    queue.topic.fill(1)
    before_ms = time.time_ns() // 1_000_000
    (job,) = queue.jobs(lease_ms=lease_ms)
    assert before_ms + clamped <= job["deadline"] <= time.time_ns() // 1_000_000 + clamped


def test_the_topic_has_a_lease_time_of_its_own(queue: Queue) -> None:
    queue.topic.configure(lease_ms=60_000)
    queue.topic.fill(1)
    before_ms = time.time_ns() // 1_000_000
    assert queue.jobs()[0]["deadline"] >= before_ms + 60_000


def test_claims_are_clamped_to_the_limit_of_the_server(server: StartServer) -> None:
    queue = Queue(Topic(server(TOPICS_MAX_CLAIM="3").api, "jobs"))
    queue.topic.configure(type="queue")
    queue.topic.fill(5)
    assert queue.seqs(max=4_000_000_000) == [1, 2, 3]
    refused = queue.post("ack", node="w", seqs=[1, 2, 3, 4])
    assert assert_error(refused, 400, "batch_too_large") == {"field": "seqs", "max": 3}
    assert queue.ack(1, 2, 3)["acked"] == 3


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"node": ""},
        {"node": 5},
        {"node": "x" * 257},
        {"node": "w", "max": -1},
        {"node": "w", "max": "1"},
        {"node": "w", "max": 1.0},
        {"node": "w", "lease_ms": -1},
        {"node": "w", "lease_ms": True},
        {"node": "w", "lease_ms": 1 << 64},
    ],
)
def test_a_bad_claim_is_refused_and_leases_nothing(queue: Queue, body: dict[str, Any]) -> None:
    queue.topic.fill(1)
    assert_error(queue.topic.api.post(f"{queue.topic.path}/claim", body), 400, "invalid_request")
    assert queue.counters() == (1, 0, 0)


# Who may, and where


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("claim", {"node": "w"}),
    ("ack", {"node": "w", "seqs": [1]}),
    ("nack", {"node": "w", "seqs": [1]}),
    ("extend", {"node": "w", "seqs": [1], "lease_ms": 1000}),
    ("redrive", {}),
]


@pytest.mark.parametrize(("path", "body"), CALLS)
def test_only_a_queue_has_jobs(topic: Topic, path: str, body: dict[str, Any]) -> None:
    topic.configure()
    reply = topic.api.post(f"{topic.path}/{path}", body)
    assert assert_error(reply, 409, "not_a_queue") == {"topic": topic.name}


@pytest.mark.parametrize(("path", "body"), CALLS)
def test_a_queue_is_never_made_by_asking_for_jobs(topic: Topic, path: str, body: dict[str, Any]) -> None:
    assert_error(topic.api.post(f"{topic.path}/{path}", body), 404, "topic_not_found")
    assert not topic.exists()


@pytest.fixture(scope="module")
def guarded(server: StartServer) -> Api:
    keys = "root-secret,r-secret:read,w-secret:write,rw-secret:rw,rwd-secret:rw+delete,mine-secret::mine."
    return server(TOPICS_API_KEYS=keys).api


@pytest.mark.parametrize(("path", "body"), CALLS)
def test_scopes(guarded: Api, path: str, body: dict[str, Any]) -> None:
    name = f"q-{uuid.uuid4().hex}"
    Queue(Topic(guarded.with_key("root-secret"), name)).topic.configure(type="queue")
    allowed = {
        key
        for key in ("r", "w", "rw", "rwd", "root")
        if guarded.with_key(f"{key}-secret").post(f"/v0/topics/{name}/{path}", body).status != 403
    }
    expected = {"claim": {"rw", "rwd", "root"}, "redrive": {"rwd", "root"}}
    assert allowed == expected.get(path, {"w", "rw", "rwd", "root"})
    assert guarded.post(f"/v0/topics/{name}/{path}", body).status == 401


@pytest.mark.parametrize(("path", "body"), CALLS)
def test_a_key_with_prefixes_sees_only_its_own_queues(guarded: Api, path: str, body: dict[str, Any]) -> None:
    Topic(guarded.with_key("root-secret"), "other").configure(type="queue")
    assert_error(guarded.with_key("mine-secret").post(f"/v0/topics/other/{path}", body), 403, "forbidden")


# Visibility timeout


def test_a_job_whose_lease_ran_out_is_delivered_again_before_fresh_ones(queue: Queue) -> None:
    queue.topic.fill(3)
    queue.seqs("slow", max=1, lease_ms=SHORT_MS)
    eventually(lambda: queue.counters() == (3, 0, 0))
    jobs = queue.jobs("quick", max=2)
    assert [(job["$seq"], job["deliveries"]) for job in jobs] == [(1, 2), (2, 1)]


def test_an_ack_after_somebody_else_got_the_job_is_skipped(queue: Queue) -> None:
    queue.topic.fill(1)
    queue.seqs("slow", lease_ms=SHORT_MS)
    eventually(lambda: queue.seqs("quick") == [1])
    assert queue.ack(1, node="slow")["skipped"] == [1]
    assert queue.ack(1, node="quick")["acked"] == 1


# Ack


def test_an_ack_deletes_the_job_for_good(queue: Queue) -> None:
    queue.topic.fill(3)
    queue.jobs(max=2)
    reply = queue.ack(1, 2)
    assert set(reply) == {"topic", "acked", "skipped", "ready", "in_flight", "performance"}
    assert (reply["acked"], reply["skipped"], reply["ready"], reply["in_flight"]) == (2, [], 1, 0)
    assert queue.topic.seqs() == [3]
    assert queue.topic.diff().get("tombstone") is None


def test_an_ack_can_be_repeated(queue: Queue) -> None:
    queue.topic.fill(1)
    queue.jobs()
    assert queue.ack(1)["acked"] == 1
    again = queue.ack(1)
    assert (again["acked"], again["skipped"]) == (0, [1])


def test_only_the_holder_can_ack(queue: Queue) -> None:
    queue.topic.fill(2)
    queue.jobs("a", max=1)
    assert queue.ack(1, 2, 77, node="b")["skipped"] == [1, 2, 77]
    assert queue.counters() == (1, 1, 0)


@pytest.mark.parametrize(("config", "waits"), [({}, False), ({"durable": True}, True)])
def test_an_ack_waits_for_the_disk_where_jobs_do(queue: Queue, config: dict[str, Any], waits: bool) -> None:
    queue.topic.configure(**config)
    queue.topic.fill(1)
    queue.jobs()
    assert (queue.ack(1)["performance"]["fsync_ms"] > 0) is waits


SETTLING: list[tuple[str, dict[str, Any]]] = [("ack", {}), ("nack", {}), ("extend", {"lease_ms": 1000})]


@pytest.mark.parametrize(("path", "body"), SETTLING)
@pytest.mark.parametrize(
    "bad",
    [
        {"node": None},
        {"node": ""},
        {"seqs": None},
        {"seqs": []},
        {"seqs": 1},
        {"seqs": ["1"]},
        {"seqs": [-1]},
        {"seqs": [1.0]},
        {"seqs": [1 << 64]},
        {"lease_ids": []},
        {"lease_ids": ["a", "b"]},
        {"lease_ids": [5]},
    ],
)
def test_a_bad_settlement_is_refused_and_changes_nothing(
    queue: Queue, path: str, body: dict[str, Any], bad: dict[str, Any]
) -> None:
    queue.topic.fill(1)
    queue.jobs()
    sent = {"node": "w", "seqs": [1]} | body | bad
    sent = {name: value for name, value in sent.items() if value is not None}
    assert_error(queue.topic.api.post(f"{queue.topic.path}/{path}", sent), 400, "invalid_request")
    assert queue.counters() == (0, 1, 0)


@pytest.mark.parametrize(("path", "body"), SETTLING)
def test_a_stale_token_fences_its_holder(queue: Queue, path: str, body: dict[str, Any]) -> None:
    queue.topic.fill(1)
    stale = [job["lease_id"] for job in queue.jobs()]
    queue.nack(1)
    current = [job["lease_id"] for job in queue.jobs()]
    for tokens, skipped in ((stale, [1]), (["nonsense"], [1]), (current, [])):
        reply = success(queue.post(path, node="w", seqs=[1], lease_ids=tokens, **body))
        assert reply["skipped"] == skipped


# Nack


def test_a_nacked_job_can_be_claimed_at_once(queue: Queue) -> None:
    queue.topic.fill(2)
    queue.jobs()
    reply = queue.nack(1)
    assert set(reply) == {"topic", "nacked", "skipped", "ready", "in_flight", "performance"}
    assert (reply["nacked"], reply["skipped"], reply["ready"], reply["in_flight"]) == (1, [], 1, 1)
    assert [(job["$seq"], job["deliveries"]) for job in queue.jobs("b")] == [(1, 2)]


def test_a_job_nacked_with_a_delay_counts_as_neither(queue: Queue) -> None:
    queue.topic.fill(1)
    queue.jobs()
    reply = queue.nack(1, delay_ms=SHORT_MS)
    assert (reply["ready"], reply["in_flight"], queue.seqs("b")) == (0, 0, [])
    eventually(lambda: queue.seqs("b") == [1])


def test_a_delay_is_clamped(queue: Queue) -> None:
    queue.topic.fill(1)
    queue.jobs()
    assert queue.nack(1, delay_ms=(1 << 64) - 1)["nacked"] == 1


# Extend


def test_an_extension_sets_the_deadline_from_now(queue: Queue) -> None:
    queue.topic.fill(2)
    queue.jobs(lease_ms=60_000)
    before_ms = time.time_ns() // 1_000_000
    reply = queue.extend(1, 9, lease_ms=5_000)
    assert set(reply) == {"topic", "extended", "skipped", "deadlines", "performance"}
    assert (reply["extended"], reply["skipped"], list(reply["deadlines"])) == (1, [9], ["1"])
    assert before_ms + 5_000 <= reply["deadlines"]["1"] <= time.time_ns() // 1_000_000 + 5_000


def test_an_expired_lease_cannot_be_extended(queue: Queue) -> None:
    queue.topic.fill(1)
    queue.jobs(lease_ms=SHORT_MS)
    eventually(lambda: queue.counters() == (1, 0, 0))
    assert queue.extend(1, lease_ms=1_000)["skipped"] == [1]


def test_an_extension_needs_its_time(queue: Queue) -> None:
    assert_error(queue.post("extend", node="w", seqs=[1]), 400, "invalid_request", "lease_ms")


# Sharing


def test_claims_that_come_together_share_the_jobs(queue: Queue) -> None:
    queue.topic.configure(claim_jitter_ms=1_000)
    queue.topic.fill(50)
    counts: list[int] = []
    claimers = [
        threading.Thread(target=lambda n=number: counts.append(len(queue.jobs(f"w{n}", max=10))))
        for number in range(10)
    ]
    for claimer in claimers:
        claimer.start()
    for claimer in claimers:
        claimer.join()
    assert (sum(counts), min(counts), max(counts)) == (50, 5, 5)


def test_a_claim_tells_how_long_it_waited_for_others(queue: Queue) -> None:
    queue.topic.configure(claim_jitter_ms=30)
    assert queue.claim()["performance"]["throttle_wait_ms"] >= 25


# Dead letters


def test_a_job_delivered_too_often_is_moved(new_topic: NewTopic) -> None:
    queue, dead = Queue(new_topic()), new_topic()
    queue.topic.configure(type="queue", max_deliveries=2, dead_letter=dead.name)
    queue.topic.write({"data": {"a": 1.0}, "tag": "t", "meta": {"k": "v"}, "node": "eu"})
    for _ in range(2):
        queue.nack(*queue.seqs())
    assert queue.seqs() == []
    (letter,) = dead.diff(include_tags=True)["records"]
    assert letter["meta"] == {
        "k": "v",
        "$dead_letter_from": queue.topic.name,
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "1",
    }
    assert (letter["data"], letter["$tag"], letter["$node"]) == ({"a": 1.0}, "t", "eu")
    assert (queue.counters(), queue.topic.seqs()) == ((0, 0, 1), [])


@pytest.mark.parametrize("config", [{"max_deliveries": 1}, {"dead_letter": "unused-dead-letters"}])
def test_without_a_limit_or_a_place_jobs_are_delivered_for_ever(queue: Queue, config: dict[str, Any]) -> None:
    queue.topic.configure(**config)
    queue.topic.fill(1)
    for deliveries in range(1, 6):
        (job,) = queue.jobs()
        assert job["deliveries"] == deliveries
        queue.nack(1)


# State, reading and the rest of a topic's life


def test_the_state_and_the_list_have_the_counters_of_a_queue(queue: Queue) -> None:
    queue.topic.fill(3)
    queue.jobs(max=1)
    expected = {"ready": 2, "in_flight": 1, "dead_lettered": 0}
    assert (queue.topic.state()["type"], queue.topic.state()["queue"]) == ("queue", expected)
    (listed,) = success(queue.topic.api.get(f"/v0/topics?prefix={queue.topic.name}"))["topics"]
    assert listed["queue"] == expected


def test_a_log_has_no_counters_of_a_queue(topic: Topic) -> None:
    topic.configure()
    assert "queue" not in topic.state()


def test_metrics_have_the_counters_of_a_queue(queue: Queue) -> None:
    queue.topic.fill(3)
    queue.jobs(max=1)
    text = queue.topic.api.get("/v0/metrics").body.decode()
    name = queue.topic.name
    assert f'topics_topic_queue_ready{{topic="{name}"}} 2\n' in text
    assert f'topics_topic_queue_in_flight{{topic="{name}"}} 1\n' in text
    assert f'topics_topic_queue_dead_lettered{{topic="{name}"}} 0\n' in text


def test_reading_a_queue_takes_no_job(queue: Queue) -> None:
    queue.topic.fill(2)
    queue.jobs(max=1)
    assert queue.topic.seqs() == [1, 2]
    assert queue.counters() == (1, 1, 0)


def test_a_deleted_job_leaves_the_queue(queue: Queue) -> None:
    queue.topic.fill(3)
    queue.jobs(max=2)
    queue.topic.delete_records(before_seq=2)
    assert (queue.counters(), queue.ack(1, 2)["skipped"]) == ((1, 1, 0), [1])


def test_an_evicted_job_leaves_the_queue_and_a_tombstone(queue: Queue) -> None:
    queue.topic.fill(2)
    queue.jobs()
    queue.topic.configure(cap_records=1)
    assert queue.counters() == (0, 1, 0)
    assert queue.topic.diff()["tombstone"]["reason"] == "cap"


def test_a_recreated_queue_begins_anew(queue: Queue) -> None:
    queue.topic.fill(2)
    queue.jobs()
    queue.topic.remove()
    queue.topic.configure(type="queue")
    queue.topic.fill(1)
    assert [(job["$seq"], job["deliveries"]) for job in queue.jobs("b")] == [(1, 1)]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_every_class_can_be_a_queue(topic: Topic, durability: str) -> None:
    topic.configure(type="queue", durability=durability, leases_durable=True)
    queue = Queue(topic)
    topic.fill(2)
    assert (queue.seqs(), queue.ack(1)["acked"], queue.nack(2)["nacked"]) == ([1, 2], 1, 1)


# Extensions


def test_a_job_can_be_produced_for_later(queue: Queue) -> None:
    queue.topic.write({"data": 1, "delay_ms": SHORT_MS}, {"data": 2})
    assert (queue.counters(), queue.seqs()) == ((1, 0, 0), [2])
    eventually(lambda: queue.seqs() == [1])


def test_only_jobs_can_be_produced_for_later(topic: Topic) -> None:
    topic.configure()
    body = {"records": [{"data": 1, "delay_ms": 5}]}
    assert_error(topic.api.post(topic.path, body), 400, "invalid_request", "delay_ms")
    assert topic.seqs() == []


def test_leases_are_listed_page_by_page(queue: Queue) -> None:
    queue.topic.fill(5)
    queue.jobs("a", max=2)
    queue.jobs("b", max=2)
    first = success(queue.topic.api.get(f"{queue.topic.path}/leases?page_size=3"))
    rest = success(queue.topic.api.get(f"{queue.topic.path}/leases?page_size=3&cursor={first['next_cursor']}"))
    leases = first["leases"] + rest["leases"]
    assert [(lease["$seq"], lease["node"]) for lease in leases] == [(1, "a"), (2, "a"), (3, "b"), (4, "b")]
    assert set(leases[0]) == {"$seq", "node", "lease_id", "claimed_ts", "deadline", "deliveries", "pushed"}
    assert "next_cursor" not in rest


def test_a_lease_says_since_when_it_is_held(queue: Queue) -> None:
    queue.topic.fill(1)
    before_ms = time.time_ns() // 1_000_000
    queue.jobs("a", lease_ms=5_000)
    path = f"{queue.topic.path}/leases"
    (lease,) = success(queue.topic.api.get(path))["leases"]
    assert before_ms <= lease["claimed_ts"] == lease["deadline"] - 5_000 <= time.time_ns() // 1_000_000
    success(queue.post("extend", node="a", seqs=[1], lease_ms=60_000))
    (extended,) = success(queue.topic.api.get(path))["leases"]
    assert (extended["claimed_ts"], extended["deadline"] > lease["deadline"]) == (lease["claimed_ts"], True)


def test_dead_letters_can_be_redriven(new_topic: NewTopic) -> None:
    queue, dead = Queue(new_topic()), new_topic()
    queue.topic.configure(type="queue", max_deliveries=1, dead_letter=dead.name)
    queue.topic.write(*({"data": number, "tag": f"t:{number % 2}"} for number in range(4)))
    queue.nack(*queue.seqs())
    assert queue.seqs() == []
    assert success(queue.post("redrive", match="t:1", max=1))["redriven"] == 1
    assert success(queue.post("redrive", match="t:1"))["redriven"] == 1
    reply = success(queue.topic.api.post(f"{queue.topic.path}/redrive"))
    assert (reply["redriven"], reply["dead_letter"]) == (2, dead.name)
    assert sorted((job["data"], job["deliveries"]) for job in queue.jobs()) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert dead.seqs() == []


def test_a_redrive_needs_access_to_the_dead_letters(guarded: Api) -> None:
    queue = Queue(Topic(guarded.with_key("root-secret"), "mine.jobs"))
    queue.topic.configure(type="queue", max_deliveries=1, dead_letter="theirs")
    refused = guarded.with_key("mine-secret").post("/v0/topics/mine.jobs/redrive", {})
    assert_error(refused, 403, "forbidden")
