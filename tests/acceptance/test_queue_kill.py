"""Workers and servers killed while jobs are worked on: every job is done once, or delivered again and counted."""

import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from acceptance import queue_worker
from acceptance.server import Server
from conformance.client import Topic, eventually
from conformance.queue import Queue

WORKERS = 3
ROUNDS = 4
JOBS_PER_ROUND = 400
RUN_S = (0.2, 0.8)


class WorkerProcess:
    def __init__(self, directory: Path, node: str) -> None:
        script, log = queue_worker.__file__, directory / f"{node}.log"
        arguments = [sys.executable, script, str(directory / "address"), str(log), node]
        self._process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.parametrize("leases_durable", [False, True])
def test_every_job_is_acked_once_or_redelivered(tmp_path: Path, leases_durable: bool) -> None:
    choice = random.Random(7)
    workers: list[WorkerProcess] = []
    produced = 0
    server = Server(tmp_path)
    try:
        for number in range(ROUNDS):
            queue = Queue(Topic(server.api, "jobs"))
            queue.topic.configure(type="queue", durability="fsync", leases_durable=leases_durable)
            workers += [WorkerProcess(tmp_path, f"w{number}-{each}") for each in range(WORKERS)]
            queue.topic.write(*({"data": produced + each} for each in range(JOBS_PER_ROUND)))
            produced += JOBS_PER_ROUND
            time.sleep(choice.uniform(*RUN_S))
            for worker in workers[-2:]:
                worker.kill()
            if number % 2:
                server.kill()
                server = Server(tmp_path)
        queue = Queue(Topic(server.api, "jobs"))
        eventually(lambda: queue.topic.state()["count"] == 0)
    finally:
        for worker in workers:
            worker.kill()
    server.stop()

    claims: dict[int, list[int]] = defaultdict(list)
    steps: dict[str, list[int]] = defaultdict(list)
    for log in tmp_path.glob("w*.log"):
        for line in log.read_text().splitlines():
            step, number_text, deliveries_text = line.split()
            steps[step].append(int(number_text))
            if step == "claimed":
                claims[int(number_text)].append(int(deliveries_text))
    acked = steps["acked"]
    assert len(acked) == len(set(acked)), "a job was acked twice"
    # Where the server or the worker was killed, the answer to an ack may not have come.
    unanswered = set(range(produced)) - set(acked)
    assert unanswered <= set(steps["acking"]), "a job is lost"
    for job, deliveries in claims.items():
        assert len(deliveries) == len(set(deliveries)), f"job {job} came again and was not counted: {deliveries}"
    assert len(acked) > produced // 2
    assert any(max(deliveries) > 1 for deliveries in claims.values()), "nobody was killed at work"
