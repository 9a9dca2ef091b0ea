"""`topics create TOPIC`: a topic, or a queue, with its configuration."""

import argparse

from topics.cli.connection import add_options, connect
from topics.cli.output import print_json
from topics.cli.parser import Commands, examples
from topics.cli.topic_options import add_topic_options, chosen


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "create",
        description="Creates a topic, or with --queue a queue. Writing to a topic creates it as well, with defaults. "
        "If it exists, the given options are changed and the rest is kept.",
        epilog=examples(
            "topics create orders --durability fsync",
            "topics create clicks --cap-records 100000 --ttl 7d",
            "topics create resize --queue --lease 1m --max-deliveries 5 --dead-letter resize:dead",
        ),
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--queue", action="store_true", help="records are jobs: leased to workers until they ack")
    add_topic_options(parser)
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    wanted = chosen(args) | ({"type": "queue"} if args.queue else {})
    with connect(args) as client:
        reply = client.create(args.topic, **wanted)
    if args.json:
        print_json(reply)
        return 0
    kind = "queue" if reply.config.type == "queue" else "topic"
    if reply.created:
        print(f"created the {kind} {args.topic}")
    else:
        took = "changed the options given" if wanted else "nothing changed"
        print(f"the {kind} {args.topic} was there already: {took}; see topics config {args.topic}")
    return 0
