"""`topics backup`: a copy of a data directory that a server can be started on, taken while one runs."""

import argparse
import os
import sys
from collections.abc import Callable

from topics.cli.progress import ProgressLine
from topics.cli.table import counted
from topics.storage.backup import BackupResult, Progress, back_up
from topics.storage.fs import RealDisk

Copy = Callable[[Progress], BackupResult]


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "backup",
        description="Copies a data directory, cold segments included, to a new directory that a server can be "
        "started on. The server may run and write meanwhile; every write it had acknowledged before is in the copy.",
    )
    parser.add_argument("target", metavar="DEST", help="the new directory; it must be empty or not exist")
    parser.add_argument(
        "--data",
        metavar="DIR",
        default=os.environ.get("TOPICS_DATA_DIR", ""),
        help="the data directory ($TOPICS_DATA_DIR)",
    )
    parser.add_argument(
        "--cold",
        metavar="DIR",
        default=os.environ.get("TOPICS_COLD_DIR", ""),
        help="directory of its cold tier ($TOPICS_COLD_DIR)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if not args.data:
        print("topics: name the data directory: --data DIR, or TOPICS_DATA_DIR", file=sys.stderr)
        return 2
    root, target = os.path.abspath(args.data), os.path.abspath(args.target)
    cold_root = os.path.abspath(args.cold) if args.cold else ""
    with_progress(lambda progress: back_up(RealDisk(), root, cold_root, target, progress), target, "copied")
    print(f"start a server on it, or put it elsewhere first: topics restore {args.target} DIR")
    return 0


def with_progress(copy: Copy, target: str, verb: str) -> None:
    progress = ProgressLine("copying")
    try:
        result = copy(progress.show)
    finally:
        progress.clear()
    for error in result.damaged_snapshots:
        print(f"topics: a damaged snapshot was skipped and an older one used: {error.message}", file=sys.stderr)
    print(
        f"{target}: {verb} and checked a snapshot with {counted(result.topics, 'topic')}, "
        f"{counted(result.segments, 'segment')} ({result.copied_bytes / 1e6:.1f} MB), and what came after it: "
        f"{counted(result.wal_frames, 'WAL frame')}"
    )
