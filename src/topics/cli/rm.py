"""`topics rm TOPIC…`: deletes topics with all they hold, after a question."""

import argparse

from topics.cli.connection import add_options, connect
from topics.cli.output import byte_count, print_json
from topics.cli.parser import Commands, examples
from topics.cli.questions import add_yes, agreed
from topics.cli.table import counted
from topics.errors import TopicNotFound

DECLINED = 1


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "rm",
        description="Deletes topics with everything in them, and the routers from and to them. Asks first. "
        "Exit status: 1 when the answer was no.",
        epilog=examples(
            "topics rm old-orders",
            "topics rm a b c --yes",
            "topics rm jobs --if-empty --yes    # refused while it holds records",
        ),
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument("--if-empty", action="store_true", help="refuse while it holds records")
    add_yes(parser)
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with connect(args) as client:
        states = [client.topic(name) for name in args.topics]
        what = ", ".join(f"{s.topic} ({counted(s.count, 'record')}, {byte_count(s.bytes)})" for s in states)
        if not agreed(args, f"Delete {what} for good?"):
            return DECLINED
        for state in states:
            reply = client.delete_topic(state.topic, if_empty=args.if_empty)
            if not reply.deleted:
                raise TopicNotFound(state.topic)
            if args.json:
                print_json(reply)
            else:
                routers = f", and {', '.join(reply.routers_removed)}" if reply.routers_removed else ""
                print(f"deleted {state.topic}{routers}")
    return 0
