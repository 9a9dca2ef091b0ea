"""`topics config TOPIC`: shows a topic's configuration, or changes what the options name."""

import argparse

from topics.cli.connection import add_options, connect
from topics.cli.output import print_json
from topics.cli.parser import Commands, examples
from topics.cli.topic_options import add_topic_options, chosen, shown


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "config",
        description="Shows a topic's configuration; with options, changes what they name and nothing else. A tighter "
        "TTL or cap applies at once to what is there.",
        epilog=examples(
            "topics config orders",
            "topics config clicks --ttl 1d --cap-bytes 1GB",
            "topics config jobs --dead-letter none --priority auto",
        ),
    )
    parser.add_argument("topic", metavar="TOPIC")
    add_topic_options(parser)
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from msgspec import structs  # noqa: PLC0415 (help does not wait for it)

    wanted = chosen(args)
    with connect(args) as client:
        before = client.topic(args.topic).config
        after = client.configure(args.topic, **wanted).config if wanted else before
    if args.json:
        print_json({"topic": args.topic, "config": after})
        return 0
    was, now = dict(shown(structs.asdict(before))), dict(shown(structs.asdict(after)))
    width = max(len(field) for field in now)
    for field in now | was:
        value, before_it = now.get(field, "unset"), was.get(field, "unset")
        changed = f"   (was {before_it})" if before_it != value else ""
        print(f"{field:<{width}}  {value}{changed}")
    return 0
