"""Data directories of released versions, which scripts/keep_format.py made: this version starts on each of them."""

import json
import struct
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from conformance.process import output_of_refused_start
from topics.client.sync_client import Client
from topics.testing.running_server import RunningServer, server
from topics.version import VERSION

RELEASED = Path(__file__).parents[1] / "released"
SCRIPTS = Path(__file__).parents[2] / "scripts"
VERSIONS = sorted(path.name.removesuffix(".tar.gz") for path in RELEASED.glob("*.tar.gz"))
TIMEOUT_S = 60.0


def unpacked(version: str, directory: Path) -> Path:
    with tarfile.open(RELEASED / f"{version}.tar.gz") as tar:
        tar.extractall(directory, filter="data")
    return directory / "data"


def seen(client: Client, name: str) -> dict[str, Any]:
    records: list[Any] = []
    from_seq, tombstones = 0, []
    while True:
        reply = client.request("POST", f"/v0/topics/{name}/diff", {"from_seq": from_seq, "include_tags": True})
        for each in reply["records"]:
            row = [each.get(field) for field in ("$seq", "$ts", "data", "$tag", "$node", "meta")]
            records.append(row)
        if reply["tombstone"] is not None:
            tombstones.append({field: reply["tombstone"][field] for field in ("gap_from", "gap_to", "reason")})
        if reply["next_from_seq"] >= reply["head_seq"]:
            break
        from_seq = reply["next_from_seq"]
    state = client.request("GET", f"/v0/topics/{name}?touch=false")
    cursors = client.request("GET", f"/v0/topics/{name}/cursors")["cursors"]
    return {
        "records": records,
        "tombstones": tombstones,
        "head_seq": state["head_seq"],
        "config": state["config"],
        "cursors": {cursor["name"]: cursor["seq"] for cursor in cursors},
    }


def test_the_format_of_this_version_is_kept() -> None:
    assert VERSION in VERSIONS, "run scripts/keep_format.py"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_directory_of_a_released_version_is_whole_and_goes_on(version: str, tmp_path: Path) -> None:
    expected = json.loads((RELEASED / f"{version}.json").read_text())
    unpacked(version, tmp_path)
    running = RunningServer(tmp_path, {})
    try:
        for _ in range(2):  # the second time from what this version wrote
            with running.client() as client:
                for name, was in expected.items():
                    now = seen(client, name)
                    # A field that came later has its default.
                    now["config"] = {field: value for field, value in now["config"].items() if field in was["config"]}
                    assert now == was, name
            running.stop()
            running.start()
        with running.client() as client:
            head_seq = expected["orders"]["head_seq"]
            assert client.append("orders", {"new": True}).first_seq == head_seq + 1
    finally:
        running.stop()
    verify = [sys.executable, "-m", "topics.cli.main", "verify", str(running.data_directory)]
    assert subprocess.run(verify, check=False, capture_output=True, timeout=TIMEOUT_S).returncode == 0


def test_a_directory_of_a_later_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    newest = max((unpacked(VERSION, tmp_path) / "meta").glob("*.bin"))
    content = bytearray(newest.read_bytes())
    struct.pack_into("<I", content, 8, 99)
    newest.write_bytes(content)
    *_, said = output_of_refused_start(tmp_path, {}).splitlines()
    assert said == (
        f"topics: {newest} has a format this version of topics does not know (snapshot format 99): "
        "start the version that wrote it"
    )


def test_topics_are_moved_from_one_server_to_another_with_their_cursors_and_routers(tmp_path: Path) -> None:
    with server() as old, server() as new, old.client() as there, new.client() as here:
        there.create("orders", cap_records=1500, durability="fsync")
        for start in range(0, 2400, 1200):
            there.append_many("orders", [{"n": start + n} for n in range(1200)])
        there.delete("orders", before_seq=1000)
        there.set_cursor("orders", "billing", 2100)
        there.create("copies")
        there.put_router("orders->copies", "orders", "copies")
        command = [sys.executable, str(SCRIPTS / "move_topics.py"), old.url, new.url]
        moved = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert (moved.returncode, moved.stderr) == (0, "")
        assert "orders: 1401 records" in moved.stdout
        assert [bytes(each.data) for each in here.export("orders")] == [
            bytes(each.data) for each in there.export("orders")
        ]
        after = [next(client.export("orders", client.cursor("orders", "billing").seq)) for client in (there, here)]
        assert bytes(after[0].data) == bytes(after[1].data) == b'{"n":2100}'
        assert here.topic("orders").config == there.topic("orders").config
        assert here.router("orders->copies").dest == "copies"
        again = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert (again.returncode, "delete it there" in again.stderr) == (1, True)
