"""What the OpenAPI document says of each operation besides its types: a tag, a description, an example.

The examples with a target are one story in this order: a test sends them to a server that has a queue `jobs` with
jobs in it, and compares the replies (`tests/acceptance/test_operation_examples.py`).
"""

from typing import Any, NamedTuple

TAGS = {
    "Topics": "A topic is a named log with its own configuration: durability, caps, TTL; or a queue.",
    "Records": "Append, read after a cursor, delete. Loss nobody asked for shows as a tombstone with its exact range.",
    "Cursors, losses, bulk": "How far readers and producers are, what was lost and why, whole ranges at once.",
    "Routers": "A router copies what is written to one topic into another, in order.",
    "Queues": "Jobs are leased to workers: claim, then ack or nack. What fails too often becomes a dead letter.",
    "Live": "Records as they come: event streams over any number of topics, or one WebSocket.",
    "Server": "Health, readiness, metrics, an overview, this document.",
}


class Text(NamedTuple):
    """`target` is a path as it is called; without it there is no example, or none that ends by itself."""

    tag: str
    description: str
    target: str = ""
    request: dict[str, Any] | None = None
    reply: dict[str, Any] | None = None


_ORDERS = "/v0/topics/orders"
_JOBS = "/v0/topics/jobs"
_TOOK = {"server_total_ms": 0.2}
_RECORD = {"$seq": 1, "$ts": 1794977445357, "data": {"order": 7, "total": 30}, "$tag": "customer:42"}
_CURSOR = {"topic": "orders", "name": "billing", "seq": 1, "head_seq": 2, "lag": 1, "updated_ts": 1794977445381}
_ROUTER = {
    "router": "orders-to-audit",
    "source": "orders",
    "dest": "audit",
    "preserve_node": True,
    "preserve_tag": True,
    "filter": ["tag", "Glob", "customer:*"],
    "allow_cycle": False,
    "guarantee": "at_least_once",
}

TEXTS: dict[tuple[str, str], Text] = {
    ("PUT", "/v0/topics/{topic}"): Text(
        "Topics",
        "Only the fields you send change. `durability` decides what a crash may take: `ephemeral`, `memory`, `disk` "
        "(default) or `fsync`.",
        _ORDERS,
        {"durability": "fsync", "cap_records": 1_000_000},
    ),
    ("POST", "/v0/topics/{topic}"): Text(
        "Records",
        "Creates the topic unless `create` is false. All records of a call are appended, or none. A retry with the "
        "same `idempotency_key` returns the seqs of the first call.",
        _ORDERS,
        {
            "records": [
                {"data": {"order": 7, "total": 30}, "tag": "customer:42"},
                {"data": {"order": 8, "total": 12}},
            ],
            "idempotency_key": "import-1",
        },
        {
            "topic": "orders",
            "first_seq": 1,
            "last_seq": 2,
            "seqs": [1, 2],
            "head_seq": 2,
            "count": 2,
            "created": False,
            "deduped": False,
            "performance": _TOOK,
        },
    ),
    ("GET", "/v0/topics"): Text(
        "Topics",
        "A page of topics, sorted by name; `next_cursor`, if there is one, gets the next page.",
        "/v0/topics?prefix=ord",
        None,
        {
            "topics": [
                {
                    "topic": "orders",
                    "head_seq": 2,
                    "earliest_seq": 1,
                    "count": 2,
                    "bytes": 137,
                    "durable": True,
                    "effective_priority": 0,
                    "epoch": 1,
                }
            ],
            "performance": _TOOK,
        },
    ),
    ("GET", "/v0/topics/{topic}"): Text("Topics", "Its configuration, seqs, size and times.", _ORDERS),
    ("POST", "/v0/topics/{topic}/diff"): Text(
        "Records",
        "Keep `next_from_seq` and send it as `from_seq` of the next call. If `tombstone` is not null, the seqs in its "
        "range were lost, and it says why. With `wait_ms` a call that finds nothing waits that long for a record.",
        f"{_ORDERS}/diff",
        {"from_seq": 0, "limit": 100, "include_tags": True, "wait_ms": 10_000},
        {
            "topic": "orders",
            "records": [_RECORD, {"$seq": 2, "$ts": 1794977445357, "data": {"order": 8, "total": 12}}],
            "next_from_seq": 2,
            "head_seq": 2,
            "earliest_seq": 1,
            "caught_up": True,
            "tombstone": None,
            "lag": 0,
            "performance": _TOOK,
        },
    ),
    ("PUT", "/v0/topics/{topic}/cursors/{cursor}"): Text(
        "Cursors, losses, bulk",
        "Kept with the topic, durably. The lag of each cursor is in the metrics.",
        f"{_ORDERS}/cursors/billing",
        {"seq": 1},
        _CURSOR | {"performance": _TOOK},
    ),
    ("GET", "/v0/topics/{topic}/cursors/{cursor}"): Text(
        "Cursors, losses, bulk",
        "Where to go on reading: send `seq` as `from_seq`.",
        f"{_ORDERS}/cursors/billing",
        None,
        _CURSOR | {"performance": _TOOK},
    ),
    ("GET", "/v0/topics/{topic}/cursors"): Text(
        "Cursors, losses, bulk",
        "All named cursors of the topic, each with its lag.",
        f"{_ORDERS}/cursors",
        None,
        {"topic": "orders", "cursors": [_CURSOR], "performance": _TOOK},
    ),
    ("GET", "/v0/topics/{topic}/losses"): Text(
        "Cursors, losses, bulk",
        "Ranges a cap, a TTL or a crash took, newest last. Deletes somebody asked for are not losses.",
        f"{_ORDERS}/losses",
        None,
        {"topic": "orders", "losses": [], "performance": _TOOK},
    ),
    ("GET", "/v0/topics/{topic}/producers/{producer}"): Text(
        "Cursors, losses, bulk",
        "After a crash, a producer that numbers its records asks here where to go on.",
        f"{_ORDERS}/producers/shop",
        None,
        {"topic": "orders", "name": "shop", "next_sequence": 0, "performance": _TOOK},
    ),
    ("GET", "/v0/topics/{topic}/export"): Text(
        "Cursors, losses, bulk",
        "`Accept` chooses the format. The last line, or the trailer, says how far it got and what was lost.",
    ),
    ("PUT", "/v0/routers/{router}"): Text(
        "Routers",
        "Copies begin with what is written from now on. The filter, if there is one, is on tags.",
        "/v0/routers/orders-to-audit",
        {"source": "orders", "dest": "audit", "filter": ["tag", "Glob", "customer:*"]},
        _ROUTER | {"created": True, "performance": _TOOK},
    ),
    ("GET", "/v0/routers/{router}"): Text(
        "Routers",
        "Also says how much it has copied, and how far behind it is.",
        "/v0/routers/orders-to-audit",
        None,
        _ROUTER | {"forwarded_total": 0, "lag": 0, "performance": _TOOK},
    ),
    ("GET", "/v0/routers"): Text(
        "Routers", "A page of routers, sorted by name; `source` and `dest` select.", "/v0/routers?source=orders"
    ),
    ("POST", "/v0/watch"): Text(
        "Live",
        "Then open `stream_url` with an EventSource. A session outlives its connections by five minutes.",
        "/v0/watch",
        {"topics": {"orders": {"from_seq": 0}, "audit": {"tail": True}}},
        {
            "wid": "wid_4SOsqzBl2f1U8FYLp-RoHw",
            "stream_url": "/v0/watch/wid_4SOsqzBl2f1U8FYLp-RoHw",
            "session_ttl_ms": 300_000,
            "topics": {
                "orders": {"from_seq": 0, "head_seq": 2, "earliest_seq": 1},
                "audit": {"from_seq": 0, "head_seq": 0, "earliest_seq": 1},
            },
            "performance": _TOOK,
        },
    ),
    ("GET", "/v0/watch/{wid}"): Text(
        "Live",
        "Events are `record`, `tombstone`, `caught-up`, `topic-deleted` and `error`. The id of each is where to go on "
        "from; an EventSource sends the last one by itself when it connects again.",
    ),
    ("GET", "/v0/ws"): Text(
        "Live", "Commands and events are JSON text messages: subscribe, publish, unsubscribe, ping."
    ),
    ("POST", "/v0/topics/{topic}/claim"): Text(
        "Queues",
        "A job is yours until `deadline`. If it is not acked by then, somebody else gets it.",
        f"{_JOBS}/claim",
        {"node": "worker-1", "max": 2},
        {
            "topic": "jobs",
            "claimed": [
                {
                    "$seq": 1,
                    "lease_id": "lease_1a1ecfe365a00000000001",
                    "deadline": 1794977475466,
                    "deliveries": 1,
                    "$ts": 1794977445458,
                    "data": {"resize": "cat.jpg"},
                }
            ],
            "count": 1,
            "ready": 0,
            "performance": _TOOK,
        },
    ),
    ("POST", "/v0/topics/{topic}/extend"): Text(
        "Queues",
        "For a job that takes longer than its lease.",
        f"{_JOBS}/extend",
        {"node": "worker-1", "seqs": [1], "lease_ms": 60_000},
        {"topic": "jobs", "extended": 1, "skipped": [], "deadlines": {"1": 1794977505468}, "performance": _TOOK},
    ),
    ("GET", "/v0/topics/{topic}/leases"): Text("Queues", "In the order of their seqs.", f"{_JOBS}/leases"),
    ("POST", "/v0/topics/{topic}/ack"): Text(
        "Queues",
        "Deletes the jobs. Those that are no longer yours are in `skipped`.",
        f"{_JOBS}/ack",
        {"node": "worker-1", "seqs": [1]},
        {"topic": "jobs", "acked": 1, "skipped": [], "ready": 0, "in_flight": 0, "performance": _TOOK},
    ),
    ("POST", "/v0/topics/{topic}/nack"): Text(
        "Queues",
        "Gives jobs back for another try, after `delay_ms` if given. After `max_deliveries` tries a job "
        "becomes a dead letter.",
        f"{_JOBS}/nack",
        {"node": "worker-1", "seqs": [1], "delay_ms": 1000},
    ),
    ("GET", "/v0/topics/{topic}/work"): Text(
        "Queues", "Jobs come as events, at most `max` at a time; ack and nack them as claimed ones."
    ),
    ("POST", "/v0/topics/{topic}/redrive"): Text(
        "Queues",
        "Once the cause is fixed, call it on the queue, not on its dead-letter topic.",
        f"{_JOBS}/redrive",
        {},
    ),
    ("POST", "/v0/topics/{topic}/delete/preview"): Text(
        "Records",
        "Changes nothing.",
        f"{_ORDERS}/delete/preview",
        {"match": ["tag", "Eq", "customer:42"]},
        {
            "topic": "orders",
            "count": 1,
            "bytes": 74,
            "first_seq": 1,
            "last_seq": 1,
            "sample": [_RECORD],
            "performance": _TOOK,
        },
    ),
    ("POST", "/v0/topics/{topic}/delete"): Text(
        "Records",
        "Silent for readers: a delete leaves no tombstone. Seqs are never used again.",
        f"{_ORDERS}/delete",
        {"match": ["tag", "Eq", "customer:42"]},
        {
            "topic": "orders",
            "deleted": 1,
            "earliest_seq": 2,
            "head_seq": 2,
            "count": 1,
            "bytes": 63,
            "performance": _TOOK,
        },
    ),
    ("GET", "/v0/topics/{topic}/map"): Text("Server", "What the console draws.", f"{_ORDERS}/map"),
    ("GET", "/v0/overview"): Text("Server", "What `topics top` and the console show.", "/v0/overview"),
    ("GET", "/v0/key"): Text(
        "Server",
        "Without keys, everybody may do everything.",
        "/v0/key",
        None,
        {"required": False, "scopes": ["read", "write", "delete", "admin"], "prefixes": [], "performance": _TOOK},
    ),
    ("GET", "/v0/health"): Text("Server", "The process answers. Needs no key by default.", "/v0/health"),
    ("GET", "/healthz"): Text("Server", "As /v0/health.", "/healthz"),
    ("GET", "/v0/ready"): Text("Server", "503 while the log is replayed, and while the server stops.", "/v0/ready"),
    ("GET", "/readyz"): Text("Server", "As /v0/ready.", "/readyz"),
    ("GET", "/v0/metrics"): Text("Server", "Shows only topics within the key's prefixes.", "/v0/metrics"),
    ("GET", "/v0/openapi.json"): Text("Server", "Also readable as a page: /docs.", "/v0/openapi.json"),
    ("DELETE", "/v0/topics/{topic}/cursors/{cursor}"): Text(
        "Cursors, losses, bulk",
        "The topic stays as it is.",
        f"{_ORDERS}/cursors/billing",
        None,
        {"topic": "orders", "name": "billing", "deleted": True, "performance": _TOOK},
    ),
    ("DELETE", "/v0/routers/{router}"): Text(
        "Routers",
        "Copies that were made stay.",
        "/v0/routers/orders-to-audit",
        None,
        {"router": "orders-to-audit", "deleted": True, "performance": _TOOK},
    ),
    ("DELETE", "/v0/topics/{topic}"): Text(
        "Topics",
        "Its routers go with it. A topic made later under the same name begins at seq 1 with another `epoch`.",
        _ORDERS,
        None,
        {"topic": "orders", "deleted": True, "routers_removed": [], "performance": _TOOK},
    ),
}
