"""`topics …`: the command line. What it can do is in the table of `commands`; the chosen command alone is imported."""

import os
import sys

from topics.cli import commands


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] == "help":
        words = [*words[1:2], "--help"]
    if not words or words[0] in {"-h", "--help"}:
        # Help that was asked for is a result; who asked for nothing did something wrong.
        stream = sys.stdout if words else sys.stderr
        bold, plain = ("\x1b[1m", "\x1b[0m") if stream.isatty() and not os.environ.get("NO_COLOR") else ("", "")
        print(commands.overview(bold, plain), end="", file=stream)
        return 0 if words else 2
    if words[0] in {"-V", "--version"}:
        from topics.version import VERSION  # noqa: PLC0415

        print(f"topics {VERSION}")
        return 0
    try:
        # Only here: help and version wait neither for argparse nor for a command.
        from topics.cli.dispatch import dispatch  # noqa: PLC0415

        return dispatch(words)
    except KeyboardInterrupt:
        return 130  # before there was anything to interrupt


if __name__ == "__main__":
    sys.exit(main())
