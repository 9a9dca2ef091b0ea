"""Keeps a server busy for a long time, and prints how much memory it has and how late its loop is.

    python scripts/soak.py [--minutes 30] [--topics 100000] [--watchers 50]

The server has so many topics with a record each. Then, all at once and until the time is up: batches go into one hot
topic that keeps its last records by `before_seq`, watchers follow it with long polls, single writes go to the others,
and some of the others are deleted and made again. Every ten seconds a line is printed; the last one says by how much
the memory of the second half differs from that of the first, and how long a clean stop right after it took. Exits
with 1 when memory grew by more than a fifth, a writer or a watcher failed, or the stop took longer than a supervisor
waits.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import msgspec

from topics.bench.control import HttpControl
from topics.bench.errors import BenchError
from topics.bench.journal_watch import counter_in
from topics.bench.own_process import OwnProcess, server_on
from topics.bench.records import write_body
from topics.bench.scale_measurement import STOP_S_MAX, make_topics

HOT = "soak-hot"
BATCH_RECORDS = 100
KEPT_RECORDS = 50_000
PAUSE_S = 0.005
LINE_S = 10.0
GROWTH_MAX = 0.2
STOP_S_ALLOWED = 90.0


class Soak:
    """The load, in threads that go on until `stop` is set; the first thing that goes wrong is kept."""

    def __init__(self, server: OwnProcess, topics: list[str], watchers: int) -> None:
        self.stop = threading.Event()
        self.problems: list[str] = []
        self.written = self.delivered = self.deleted = 0
        self._server = server
        self._topics = topics
        self._random = random.Random(1)
        work = [self._write_hot, self._write_others, self._delete_others, *[self._watch] * watchers]
        self.threads = [threading.Thread(target=self._run, args=(each,), daemon=True) for each in work]

    def _run(self, work: Callable[[HttpControl], None]) -> None:
        try:
            with self._server.control() as control:
                work(control)
        except (BenchError, OSError, ValueError) as problem:
            if not self.stop.is_set():
                self.problems.append(f"{work.__name__}: {problem}")
                self.stop.set()

    def _write_hot(self, control: HttpControl) -> None:
        body = write_body(0, BATCH_RECORDS)
        head_seq = 0
        while not self.stop.wait(PAUSE_S):
            if control.status("POST", f"/v0/topics/{HOT}?return_seqs=false", body) == 429:
                time.sleep(PAUSE_S * 10)
                continue
            head_seq += BATCH_RECORDS
            self.written += BATCH_RECORDS
            if head_seq % KEPT_RECORDS == 0:
                control.call("POST", f"/v0/topics/{HOT}/delete", b'{"before_seq":%d}' % (head_seq - KEPT_RECORDS + 1))

    def _write_others(self, control: HttpControl) -> None:
        body = write_body(0, 1)
        while not self.stop.wait(PAUSE_S):
            control.call("POST", f"/v0/topics/{self._random.choice(self._topics)}?return_seqs=false", body)
            self.written += 1

    def _delete_others(self, control: HttpControl) -> None:
        while not self.stop.wait(PAUSE_S * 4):
            topic = self._random.choice(self._topics)
            control.call("DELETE", f"/v0/topics/{topic}")
            control.call("PUT", f"/v0/topics/{topic}", b'{"durability":"disk"}')
            self.deleted += 1

    def _watch(self, control: HttpControl) -> None:
        """Follows the hot topic with long polls."""
        from_seq = 0
        while not self.stop.is_set():
            body = msgspec.json.encode({"from_seq": from_seq, "limit": 1000, "wait_ms": 1000})
            reply = msgspec.json.decode(control.call("POST", f"/v0/topics/{HOT}/diff", body))
            self.delivered += len(reply["records"])
            from_seq = reply["next_from_seq"]


def main() -> int:
    parser = argparse.ArgumentParser(description="Keeps a server busy, and prints its memory and the lag of its loop.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--watchers", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topics-soak-") as name, server_on(Path(name)) as server:
        topics = make_topics(options.topics, server)
        with server.control() as control:
            control.call("PUT", f"/v0/topics/{HOT}", b'{"durability":"disk"}')
        soak = Soak(server, topics, options.watchers)
        for thread in soak.threads:
            thread.start()
        memory = follow(server, soak, options.minutes * 60)
        began = time.monotonic()
        soak.stop.set()
        server.stop(STOP_S_MAX)
        stop_s = time.monotonic() - began
        for thread in soak.threads:
            thread.join()
    return verdict(memory, stop_s, soak.problems)


def follow(server: OwnProcess, soak: Soak, seconds: float) -> list[float]:
    """Prints a line now and then; the memory of each, in MiB."""
    memory: list[float] = []
    lag = (0.0, 0.0)
    ends = time.monotonic() + seconds
    print("seconds left    MiB  lag ms     written   delivered  deleted topics")
    while not soak.stop.wait(min(LINE_S, max(ends - time.monotonic(), 0.01))):
        with server.control() as control:
            exposition = control.call("GET", "/v0/metrics").decode()
        sums = [counter_in(exposition, f"topics_loop_lag_ms_{part}") or 0.0 for part in ("sum", "count")]
        total = (sums[0], sums[1])
        lag_ms = (total[0] - lag[0]) / max(total[1] - lag[1], 1)
        lag = total
        memory.append(server.anonymous_bytes() / 2**20)
        left = max(ends - time.monotonic(), 0)
        counts = f"{soak.written:11}  {soak.delivered:10}  {soak.deleted:14}"
        print(f"{left:12.0f}  {memory[-1]:5.0f}  {lag_ms:6.2f} {counts}", flush=True)
        if time.monotonic() >= ends:
            break
    return memory


def verdict(memory: list[float], stop_s: float, problems: list[str]) -> int:
    """What to make of it, as an exit status."""
    # The first quarter fills caches and tables.
    settled = memory[len(memory) // 4 :]
    half = len(settled) // 2
    growth = mean(settled[half:]) / mean(settled[:half]) - 1 if half else 0.0
    print(f"memory of the last half beside the half before: {growth:+.1%}; clean stop under load: {stop_s:.1f} s")
    for problem in problems:
        print(f"failed: {problem}")
    return 1 if problems or growth > GROWTH_MAX or stop_s > STOP_S_ALLOWED else 0


if __name__ == "__main__":
    sys.exit(main())
