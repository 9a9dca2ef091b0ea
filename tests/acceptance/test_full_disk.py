"""A disk without room: writes are refused before anything fails, reads, deletes and acks go on, nothing acknowledged is
lost, and writing resumes by itself."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.server import Server, read_all
from acceptance.small_disk import mounted_disk
from conformance.client import Api, Reply, assert_error, success

DISK_BYTES = 160 << 20
RESERVE_BYTES = 64 << 20
PAYLOAD = "." * 1_000_000
WRITES_MAX = 100


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", DISK_BYTES) as directory:
        yield directory


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError:
            return


def sizes(directory: Path) -> list[str]:
    return [f"{path.stat().st_size:>10} {path}" for path in sorted(directory.rglob("*")) if path.is_file()]


def metric(api: Api, name: str) -> str:
    lines = api.get("/v0/metrics").body.decode().splitlines()
    return next(line.partition(" ")[2] for line in lines if line.startswith(name + " "))


def test_a_disk_that_fills_up_refuses_writes_before_anything_fails_and_goes_on_by_itself(
    tmp_path: Path, small_disk: Path
) -> None:
    settings = {
        "TOPICS_DATA_DIR": str(small_disk / "data"),
        "TOPICS_WAL_SHARDS": "1",
        "TOPICS_MIN_FREE_BYTES": str(RESERVE_BYTES),
        "TOPICS_SEGMENT_MAX_EVENTS": "4",  # deletes give back whole files
    }
    server = Server(tmp_path, **settings)
    acked: dict[str, list[int]] = {"fsync": [], "disk": []}
    for topic in acked:
        success(server.api.put(f"/v0/topics/{topic}", {"durability": topic}))
    success(server.api.put("/v0/topics/jobs", {"durability": "fsync", "type": "queue"}))
    success(server.api.post("/v0/topics/jobs", {"records": [{"data": 1}, {"data": 2}]}))

    # Until there is no room: nothing fails, and the refusal says when to come again.
    refusal: Reply | None = None
    for number in range(WRITES_MAX):
        topic = ("fsync", "disk")[number % 2]
        reply = server.api.post(f"/v0/topics/{topic}", {"records": [{"data": [number, PAYLOAD]}]})
        if reply.status != 200:
            refusal = reply
            break
        acked[topic] += reply.json["seqs"]
    assert refusal is not None, "the disk was never full"
    assert min(map(len, acked.values())) > 5
    assert_error(refusal, 503, "storage_full", "kept free")
    assert int(refusal.headers["retry-after"]) > 0
    assert metric(server.api, "topics_wal_read_only") == "0"

    # Reads, deletes and acks go on; a balancer that asks for writes is told.
    ready = success(server.api.get("/v0/ready"))
    assert (ready["status"], ready["degraded"], ready["reason"]["code"]) == ("ready", True, "storage_full")
    assert_error(server.api.get("/v0/ready?writes=1"), 503, "storage_full")
    for topic, seqs in acked.items():
        assert set(seqs) <= read_all(server.api, topic)[0].keys()
    claimed = success(server.api.post("/v0/topics/jobs/claim", {"node": "w", "max": 2}))
    seqs = [job["$seq"] for job in claimed["claimed"]]
    success(server.api.post("/v0/topics/jobs/ack", {"node": "w", "seqs": seqs}))
    keep = {topic: seqs[-1] for topic, seqs in acked.items()}
    for topic, seq in keep.items():
        success(server.api.post(f"/v0/topics/{topic}/delete", {"before_seq": seq}))

    # The deletes make room, or somebody does; then writing goes on without a restart.
    deadline = 30
    for _ in range(deadline):
        reply = server.api.post("/v0/topics/fsync", {"records": [{"data": "works again"}]})
        if reply.status == 200:
            break
        assert_error(reply, 503, "storage_full")
        time.sleep(1)
    assert reply.status == 200, "\n".join(["writing never went on", *sizes(small_disk), server.log()[-2000:]])
    assert not success(server.api.get("/v0/ready?writes=1"))["degraded"]
    server.stop()

    server = Server(tmp_path, **settings)
    for topic, seq in keep.items():
        records, lost, _ = read_all(server.api, topic)
        assert not lost
        assert min(records) == seq
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
    for _ in range(30):
        reply = server.api.post("/v0/topics/t", {"records": [{"data": "works again"}]})
        if reply.status == 200:
            break
        assert_error(reply, 503, "storage_full")
        time.sleep(0.2)
    acked += success(reply)["seqs"]
    server.stop()
    server = Server(tmp_path, **settings)
    records, lost, _ = read_all(server.api, "t")
    assert (sorted(records), lost) == (acked, set())
    server.stop()
