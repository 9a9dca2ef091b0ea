"""A disk that fails while the server runs: it is told, once and to everybody who asks, and reads go on."""

import resource
import signal
from pathlib import Path

from acceptance.server import Server, read_all
from conformance.client import assert_error, success

WRITTEN_BYTES_MAX = 4096


def test_a_failed_disk_is_logged_once_seen_by_the_probes_and_by_who_started_the_server(tmp_path: Path) -> None:
    server = Server(tmp_path, TOPICS_WAL_SHARDS="1", TOPICS_MIN_FREE_BYTES="0")
    success(server.api.post("/v0/topics/t", {"records": [{"data": 1}], "config": {"durability": "fsync"}}))
    assert success(server.api.get("/v0/ready?writes=1"))["degraded"] is False

    # From here on the system refuses every byte of the log behind this place, and not for want of room.
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (WRITTEN_BYTES_MAX, WRITTEN_BYTES_MAX))
    refused = server.api.post("/v0/topics/t", {"records": [{"data": "." * 2 * WRITTEN_BYTES_MAX}]})
    assert_error(refused, 503, "storage_failed", "File too large")
    for _ in range(5):
        assert_error(server.api.post("/v0/topics/t", {"records": [{"data": 2}]}), 503, "storage_failed")

    ready = success(server.api.get("/v0/ready"))
    assert (ready["status"], ready["degraded"], ready["reason"]["code"]) == ("ready", True, "storage_failed")
    assert "restart the server" in ready["reason"]["message"]
    assert_error(server.api.get("/v0/ready?writes=1"), 503, "storage_failed")
    assert read_all(server.api, "t")[0] == {1: 1}
    assert server.log().count("takes no more writes") == 1

    assert server.exit_code_after(signal.SIGTERM) not in (0, -signal.SIGTERM)
    server = Server(tmp_path, TOPICS_WAL_SHARDS="1")
    assert read_all(server.api, "t")[0] == {1: 1}
    success(server.api.post("/v0/topics/t", {"records": [{"data": "works again"}]}))
    server.stop()
