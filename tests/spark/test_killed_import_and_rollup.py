"""An import and a roll-up killed at random points, run again, and compared with their file.

TOPICS_TEST_KILLS sets how many kills there are; by default one job is killed, another one with another seed.
"""

import json
import os
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

from spark.killing import SEED, run_and_kill
from spark.readings import history
from spark.server import RestartableServer

KILLS = int(os.environ.get("TOPICS_TEST_KILLS", "1"))
JOBS = ("importing", "rolling")
RECORDS = 23_000


def test_killed_anywhere_every_row_and_every_result_is_there_once(
    server: RestartableServer, name: str, tmp_path: Path
) -> None:
    events: list[dict[str, Any]] = [{"n": n, "k": f"k{n % 7}", "t": n * 10} for n in range(RECORDS)]
    # Closes every window before it.
    events.append({"n": 0, "k": "end", "t": RECORDS * 100})
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    chance = random.Random(SEED)
    topic = server.topic(f"{name}a")
    arguments = [server.url, topic.name, str(tmp_path)]
    first = chance.randrange(len(JOBS))
    for number in range(first, first + KILLS):
        job = JOBS[number % len(JOBS)]
        run_and_kill("spark.killed_process", arguments, job, chance.randrange(4), chance.random() * 1.5)
    assert not run_and_kill("spark.killed_process", arguments, "never", 0, 0.0), "it was to run to its end"

    records, losses = history(topic)
    assert losses == []
    assert [records[seq]["data"] for seq in sorted(records)] == events, f"seed {SEED}"
    expected: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for event in events[:-1]:
        second = event["t"] // 1000
        group = expected[f"1970-01-01T00:{second // 60:02d}:{second % 60:02d}.000Z", event["k"]]
        group[0] += 1
        group[1] += event["n"]
    results, losses = history(server.topic(f"{topic.name}.rolled"))
    assert losses == []
    found = [
        ((data["window_start"], data["k"]), [data["count"], data["sum_n"]])
        for _, data in sorted((seq, record["data"]) for seq, record in results.items())
    ]
    assert len(found) == len(dict(found)), f"a result is there twice, seed {SEED}"
    assert dict(found) == expected, f"seed {SEED}"
