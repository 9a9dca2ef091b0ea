"""Keeps a data directory of this version, for tests/acceptance/test_released_formats.py. Run once a release.

    python scripts/keep_format.py            # writes tests/released/VERSION.tar.gz and VERSION.json

The directory has increments of a snapshot, sealed segments with and without deletes, and in two shards a log that was
cut by SIGKILL after the last acknowledged write. Everything is of class fsync, so that all of it has to be there again
on any machine. The JSON is what readers saw before the kill.
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from topics.client.calls import NewRecord
from topics.client.sync_client import Client
from topics.testing.running_server import RunningServer
from topics.version import VERSION

KEPT = Path(__file__).parents[1] / "tests" / "released"
SETTINGS = {"TOPICS_SEGMENT_MAX_EVENTS": "20", "TOPICS_WAL_SHARDS": "2"}


def main() -> int:
    KEPT.mkdir(exist_ok=True)
    archive = KEPT / f"{VERSION}.tar.gz"
    if archive.exists():
        print(f"{archive} is there already: a format that was released is never made again", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        server = RunningServer(Path(directory), SETTINGS)
        try:
            with server.client() as client:
                fill(client)
            server.stop()
            server.start()
            with server.client() as client:
                go_on(client)
                seen = what_readers_see(client)
        finally:
            server.kill()
        (server.data_directory / "LOCK").unlink()
        for log in server.data_directory.glob("wal/*/*.log"):
            log.write_bytes(log.read_bytes().rstrip(b"\0"))  # space that was set aside
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(server.data_directory, "data", filter=_nobody)
    (KEPT / f"{VERSION}.json").write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")
    print(f"{archive}: {archive.stat().st_size} bytes")
    return 0


def _nobody(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def fill(client: Client) -> None:
    client.create("orders", durability="fsync")
    client.append_many("orders", [NewRecord({"n": n}, f"c:{n % 3}", "eu", {"h": str(n)}) for n in range(70)])
    client.delete("orders", match=("tag", "Eq", "c:1"))
    client.set_cursor("orders", "billing", 30)
    client.create("capped", durability="fsync", cap_records=10)
    client.append_many("capped", [{"n": n, "text": "Grüße, 🌍"} for n in range(45)])
    client.create("copies", durability="fsync")
    client.put_router("orders->copies", "orders", "copies", filter=("tag", "Eq", "c:2"))
    client.create("jobs", type="queue", durability="fsync", leases_durable=True, max_deliveries=2, dead_letter="dead")
    client.create("dead", type="queue", durability="fsync")
    client.append_many("jobs", [{"job": n} for n in range(6)])
    client.ack("jobs", [job.seq for job in client.claim("jobs", node="w", max=2).claimed], node="w")


def go_on(client: Client) -> None:
    """What is in the log only."""
    client.append_many("orders", [NewRecord({"n": n}, "c:2", None, None) for n in range(100, 105)])
    client.delete("orders", before_seq=3)
    client.append_many("capped", [{"n": 99}])
    client.set_cursor("orders", "audit", 71)
    client.claim("jobs", node="holder", max=1, lease_ms=3_600_000)
    client.create("late", durability="fsync")
    client.append("late", {"late": True})


def what_readers_see(client: Client) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for summary in client.topics():
        name = summary.topic
        records = client.export(name)
        rows: list[Any] = []
        while True:
            try:
                each = next(records)
            except StopIteration as end:
                tombstones = msgspec.to_builtins(end.value.tombstones)
                break
            rows.append(
                [each.seq, each.ts, msgspec.json.decode(each.data), each.tag, each.node, msgspec.json.decode(each.meta)]
            )
        seen[name] = {
            "records": rows,
            "tombstones": tombstones,
            "head_seq": client.topic(name).head_seq,
            "config": msgspec.to_builtins(client.topic(name).config),
            "cursors": {cursor.name: cursor.seq for cursor in client.cursors(name).cursors},
        }
    return seen


if __name__ == "__main__":
    sys.exit(main())
