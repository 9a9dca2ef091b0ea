"""`topics ls [PREFIX]`: the topics there are."""

import argparse

from topics.cli.connection import add_options, connect, overviews
from topics.cli.output import byte_count, print_json, print_table
from topics.cli.parser import Commands, examples
from topics.cli.table import counted


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "ls",
        description="Lists topics by name. Looking changes nothing, not even the order of delivery.",
        epilog=examples(
            "topics ls",
            "topics ls chat:                    # names that begin with chat:",
            "topics ls --json | jq -r .topic",
        ),
    )
    parser.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only names that begin with this")
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    prefix = args.prefix.removesuffix("*")
    with connect(args) as client:
        topics = [topic for page in overviews(client, prefix) for topic in page.topics]
    if args.json:
        for topic in topics:
            print_json(topic)
        return 0
    if not topics:
        print(
            f"no topic begins with {prefix}" if prefix else "no topics yet; make one: topics put orders '{\"sku\":1}'"
        )
        return 0
    rows = [
        (
            topic.topic,
            topic.type,
            f"{topic.count:,}",
            byte_count(topic.bytes),
            f"{topic.head_seq:,}",
            f"{topic.lost:,}" if topic.lost else "",
            topic.durability,
        )
        for topic in topics
    ]
    to_right = (False, False, True, True, True, True, False)
    print_table(("topic", "type", "records", "size", "head", "lost", "class"), rows, to_right)
    print(
        f"\n{counted(len(topics), 'topic')}, {counted(sum(topic.count for topic in topics), 'record')}, "
        f"{byte_count(sum(topic.bytes for topic in topics))}"
    )
    return 0
