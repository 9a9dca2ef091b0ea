"""Questions before something that cannot be undone. Where nobody can be asked, --yes is required."""

import argparse
import sys

from topics.errors import TopicsError


class NotAsked(TopicsError):
    """The question could not be asked: there is no terminal. Add --yes."""


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="don't ask")


def agreed(args: argparse.Namespace, question: str) -> bool:
    """Whether to go on. The question goes to stderr: stdout is for results."""
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise NotAsked(f"{question} There is no terminal to ask at: add --yes, if that is what you want")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if answer.strip().lower() in {"y", "yes"}:
        return True
    print("nothing was changed", file=sys.stderr)
    return False
