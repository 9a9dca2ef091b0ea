"""Kills drivers of archive, compact, replay, forget, import, roll-up and `up` at random points, as often as one likes.

    .venv/bin/python scripts/pipeline_kills.py --rounds 3 --kills 8

Each round is the tests of the suite with another seed and more kills. Afterwards read + deleted + lost is the head,
Polars reads the rows the topic has, and no result is there twice. A seed that fails is printed, and repeats it.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = {
    "archive, compact, replay, forget": "tests/spark/test_killed_jobs.py",
    "import, rollup": "tests/spark/test_killed_import_and_rollup.py",
    "up": "tests/spark/test_killed_up.py",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=8, help="of each test in a round (8)")
    parser.add_argument("--only", choices=list(TESTS), help="one of the tests")
    parser.add_argument("--seed", type=int, help="of the first round; others follow it")
    args = parser.parse_args()
    seed = args.seed or random.randrange(1, 1 << 20)
    failed = 0
    for number in range(args.rounds):
        for name, path in TESTS.items():
            if args.only not in (None, name):
                continue
            settings = {"TOPICS_TEST_SEED": str(seed + number), "TOPICS_TEST_KILLS": str(args.kills)}
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path],
                cwd=ROOT,
                env=os.environ | settings,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            verdict = "sound" if done.returncode == 0 else "FAILED"
            elapsed_s = time.monotonic() - began
            print(f"{name:33} seed {seed + number:8} {args.kills:3} kills  {verdict}  {elapsed_s:6.0f} s", flush=True)
            if done.returncode != 0:
                failed += 1
                print(done.stdout[-4000:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
