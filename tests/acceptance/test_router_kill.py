"""A server with fifty routers, killed under load: readers of the copies go on as if nothing had happened."""

import http.client
import json
import random
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from acceptance.server import Server, read_all
from conformance.client import Api, success

SOURCES = ("orders", "events")  # of class fsync and of class disk
DESTS_PER_SOURCE = 20
KILLS = 3
RUN_S = (0.6, 1.2)


class Load:
    """Keeps one connection busy until the server is gone."""

    def __init__(self, api: Api) -> None:
        self._connection = http.client.HTTPConnection(api.host, api.port, timeout=10.0)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def step(self) -> None:
        raise NotImplementedError

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        content = response.read()
        assert response.status in {200, 201}, content
        answer: dict[str, Any] = json.loads(content)
        return answer

    def _run(self) -> None:
        try:
            while True:
                self.step()
        except (OSError, http.client.HTTPException):
            return
        finally:
            self._connection.close()


class Writer(Load):
    def __init__(self, api: Api, topic: str, name: str) -> None:
        self.topic = topic
        self.acked: list[str] = []
        self._name = name
        super().__init__(api)

    def step(self) -> None:
        data = f"{self._name}-{len(self.acked)}"
        self.call(f"/v0/topics/{self.topic}", {"records": [{"data": data, "tag": "even"[len(self.acked) % 2 :]}]})
        self.acked.append(data)


class Reader(Load):
    """Reads copies, and remembers each with its seq."""

    def __init__(self, api: Api, topic: str) -> None:
        self.topic = topic
        self.seen: dict[int, dict[str, Any]] = {}
        self._from_seq = 0
        super().__init__(api)

    def step(self) -> None:
        reply = self.call(f"/v0/topics/{self.topic}/diff", {"from_seq": self._from_seq, "limit": 1000, "wait_ms": 100})
        self.seen.update((record["$seq"], record) for record in reply["records"])
        self._from_seq = reply["next_from_seq"]


def test_copies_keep_their_seqs_over_sigkill(tmp_path: Path) -> None:
    choice = random.Random(8)
    seen: dict[str, dict[int, dict[str, Any]]] = {}
    acked: list[str] = []
    settings = {"TOPICS_SEGMENT_MAX_EVENTS": "300"}
    for number in range(KILLS):
        server = Server(tmp_path, TOPICS_WAL_SHARDS=str(1 + number % 3), **settings)
        if number == 0:
            _make_routes(server.api)
        _check(server.api, seen, acked)
        readers = [Reader(server.api, topic) for topic in ("orders-copy-3", "events-copy-7", "orders-chain-4")]
        writers = [Writer(server.api, source, f"{source}-{number}-{writer}") for source in SOURCES for writer in "ab"]
        time.sleep(choice.uniform(*RUN_S))
        server.kill()
        for load in (*readers, *writers):
            load.join()
        for reader in readers:
            assert reader.seen, f"{reader.topic}: nothing was read"
            seen.setdefault(reader.topic, {}).update(reader.seen)
        acked += [data for writer in writers if writer.topic == "orders" for data in writer.acked]
    server = Server(tmp_path, **settings)
    _check(server.api, seen, acked)
    server.stop()


def _make_routes(api: Api) -> None:
    """Forty topics beside each other, and ten in a row: fifty routers."""
    success(api.put("/v0/topics/orders", {"durability": "fsync"}))
    success(api.put("/v0/topics/events", {"durability": "disk"}))
    for source in SOURCES:
        for number in range(DESTS_PER_SOURCE):
            _route(api, source, f"{source}-copy-{number}", "exactly_once" if number % 2 else "at_least_once")
        chain = [source, *(f"{source}-chain-{number}" for number in range(5))]
        for before, after in pairwise(chain):
            _route(api, before, after, "at_least_once")
    assert len(success(api.get("/v0/routers?page_size=1000"))["routers"]) == 50


def _route(api: Api, source: str, dest: str, guarantee: str) -> None:
    success(api.put(f"/v0/routers/{source}-%3E{dest}", {"source": source, "dest": dest, "guarantee": guarantee}))


def _check(api: Api, seen: dict[str, dict[int, dict[str, Any]]], acked: list[str]) -> None:
    for topic, records in seen.items():
        found, lost, head_seq = read_all(api, topic)
        assert head_seq >= max(records), f"{topic}: the head went back"
        for seq, record in records.items():
            assert found.get(seq, record["data"]) == record["data"], f"{topic}: seq {seq} is another record"
            assert seq in found or seq in lost, f"{topic}: seq {seq} is gone without a word"
    for number in range(DESTS_PER_SOURCE):
        if not acked:
            return
        found, lost, _ = read_all(api, f"orders-copy-{number}")
        # The source is durable, so every copy is there, once, in its order.
        copies = list(found.values())
        assert len(copies) == len(set(copies)), "a copy is there twice"
        assert set(acked) <= set(copies)
        assert copies == list(read_all(api, "orders")[0].values())
        assert not lost
