"""Everybody at once: writers, readers, a watcher, a queue and its worker, deletes, copies. Each notes what it was told.

`stop` ends them; then `check_live` says whether readers have got what was acknowledged, and `check_kept`, after another
start, whether it is still there. What is refused has to be refused with one of `REFUSALS`; anything else is a problem,
and so is a stream that falls silent.
"""

import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from acceptance.server import read_all
from conformance.client import Api, Reply, eventually, success

REFUSALS = {"storage_failed", "storage_full", "too_many_open_files", "throttled"}
PAUSE_S = 0.008
HEARTBEAT_MS = 1000
SILENCE_S = 20.0  # without as much as a heartbeat
PAGE = 40
KEPT_JOBS = 60
TEXT = "." * 400
WRITTEN = {"safe": "fsync", "quick": "disk"}
TOPICS: dict[str, dict[str, object]] = {
    **{name: {"durability": durability} for name, durability in WRITTEN.items()},
    "jobs": {"durability": "fsync", "type": "queue"},
    "trimmed": {"durability": "fsync"},
    "short": {"durability": "disk", "ttl_ms": 300},
    "copies": {"durability": "fsync"},
}


class MixedLoad:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._stopping = threading.Event()
        self._leaving = threading.Event()  # the watcher, who stays until everybody else has gone
        self.problems: list[str] = []
        self.refused: set[str] = set()
        self._acked: dict[str, dict[int, str]] = {name: {} for name in TOPICS}
        self._seen: dict[str, dict[int, str]] = {name: {} for name in WRITTEN}
        self._trimming = self._trimmed = 0  # everything before it was asked to go, or is gone
        self._acking: set[int] = set()
        self._done: set[int] = set()
        for name, config in TOPICS.items():
            success(api.put(f"/v0/topics/{name}", config))
        success(api.put("/v0/routers/copy", {"source": "safe", "dest": "copies"}))
        turns: list[Callable[[], None]] = [self._read, self._trim, self._work]
        turns += [partial(self._write, name, iter(range(1, 1_000_000))) for name in TOPICS if name != "copies"]
        self._threads = [threading.Thread(target=self._repeat, args=(turn, self._stopping)) for turn in turns]
        self._watcher = threading.Thread(target=self._repeat, args=(self._watch, self._leaving))
        for thread in (*self._threads, self._watcher):
            thread.start()

    def stop(self) -> None:
        """Ends everybody but the watcher."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def leave(self) -> None:
        """Ends the watcher. Its server has to be gone, or about to stop."""
        self.stop()
        self._leaving.set()
        self._watcher.join()

    def _repeat(self, turn: Callable[[], None], end: threading.Event) -> None:
        while not end.wait(PAUSE_S):
            try:
                turn()
            except Exception as error:
                self.problems.append(f"{type(error).__name__}: {error}")
                return

    def _ask(self, path: str, body: object) -> Reply | None:
        """None if there was no answer."""
        try:
            reply = self._api.post(f"/v0/{path}", body)
        except TimeoutError:
            self.problems.append(f"{path} was never answered")
            return None
        except (OSError, http.client.HTTPException):
            return None
        if reply.status not in {200, 201} and reply.json["error"]["code"] not in REFUSALS:
            self.problems.append(f"{path} got {reply.status} {reply.body[:200]!r}")
        return reply

    # Those who write

    def _write(self, topic: str, numbers: Iterator[int]) -> None:
        number = next(numbers)
        data = f"{topic} {number} {TEXT}"
        reply = self._ask(f"topics/{topic}", {"records": [{"data": data, "tag": f"t{number % 5}"}]})
        if reply is not None and reply.status == 200:
            self._acked[topic][reply.json["seqs"][0]] = data
        elif reply is not None:
            self.refused.add(data)

    def _trim(self) -> None:
        self._stopping.wait(10 * PAUSE_S)
        acked = sorted(self._acked["trimmed"].copy())
        if len(acked) < PAGE:
            return
        self._trimming = acked[-PAGE // 2]
        reply = self._ask("topics/trimmed/delete", {"before_seq": self._trimming})
        if reply is not None and reply.status == 200:
            self._trimmed = self._trimming

    def _work(self) -> None:
        if len(self._acked["jobs"]) < len(self._acking) + KEPT_JOBS:
            return
        reply = self._ask("topics/jobs/claim", {"node": "w", "max": 5, "lease_ms": 30_000})
        if reply is None or reply.status != 200 or not reply.json["claimed"]:
            return
        jobs = {job["$seq"]: job["lease_id"] for job in reply.json["claimed"]}
        self._acking |= jobs.keys()
        reply = self._ask("topics/jobs/ack", {"node": "w", "seqs": [*jobs], "lease_ids": [*jobs.values()]})
        if reply is not None and reply.status == 200:
            self._done |= jobs.keys() - set(reply.json["skipped"])

    # Those who read

    def _read(self) -> None:
        """From the beginning: what is on the cold tier, on the disk and in memory."""
        for topic in (*WRITTEN, "copies"):
            from_seq = 0
            while not self._stopping.is_set():
                reply = self._ask(f"topics/{topic}/diff", {"from_seq": from_seq, "limit": PAGE})
                if reply is None or reply.status != 200:
                    break
                self._got(topic, from_seq, reply.json["records"], reply.json["tombstone"])
                if reply.json["next_from_seq"] == from_seq:
                    break
                from_seq = reply.json["next_from_seq"]

    def _got(self, topic: str, from_seq: int, records: list[dict[str, Any]], tombstone: object) -> None:
        """Nobody deletes here, and nothing is lost while the server runs: there are no holes."""
        seqs = [record["$seq"] for record in records]
        if seqs != [*range(from_seq + 1, from_seq + 1 + len(seqs))] or tombstone is not None:
            self.problems.append(f"{topic} after {from_seq}: {seqs} and {tombstone}")
        refused = self.refused.intersection(record["data"] for record in records)
        if refused:
            self.problems.append(f"{topic}: {min(refused)[:20]} was refused, and is there")

    def _watch(self) -> None:
        """From where it stands until the stream ends."""
        topics = {name: {"from_seq": max(seen, default=0)} for name, seen in self._seen.items()}
        created = self._ask("watch", {"topics": topics, "heartbeat_ms": HEARTBEAT_MS})
        if created is None or created.status not in {200, 201}:
            return
        try:
            for kind, event in self._events(created.json["stream_url"]):
                if kind == "record":
                    seen = self._seen[event["topic"]]
                    self._got(event["topic"], max(seen, default=0), event["records"], None)
                    seen.update({record["$seq"]: record["data"] for record in event["records"]})
                elif kind == "tombstone":
                    self.problems.append(f"the watcher was told {event}")
        except TimeoutError:
            self.problems.append("the watcher heard nothing, not even a heartbeat")

    def _events(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        connection = http.client.HTTPConnection(self._api.host, self._api.port, timeout=SILENCE_S)
        with contextlib.closing(connection), contextlib.suppress(ConnectionError, http.client.HTTPException):
            connection.request("GET", path, headers={"Accept": "text/event-stream"})
            with connection.getresponse() as response:
                kind = ""
                while not self._leaving.is_set() and (line := response.readline()):
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    if name == "event":
                        kind = value
                    elif name == "data":
                        yield kind, json.loads(value)

    # What has to be true

    def check_live(self) -> None:
        """While the same process serves: readers and the watcher get everything that was acknowledged."""
        for topic in WRITTEN:
            acked = self._acked[topic]
            eventually(lambda topic=topic, acked=acked: self._seen[topic].keys() >= acked.keys())  # type: ignore[misc]
            assert self._seen[topic].items() >= acked.items()
            # A cold segment that could not be fetched is refused for a second before it is looked for again.
            eventually(lambda topic=topic: self._is_readable(topic))  # type: ignore[misc]
            records, lost, _ = read_all(self._api, topic)
            assert not lost
            assert records.items() >= acked.items(), f"{topic}: {sorted(acked.keys() - records.keys())}"
        assert not self.problems, self.problems[:5]

    def _is_readable(self, topic: str) -> bool:
        from_seq, head_seq = 0, 1
        while from_seq < head_seq:
            reply = self._ask(f"topics/{topic}/diff", {"from_seq": from_seq, "limit": 1000})
            if reply is None or reply.status != 200:
                return False
            from_seq, head_seq = reply.json["next_from_seq"], reply.json["head_seq"]
        return True

    def check_kept(self, api: Api) -> None:
        """After another start. Of class `disk` records may be gone, and then a tombstone says so."""
        for topic, durability in WRITTEN.items():
            records, lost, _ = read_all(api, topic)
            acked = self._acked[topic]
            missing = acked.keys() - records.keys()
            assert missing <= (lost if durability == "disk" else set()), f"{topic} lost {sorted(missing)}"
            assert all(records[seq] == acked[seq] for seq in acked.keys() - missing)
        for topic, gone, may_be_gone in (
            ("trimmed", set(range(self._trimmed)), set(range(self._trimming))),
            ("jobs", self._done, self._acking),
        ):
            records, lost, _ = read_all(api, topic)
            acked = self._acked[topic]
            assert not lost
            assert not gone & records.keys(), f"{topic}: {sorted(gone & records.keys())} came back"
            missing = acked.keys() - records.keys()
            assert missing <= may_be_gone, f"{topic} lost {sorted(missing - may_be_gone)}"
        sources = read_all(api, "safe")[0]
        eventually(lambda: len(read_all(api, "copies")[0]) >= len(sources))
        assert sorted(read_all(api, "copies")[0].values()) == sorted(sources.values())

    @property
    def writes(self) -> int:
        return sum(map(len, self._acked.values()))
