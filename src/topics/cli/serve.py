"""`topics serve`: the server, until SIGINT or SIGTERM."""

import argparse
import os

from topics.server.lifecycle import serve
from topics.server.settings import read_settings, split_address


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "serve",
        description="Runs the server. Settings come from TOPICS_* environment variables; options win over them.",
    )
    for option, variable, meaning in (
        ("--host", "TOPICS_HOST", "address to listen on (127.0.0.1)"),
        ("--port", "TOPICS_PORT", "port to listen on (4000; 0 picks a free one)"),
        ("--data-dir", "TOPICS_DATA_DIR", "directory for the data (./topics-data)"),
    ):
        parser.add_argument(option, dest=variable, metavar="X", help=meaning)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.TOPICS_PORT is not None and args.TOPICS_HOST is None and "TOPICS_HOST" in os.environ:
        # A port in the environment's TOPICS_HOST wins over TOPICS_PORT, but not over the option.
        os.environ["TOPICS_HOST"], _ = split_address(os.environ["TOPICS_HOST"].strip())
    for variable, value in vars(args).items():
        if variable.startswith("TOPICS_") and value is not None:
            os.environ[variable] = value
    serve(read_settings())
    return 0
