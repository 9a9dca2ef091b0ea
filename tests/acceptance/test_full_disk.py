"""A disk without room: writes fail loudly, reads go on, and nothing acknowledged is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.server import Server, read_all
from acceptance.small_disk import mounted_disk
from conformance.client import Api, Reply, assert_error, success

DISK_BYTES = 288 << 20
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


def metric(api: Api, name: str) -> str:
    lines = api.get("/v0/metrics").body.decode().splitlines()
    return next(line.partition(" ")[2] for line in lines if line.startswith(name + " "))


def test_a_full_disk_refuses_writes_serves_reads_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    settings = {"TOPICS_DATA_DIR": str(small_disk / "data"), "TOPICS_WAL_SHARDS": "1"}
    server = Server(tmp_path, **settings)
    acked: dict[str, list[int]] = {"fsync": [], "disk": []}
    for topic in acked:
        success(server.api.put(f"/v0/topics/{topic}", {"durability": topic}))
    assert metric(server.api, "topics_wal_read_only") == "0"
    fill(small_disk / "filler")

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
    assert_error(refusal, 503, "storage_failed", "No space left")

    # It stays that way, nothing is half done, and readers do not notice.
    heads = {topic: server.api.get(f"/v0/topics/{topic}").json["head_seq"] for topic in acked}
    for topic, seqs in acked.items():
        again = server.api.post(f"/v0/topics/{topic}", {"records": [{"data": 0}]})
        assert_error(again, 503, "storage_failed", "No space left")
        assert_error(server.api.put(f"/v0/topics/{topic}", {"cap_records": 1}), 503, "storage_failed")
        assert heads[topic] == server.api.get(f"/v0/topics/{topic}").json["head_seq"]
        assert seqs == sorted(seqs)
        assert set(seqs) <= read_all(server.api, topic)[0].keys()
    assert metric(server.api, "topics_wal_read_only") == "1"

    (small_disk / "filler").unlink()
    server.stop()
    server = Server(tmp_path, **settings)
    for topic, seqs in acked.items():
        records, lost, _ = read_all(server.api, topic)
        if topic == "fsync":
            assert not lost
            assert list(records) == seqs
        assert set(seqs) <= records.keys() | lost
        success(server.api.post(f"/v0/topics/{topic}", {"records": [{"data": "works again"}]}))
    server.stop()
