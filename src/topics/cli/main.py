"""`topics …`: the command line."""

import argparse
import os
import sys

from topics.bench import command as bench
from topics.cli import backup, inspect, restore, verify
from topics.errors import TopicsError
from topics.server.lifecycle import serve
from topics.server.settings import read_settings
from topics.version import VERSION


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="topics", description="A persistent event engine.")
    parser.add_argument("--version", action="version", version=f"topics {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    for command in (verify, inspect, backup, restore, bench):
        command.add_parser(commands)
    chosen = parser.parse_args(arguments)
    run = chosen.run
    try:
        status: int = run(chosen)
    except TopicsError as error:
        print(f"topics: {error.message}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "serve",
        help="run the server",
        description="Runs the server. Settings come from TOPICS_* environment variables; options win over them.",
    )
    for option, variable, meaning in (
        ("--host", "TOPICS_HOST", "address to listen on (127.0.0.1)"),
        ("--port", "TOPICS_PORT", "port to listen on (4000; 0 picks a free one)"),
        ("--data-dir", "TOPICS_DATA_DIR", "directory for the data (./topics-data)"),
    ):
        parser.add_argument(option, dest=variable, metavar="X", help=meaning)
    parser.set_defaults(run=_run_serve)


def _run_serve(chosen: argparse.Namespace) -> int:
    for variable, value in vars(chosen).items():
        if variable.startswith("TOPICS_") and value is not None:
            os.environ[variable] = value
    serve(read_settings())
    return 0


if __name__ == "__main__":
    sys.exit(main())
