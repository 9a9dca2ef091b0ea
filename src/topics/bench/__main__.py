"""`python -m topics.bench`: the benchmark command without the rest of the command line."""

import argparse
import sys

from topics.bench.command import add_arguments, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m topics.bench", description="Measure this server and its peers.")
    add_arguments(parser)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
