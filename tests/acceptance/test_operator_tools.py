"""The operator's commands against a real server process: verify, inspect, backup while it is written to, restore."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conformance.client import Api, Topic, eventually
from conformance.process import ServerProcess
from conformance.queue import Queue

COMMAND_TIMEOUT_S = 60.0
WRITERS = 3
BATCH = 5
SETTINGS = {"TOPICS_SEGMENT_MAX_EVENTS": "50", "TOPICS_HOT_RETAIN_SEGMENTS": "1", "TOPICS_WAL_SHARDS": "2"}


def topics(*words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    return subprocess.run(
        [sys.executable, "-m", "topics.cli.main", *map(str, words)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
        text=True,
    )


def succeeded(*words: str | Path) -> str:
    finished = topics(*words)
    assert finished.returncode == 0, (finished.stdout, finished.stderr)
    return finished.stdout


@contextlib.contextmanager
def server_in(directory: Path, **settings: str) -> Iterator[ServerProcess]:
    directory.mkdir(exist_ok=True)
    process = ServerProcess(directory, settings)
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a server that was stopped in order; tests copy it before they harm it."""
    directory = tmp_path_factory.mktemp("stopped")
    with server_in(directory, **SETTINGS) as process:
        orders = Topic(process.api, "orders")
        orders.configure(durability="fsync")
        for _ in range(3):
            orders.write(*({"data": {"n": number}, "tag": f"t:{number % 2}"} for number in range(50)))
        orders.delete_records(match="t:1", before_seq=51)
        eventually(lambda: len(list(directory.glob("data/topics/*/*.tags"))) == 3)
    return directory / "data"


def a_copy(data: Path, tmp_path: Path) -> Path:
    succeeded("restore", data, tmp_path / "copy")
    return tmp_path / "copy"


def test_verify_reports_a_stopped_directory_as_sound(stopped: Path) -> None:
    output = succeeded("verify", stopped)
    words = next(line for line in output.splitlines() if line.startswith("orders")).split()
    assert words == ["orders", "125", "25", "0", "0", "3", "0"]
    assert "sound" in output.splitlines()[-1]


def test_verify_is_refused_while_a_server_runs(tmp_path: Path) -> None:
    with server_in(tmp_path / "server"):
        finished = topics("verify", tmp_path / "server" / "data")
    assert finished.returncode == 2
    assert "in use" in finished.stderr


def test_verify_names_the_file_and_offset_of_a_flipped_byte(stopped: Path, tmp_path: Path) -> None:
    data = a_copy(stopped, tmp_path)
    segment = next(data.glob("topics/*/seg-0000000000000051.data"))
    content = bytearray(segment.read_bytes())
    content[40] ^= 1
    segment.write_bytes(content)
    finished = topics("verify", data)
    assert finished.returncode == 1
    assert f"problem: {segment} at byte 0: a frame whose checksum does not match" in finished.stdout
    report = json.loads(topics("verify", data, "--json").stdout)
    assert (report["sound"], report["problems"][0]["file"]) == (False, str(segment))
    assert report["topics"][0]["problems"] == 1


def test_verify_cannot_check_what_is_not_there(tmp_path: Path) -> None:
    finished = topics("verify", tmp_path / "nowhere")
    assert finished.returncode == 2
    assert "is not a data directory" in finished.stderr


def test_inspect_dumps_every_kind_of_file(stopped: Path) -> None:
    for pattern, expected in (
        ("topics/*/*1.data", "seq=1 "),
        ("topics/*/*1.idx", "data_offset=0"),
        ("topics/*/*1.tags", "tag='t:0'"),
        ("meta/increment.*.bin", "name=orders"),
        ("wal/*/*.log", "first_lsn"),
    ):
        found = sorted(stopped.glob(pattern))
        dumps = [succeeded("inspect", path) for path in (found if "meta" in pattern else found[:1])]
        assert any(expected in dump for dump in dumps), pattern


def test_inspect_begins_and_ends_where_it_is_told(stopped: Path) -> None:
    path = next(stopped.glob("topics/*/seg-0000000000000051.data"))
    lines = succeeded("inspect", path, "--from-seq", "60", "--limit", "3", "--json").splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [60, 61, 62]


def test_backup_and_restore_refuse_a_directory_that_is_not_empty(stopped: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    for words in (("backup", tmp_path, "--data", stopped), ("restore", stopped, tmp_path)):
        finished = topics(*words)
        assert finished.returncode == 2
        assert "not empty" in finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


class Load:
    """Writers and a deleter that go on until told to stop, and what they were told was done."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._stop = threading.Event()
        self.failures: list[BaseException] = []
        self.sent: dict[str, dict[int, Any]] = {f"load-{number}": {} for number in range(WRITERS)}
        self.deleted: dict[str, set[int]] = {topic: set() for topic in self.sent}
        self._threads = [threading.Thread(target=self._guarded, args=(topic,)) for topic in self.sent]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def acknowledged(self) -> tuple[dict[str, dict[int, Any]], dict[str, set[int]]]:
        """Everything acknowledged by now: records by seq, and deleted seqs."""
        # Deletes first: one of them may only name what is in the records read after it.
        deleted = {topic: set(seqs) for topic, seqs in self.deleted.items()}
        return {topic: dict(records) for topic, records in self.sent.items()}, deleted

    def has_sent(self, count: int) -> bool:
        return bool(self.failures) or all(len(records) >= count for records in self.sent.values())

    def _guarded(self, topic: str) -> None:
        try:
            self._run(topic)
        except BaseException as error:
            self.failures.append(error)

    def _run(self, topic: str) -> None:
        with contextlib.closing(http.client.HTTPConnection(self._api.host, self._api.port, timeout=30)) as connection:
            turn = 0
            while not self._stop.is_set():
                turn += 1
                records = [{"data": f"{topic}/{turn}/{at}", "tag": f"turn:{turn}:{at}"} for at in range(BATCH)]
                reply = _call(connection, f"/v0/topics/{topic}", {"records": records})
                first = reply["first_seq"]
                self.sent[topic] |= {first + at: record["data"] for at, record in enumerate(records)}
                if turn % 3 == 0:
                    _call(connection, f"/v0/topics/{topic}/delete", {"match": f"turn:{turn - 2}:1"})
                    self.deleted[topic].add(first - 2 * BATCH + 1)


def _call(connection: http.client.HTTPConnection, path: str, body: object) -> dict[str, Any]:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content
    reply: dict[str, Any] = json.loads(content)
    return reply


def records_of(topic: Topic) -> dict[int, Any]:
    records: dict[int, Any] = {}
    from_seq = 0
    while True:
        reply = topic.diff(from_seq=from_seq, limit=1000)
        assert not reply.get("tombstone"), reply
        records |= {record["$seq"]: record["data"] for record in reply["records"]}
        from_seq = reply["next_from_seq"]
        if from_seq >= reply["head_seq"]:
            return records


def test_a_backup_under_load_has_every_acknowledged_write_and_no_deleted_one(tmp_path: Path) -> None:
    backups: list[tuple[Path, dict[str, dict[int, Any]], dict[str, set[int]]]] = []
    cold = tmp_path / "cold"
    with server_in(tmp_path / "server", TOPICS_COLD_DIR=str(cold), **SETTINGS) as process:
        for number in range(WRITERS):
            Topic(process.api, f"load-{number}").configure(durability="fsync")
        with Load(process.api) as load:
            for number in range(2):
                eventually(partial(load.has_sent, 200 * (number + 1)))
                target = tmp_path / f"backup-{number}"
                sent, deleted = load.acknowledged()
                succeeded("backup", target, "--data", tmp_path / "server" / "data", "--cold", cold)
                backups.append((target, sent, deleted))
        assert load.failures == []
    everything_sent, everything_deleted = load.acknowledged()
    assert any(cold.glob("topics/*/*.data")), "nothing was relocated"
    for target, sent, deleted in backups:
        assert "sound" in succeeded("verify", target)
        restored = tmp_path / f"restored-{target.name}"
        restored.mkdir()
        succeeded("restore", target, restored / "data")
        with server_in(restored) as process:
            for topic in sent:
                found = records_of(Topic(process.api, topic))
                assert sent[topic].keys() - everything_deleted[topic] <= found.keys(), (
                    "an acknowledged write is missing"
                )
                assert not deleted[topic] & found.keys(), "a deleted record is back"
                assert all(everything_sent[topic][seq] == data for seq, data in found.items()), "an invented record"
                Topic(process.api, topic).write({"data": "goes on"})


def test_a_server_starts_on_a_backup_itself(stopped: Path, tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    succeeded("backup", tmp_path / "server" / "data", "--data", stopped)
    with server_in(tmp_path / "server") as process:
        state = Topic(process.api, "orders").state()
        assert (state["count"], state["head_seq"]) == (125, 150)


def test_a_queue_is_verified_shown_backed_up_and_goes_on_from_its_backup(tmp_path: Path) -> None:
    with server_in(tmp_path / "server", **SETTINGS) as process:
        queue = Queue(Topic(process.api, "jobs"))
        queue.topic.configure(type="queue", durability="fsync", max_deliveries=1, dead_letter="dead")
        queue.topic.fill(120)
        queue.ack(*queue.seqs(max=60))
        queue.nack(*queue.seqs(max=5))
        queue.topic.write({"data": "later", "delay_ms": 3_600_000})
        assert queue.seqs(max=3) == [66, 67, 68]
        data = tmp_path / "server" / "data"
        shown = "".join(succeeded("inspect", path, "--limit", "1000") for path in data.glob("wal/*/*.log"))
        for operation in ("claimed", "released", "jobs-delayed", "jobs-deleted"):
            assert f" {operation} " in shown, operation
        assert "seqs=[61, 62, 63, 64, 65] dead_letters=True" in shown
        succeeded("backup", tmp_path / "backup", "--data", data)
        counters, dead = queue.counters(), Topic(process.api, "dead").seqs()
    assert (counters, dead) == ((52, 3, 5), [1, 2, 3, 4, 5])
    for directory in (data, tmp_path / "backup"):
        assert "sound" in succeeded("verify", directory).splitlines()[-1]
    restored = tmp_path / "restored"
    restored.mkdir()
    succeeded("restore", tmp_path / "backup", restored / "data")
    with server_in(restored) as process:
        queue = Queue(Topic(process.api, "jobs"))
        # Nobody holds a job of a backup; the counters are there.
        assert queue.counters() == (55, 0, 5)
        assert Topic(process.api, "dead").seqs() == dead
        assert queue.seqs(max=2) == [69, 70]
        assert queue.counters() == (50, 2, 8)
