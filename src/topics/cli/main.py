"""`topics …`: the command line. A command is a module with `add_parser` and a line in the table."""

import argparse
import os
import sys
from importlib import import_module

from topics.errors import TopicsError
from topics.version import VERSION

COMMANDS = {
    "serve": "topics.cli.serve",
    "verify": "topics.cli.verify",
    "inspect": "topics.cli.inspect",
    "backup": "topics.cli.backup",
    "restore": "topics.cli.restore",
    "pipeline": "topics.cli.pipeline",
    "bench": "topics.bench.command",
}


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="topics", description="A persistent event engine.")
    parser.add_argument("--version", action="version", version=f"topics {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # Only what is asked for is imported: a server that starts does not wait for the benchmark.
    for name in [words[0]] if words and words[0] in COMMANDS else COMMANDS:
        import_module(COMMANDS[name]).add_parser(commands)
    chosen = parser.parse_args(words)
    try:
        status: int = chosen.run(chosen)
    except TopicsError as error:
        print(f"topics: {error.message}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
