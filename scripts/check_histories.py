"""Many random histories: after every operation the log, folded, has to be the live state, and no crash changes what was
shown. `./test` tries a few; this tries as many as it is asked to, and prints the seeds that fail.

    .venv/bin/python scripts/check_histories.py --examples 20000
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from fault.one_history import run, seeded

CHUNK = 250


def check(first: int, count: int, steps: int) -> list[str]:
    failures = []
    for seed in range(first, first + count):
        try:
            run(seeded(seed, steps), 1 + seed % 3, seed)
        except AssertionError as error:
            failures.append(f"seed {seed}: {error}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=100_000, help="the first seed")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    failures: list[str] = []
    done = 0
    firsts = range(asked.first, asked.first + asked.examples, CHUNK)
    counts = [min(CHUNK, asked.first + asked.examples - first) for first in firsts]
    with ProcessPoolExecutor(asked.processes) as pool:
        for count, found in zip(counts, pool.map(check, firsts, counts, [asked.steps] * len(counts)), strict=True):
            done += count
            failures += found
            print(f"\r{done} of {asked.examples} histories, {len(failures)} failures", end="", flush=True)
    print()
    print("\n".join(failures))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
