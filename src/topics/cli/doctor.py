"""`topics doctor`: whether this machine, its settings and the server are well, and what to change if not.

Exit status: 0 nothing is broken (there may be advice), 1 something is, and a server would not run or would lose data.
"""

import argparse
import os
import sys
from collections.abc import Iterator

from topics.cli.checks import (
    Finding,
    Level,
    clock,
    data_directory,
    files,
    keys,
    memory,
    server,
    settings,
    spark,
    versions,
)
from topics.cli.connection import add_options
from topics.cli.output import Paint, Style, harmless, print_json
from topics.cli.parser import Commands, examples
from topics.cli.table import counted

MARKS = {Level.GOOD: ("✓", Style.GREEN), Level.ADVICE: ("!", Style.YELLOW), Level.BROKEN: ("✗", Style.RED)}


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "doctor",
        description="Checks versions, settings, the data directory and its disk, limits and clock of this machine, "
        "whether Spark would find this package, and the server if one answers. To time the disk it writes a small "
        "file, and removes it. Exit status: 0 nothing is broken, 1 something is.",
        epilog=examples(
            "topics doctor",
            "TOPICS_DATA_DIR=/var/lib/topics topics doctor   # with the settings the server will have",
            "topics doctor --url http://10.0.0.5:4000        # and a server elsewhere",
        ),
    )
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    paint = Paint(sys.stdout)
    found: list[Finding] = []
    for finding in examined(args):
        found.append(finding)
        if args.json:
            print_json({"check": finding.check, "level": finding.level, "found": finding.found, "next": finding.advice})
        else:
            print(rendered(finding, paint), flush=True)
    broken = sum(finding.level is Level.BROKEN for finding in found)
    if not args.json:
        advice = sum(finding.level is Level.ADVICE for finding in found)
        print(f"\n{_verdict(broken, advice)}")
    return 1 if broken else 0


def examined(args: argparse.Namespace) -> Iterator[Finding]:
    environment = dict(os.environ)
    yield versions()
    yield from settings(environment)
    yield keys(environment)
    yield from data_directory(environment.get("TOPICS_DATA_DIR", "").strip() or "./topics-data")
    yield files()
    yield from memory()
    yield from clock()
    yield from spark(environment)
    yield from server(args)


def rendered(finding: Finding, paint: Paint) -> str:
    mark, style = MARKS[finding.level]
    line = f"{paint(mark, style)} {finding.check:<9} {harmless(finding.found)}"
    return f"{line}\n  {'':<9} {paint('→', style)} {harmless(finding.advice)}" if finding.advice else line


def _verdict(broken: int, advice: int) -> str:
    if broken:
        return f"{counted(broken, 'thing')} broken" + (f", {counted(advice, 'thing')} to think about" if advice else "")
    return f"nothing is broken; {counted(advice, 'thing')} to think about" if advice else "all is well"
