"""`topics restore`: a new data directory from a backup, checked on the way."""

import argparse
import os

from topics.cli.backup import with_progress
from topics.storage.backup import restore
from topics.storage.fs import RealDisk


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "restore",
        description="Copies a backup to a new data directory, and checks every byte. The backup stays as it is.",
    )
    parser.add_argument("backup", metavar="BACKUP", help="a directory made by `topics backup`")
    parser.add_argument("target", metavar="DEST", help="the new data directory; it must be empty or not exist")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    backup, target = os.path.abspath(args.backup), os.path.abspath(args.target)
    with_progress(lambda progress: restore(RealDisk(), backup, target, progress), target, "restored")
    print(f"start a server on it: topics serve --data-dir {args.target}")
    return 0
