"""Servers killed under concurrent writers, with every durability class: what was acknowledged is there afterwards."""

import http.client
import json
import random
import stat
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from acceptance.server import Server, read_all
from conformance.client import Api, success
from conformance.process import command_environment, output_of_refused_start

CLASSES = ("ephemeral", "memory", "disk", "fsync")
WRITERS_PER_CLASS = 2
SHARD_COUNTS = (1, 3, 2, 2, 1, 3)
RUN_S = (0.2, 1.2)
CONNECTION_TIMEOUT_S = 10.0

Body = dict[str, Any]


class Client:
    """One connection that remembers what it was told, until the server is gone."""

    def __init__(self, api: Api, topic: str) -> None:
        self.topic = topic
        self.acked: list[tuple[list[int], list[Any]]] = []
        self.unanswered: Body | None = None
        self._api = api
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def steps(self, number: int) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        self._connection = http.client.HTTPConnection(self._api.host, self._api.port, timeout=CONNECTION_TIMEOUT_S)
        number = 0
        try:
            while True:
                self.steps(number)
                number += 1
        except (OSError, http.client.HTTPException):
            return
        finally:
            self._connection.close()

    def post(self, path: str, body: Body) -> Body:
        self._connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        content = response.read()
        assert response.status in {200, 201}, content
        answer: Body = json.loads(content)
        return answer


class Writer(Client):
    """Batches of one to three records, with an idempotency key, as a producer, or neither."""

    def __init__(self, api: Api, topic: str, name: str) -> None:
        self._name = name
        super().__init__(api, topic)

    def steps(self, number: int) -> None:
        data = [f"{self._name}-{number}-{position}" for position in range(1 + number % 3)]
        body: Body = {"records": [{"data": each} for each in data]}
        if number % 4 == 1:
            body["producer"] = {"name": self._name, "sequence": number * 10}
        elif number % 2:
            body["idempotency_key"] = f"{self._name}-{number}"
        self.unanswered = body
        answer = self.post(f"/v0/topics/{self.topic}", body)
        self.unanswered = None
        self.acked.append((answer["seqs"], data))


class Deleter(Client):
    """Writes two records and deletes the first of them by its tag."""

    def __init__(self, api: Api, topic: str, name: str) -> None:
        self._name = name
        self.deleted: list[int] = []
        super().__init__(api, topic)

    def steps(self, number: int) -> None:
        tag = f"{self._name}-{number}"
        data = [f"{tag}-gone", f"{tag}-kept"]
        answer = self.post(f"/v0/topics/{self.topic}", {"records": [{"data": data[0], "tag": tag}, {"data": data[1]}]})
        self.acked.append((answer["seqs"][1:], data[1:]))
        assert self.post(f"/v0/topics/{self.topic}/delete", {"match": tag})["deleted"] == 1
        self.deleted.append(answer["seqs"][0])


def test_acknowledged_writes_survive_sigkill_whatever_the_number_of_shards(tmp_path: Path) -> None:
    choice = random.Random(20240229)
    acked: dict[str, dict[int, Any]] = defaultdict(dict)
    deleted: dict[str, set[int]] = defaultdict(set)
    settings = {"TOPICS_SEGMENT_MAX_EVENTS": "200", "TOPICS_COLD_DIR": str(tmp_path / "cold")}
    unanswered: list[tuple[str, Body]] = []
    for number, shards in enumerate(SHARD_COUNTS):
        server = Server(tmp_path, TOPICS_WAL_SHARDS=str(shards), **settings)
        _check(server.api, acked, deleted)
        _retry(server.api, unanswered)
        for durability in CLASSES:
            success(server.api.put(f"/v0/topics/{durability}", {"durability": durability}))
            success(server.api.put(f"/v0/topics/{durability}-deletes", {"durability": durability}))
        clients: list[Writer | Deleter] = []
        for durability in CLASSES:
            for writer in range(WRITERS_PER_CLASS):
                clients.append(Writer(server.api, durability, f"{durability}-{number}-{writer}"))
            clients.append(Deleter(server.api, f"{durability}-deletes", f"{durability}-{number}"))
        time.sleep(choice.uniform(*RUN_S))
        server.kill()
        unanswered = []
        for client in clients:
            client.join()
            assert client.acked, f"{client.topic}: nothing was written"
            for seqs, data in client.acked:
                acked[client.topic].update(zip(seqs, data, strict=True))
            if isinstance(client, Deleter):
                deleted[client.topic].update(client.deleted)
            elif client.unanswered is not None and client.unanswered.keys() & {"idempotency_key", "producer"}:
                unanswered.append((client.topic, client.unanswered))
    server = Server(tmp_path, TOPICS_WAL_SHARDS="2", **settings)
    _check(server.api, acked, deleted)
    before = {topic: read_all(server.api, topic) for topic in acked if "ephemeral" not in topic}
    server.stop()
    server = Server(tmp_path, TOPICS_WAL_SHARDS="1", **settings)
    assert {topic: read_all(server.api, topic) for topic in before} == before, "a clean stop lost something"
    server.stop()


def _check(api: Api, acked: dict[str, dict[int, Any]], deleted: dict[str, set[int]]) -> None:
    for topic, promised in acked.items():
        records, lost, head_seq = read_all(api, topic)
        class_name = topic.partition("-")[0]
        if class_name in {"ephemeral", "memory"}:
            # Nothing is promised; what is there must be what was written, and what is not may be given out again.
            for seq in [seq for seq in promised if seq not in records]:
                del promised[seq]
        for seq, data in promised.items():
            if seq in records:
                assert records[seq] == data, f"{topic}: seq {seq} holds {records[seq]!r}, written was {data!r}"
            elif class_name == "disk":
                assert seq in lost, f"{topic}: seq {seq} is neither there nor told as lost (head {head_seq})"
            else:
                raise AssertionError(f"{topic}: acknowledged seq {seq} is lost (head {head_seq})")
        texts = [data for data in records.values() if not str(data).endswith("-gone")]
        assert len(texts) == len(set(texts)), f"{topic}: something is there twice"
        if class_name == "fsync":
            assert not lost, f"{topic}: {sorted(lost)[:10]} are told as lost"
            assert not deleted[topic] & records.keys(), f"{topic}: deleted records are back"


def _retry(api: Api, unanswered: list[tuple[str, Body]]) -> None:
    """A write whose answer was lost is sent again, twice: it is there exactly once."""
    for topic, body in unanswered:
        first = success(api.post(f"/v0/topics/{topic}", body))
        again = success(api.post(f"/v0/topics/{topic}", body))
        assert again["deduped"] is True
        assert again["seqs"] == first["seqs"]
        wanted = [record["data"] for record in body["records"]]
        found = [data for data in read_all(api, topic)[0].values() if data in wanted]
        assert found == wanted


def test_deletes_keys_and_producers_survive_a_restart(tmp_path: Path) -> None:
    server = Server(tmp_path, TOPICS_SEGMENT_MAX_EVENTS="4")
    for topic in ("fsync", "disk"):
        success(server.api.put(f"/v0/topics/{topic}", {"durability": topic}))
        body = {"records": [{"data": position, "tag": f"t:{position % 3}"} for position in range(20)]}
        success(server.api.post(f"/v0/topics/{topic}", {**body, "idempotency_key": "once"}))
        assert success(server.api.post(f"/v0/topics/{topic}/delete", {"match": "t:1"}))["deleted"] == 7
        success(server.api.post(f"/v0/topics/{topic}/delete", {"before_seq": 4}))
        success(server.api.post(f"/v0/topics/{topic}", {**body, "producer": {"name": "p", "sequence": 100}}))
    expected = {topic: read_all(server.api, topic) for topic in ("fsync", "disk")}
    server.stop()
    for stop in (Server.kill, Server.stop):
        server = Server(tmp_path, TOPICS_SEGMENT_MAX_EVENTS="4")
        for topic, reading in expected.items():
            assert read_all(server.api, topic) == reading
            again = success(server.api.post(f"/v0/topics/{topic}", {**body, "idempotency_key": "once"}))
            assert (again["deduped"], again["first_seq"]) == (True, 1)
            again = success(server.api.post(f"/v0/topics/{topic}", {**body, "producer": {"name": "p", "sequence": 99}}))
            assert (again["deduped"], again["count"]) == (True, 0)
        stop(server)


def test_a_second_server_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path)
    second = tmp_path / "second"
    second.mkdir()
    output = output_of_refused_start(second, {"TOPICS_DATA_DIR": str(tmp_path / "data")})
    assert "the directory is in use" in output
    assert str(tmp_path / "data") in output
    assert "Traceback" not in output
    success(server.api.post("/v0/topics/still", {"records": [{"data": 1}]}))
    server.stop()


def test_the_exit_code_of_a_refused_second_server_is_2(tmp_path: Path) -> None:
    server = Server(tmp_path)
    finished = subprocess.run(
        [sys.executable, "-m", "topics.cli.main", "serve"],
        env=command_environment(tmp_path, {"TOPICS_PORT_FILE": str(tmp_path / "other")}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=15,
        check=False,
    )
    assert finished.returncode == 2, finished.stderr
    server.stop()


def test_nobody_else_can_read_the_data(tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    server = Server(tmp_path, TOPICS_COLD_DIR=str(cold), TOPICS_SEGMENT_MAX_EVENTS="1", TOPICS_HOT_RETAIN_SEGMENTS="0")
    for number in range(4):
        success(server.api.post("/v0/topics/secret", {"records": [{"data": number}], "config": {"durable": True}}))
    server.stop()
    found = [path for root in (tmp_path / "data", cold) for path in [root, *root.rglob("*")]]
    assert any(path.suffix == ".data" for path in cold.rglob("*")), "nothing was relocated"
    for path in found:
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
