"""A disk without room: writes are refused before anything fails, reads, deletes and acks go on, nothing acknowledged is
lost, and writing resumes by itself."""

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from acceptance.server import Server, read_all
from acceptance.small_disk import mounted_disk
from conformance.client import DEADLINE_S, Api, assert_error, eventually, success

DISK_BYTES = 160 << 20
RESERVE_BYTES = 64 << 20
PAYLOAD = "." * 1_000_000
WRITES_MAX = 100
SETTINGS = {
    "TOPICS_WAL_SHARDS": "1",
    "TOPICS_MIN_FREE_BYTES": str(RESERVE_BYTES),
    "TOPICS_SEGMENT_MAX_EVENTS": "4",  # deletes give back whole files
}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", DISK_BYTES) as directory:
        yield directory


def fill(path: Path, leave_bytes: int = 0) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while shutil.disk_usage(path.parent).free > leave_bytes:
            file.write(bytes(1 << 20))


def sizes(directory: Path) -> list[str]:
    return [f"{path.stat().st_size:>10} {path}" for path in sorted(directory.rglob("*")) if path.is_file()]


def metric(api: Api, name: str) -> str:
    lines = api.get("/v0/metrics").body.decode().splitlines()
    return next(line.partition(" ")[2] for line in lines if line.startswith(name + " "))


def segment_bytes(disk: Path) -> int:
    return sum(path.stat().st_size for path in disk.rglob("*.data"))


def write_again(server: Server, disk: Path, topic: str) -> list[int]:
    """Writes as soon as it is taken, which it has to be by itself."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        reply = server.api.post(f"/v0/topics/{topic}", {"records": [{"data": "works again"}]})
        if reply.status == 200:
            seqs: list[int] = reply.json["seqs"]
            return seqs
        assert_error(reply, 503, "storage_full")
        files = "\n".join([*sizes(disk), server.log()[-2000:]])
        assert time.monotonic() < deadline, f"writing never went on:\n{files}"
        time.sleep(0.2)


def test_a_disk_that_fills_up_refuses_writes_before_anything_fails_and_goes_on_by_itself(
    tmp_path: Path, small_disk: Path
) -> None:
    settings = SETTINGS | {"TOPICS_DATA_DIR": str(small_disk / "data")}
    server = Server(tmp_path, **settings)
    acked: dict[str, list[int]] = {"fsync": [], "disk": []}
    for topic in acked:
        success(server.api.put(f"/v0/topics/{topic}", {"durability": topic}))

    # Until there is no room, and on: what is refused is refused for this reason, and nothing ever fails.
    refused = 0
    for number in range(WRITES_MAX):
        topic = ("fsync", "disk")[number % 2]
        reply = server.api.post(f"/v0/topics/{topic}", {"records": [{"data": [number, PAYLOAD]}]})
        if reply.status == 200:
            acked[topic] += reply.json["seqs"]
            continue
        assert_error(reply, 503, "storage_full")
        assert int(reply.headers["retry-after"]) > 0
        refused += 1
        time.sleep(0.05)
    assert refused > 5, "the disk was never full"
    assert min(map(len, acked.values())) > 5
    assert metric(server.api, "topics_wal_read_only") == "0"
    assert metric(server.api, "topics_checkpoint_failures_total") == "0"
    assert "No space left" not in server.log()
    for topic, seqs in acked.items():
        assert set(seqs) <= read_all(server.api, topic)[0].keys()

    # Deletes make room; then writing goes on without a restart.
    keep = {topic: seqs[-1] for topic, seqs in acked.items()}
    for topic, seq in keep.items():
        success(server.api.post(f"/v0/topics/{topic}/delete", {"before_seq": seq}))
    for topic in acked:
        write_again(server, small_disk, topic)
    server.stop()

    server = Server(tmp_path, **settings)
    for topic, seq in keep.items():
        records, lost, _ = read_all(server.api, topic)
        assert not lost
        assert min(records) == seq
    server.stop()


def test_while_there_is_no_room_reads_deletes_and_acks_go_on_and_the_probes_tell(
    tmp_path: Path, small_disk: Path
) -> None:
    server = Server(tmp_path, **SETTINGS, TOPICS_DATA_DIR=str(small_disk / "data"))
    success(server.api.put("/v0/topics/t", {"durability": "fsync"}))
    success(server.api.put("/v0/topics/jobs", {"durability": "fsync", "type": "queue"}))
    success(server.api.post("/v0/topics/jobs", {"records": [{"data": 1}, {"data": 2}]}))
    for number in range(13):
        success(server.api.post("/v0/topics/t", {"records": [{"data": [number, PAYLOAD]}]}))
    eventually(lambda: segment_bytes(small_disk) > 11_000_000)
    assert not success(server.api.get("/v0/ready?writes=1"))["degraded"]

    # Less than the deletes will give back.
    fill(small_disk / "filler", leave_bytes=RESERVE_BYTES - 5_000_000)
    eventually(lambda: server.api.get("/v0/ready?writes=1").status == 503)
    ready = success(server.api.get("/v0/ready"))
    assert (ready["status"], ready["degraded"], ready["reason"]["code"]) == ("ready", True, "storage_full")
    refused = server.api.post("/v0/topics/t", {"records": [{"data": 0}]})
    assert_error(refused, 503, "storage_full", "kept free")
    assert_error(server.api.put("/v0/topics/new", {}), 503, "storage_full")
    assert len(read_all(server.api, "t")[0]) == 13
    claimed = success(server.api.post("/v0/topics/jobs/claim", {"node": "w", "max": 2}))
    seqs = [job["$seq"] for job in claimed["claimed"]]
    success(server.api.post("/v0/topics/jobs/ack", {"node": "w", "seqs": seqs}))
    success(server.api.post("/v0/topics/t/delete", {"before_seq": 13}))
    assert write_again(server, small_disk, "t") == [14]
    assert list(read_all(server.api, "t")[0]) == [13, 14]
    server.stop()


def test_a_disk_that_somebody_else_fills_makes_writes_wait_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    settings = {
        "TOPICS_DATA_DIR": str(small_disk / "data"),
        "TOPICS_WAL_SHARDS": "1",
        "TOPICS_MIN_FREE_BYTES": "0",
    }
    server = Server(tmp_path, **settings)
    success(server.api.put("/v0/topics/t", {"durability": "disk"}))
    fill(small_disk / "filler")
    acked: list[int] = []
    for number in range(WRITES_MAX):
        reply = server.api.post("/v0/topics/t", {"records": [{"data": [number, PAYLOAD]}]})
        if reply.status != 200:
            assert_error(reply, 503, "storage_full")
            break
        acked += reply.json["seqs"]
    else:
        pytest.fail("the disk was never full")
    assert set(acked) <= read_all(server.api, "t")[0].keys()
    (small_disk / "filler").unlink()
    acked += write_again(server, small_disk, "t")
    server.stop()
    server = Server(tmp_path, **settings)
    records, lost, _ = read_all(server.api, "t")
    assert (sorted(records), lost) == (acked, set())
    server.stop()
