"""`topics cursor ls|set|rm`: named cursors, by which readers remember on the server how far they are."""

import argparse

from topics.cli.connection import add_options, connect
from topics.cli.output import print_json, print_table, time_of
from topics.cli.parser import Commands, examples
from topics.cli.values import whole_number

MISSING = 1


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "cursor",
        description="Named cursors: how far somebody has read a topic, kept by the server.",
        epilog=examples(
            "topics cursor ls orders",
            "topics cursor set orders billing 480    # everything up to seq 480 is done",
            "topics cursor rm orders billing",
        ),
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("ls", help="the cursors of a topic, and how far behind they are")
    listing.set_defaults(run=list_cursors)
    setting = actions.add_parser("set", help="set a cursor, new or existing")
    setting.set_defaults(run=set_cursor)
    removal = actions.add_parser("rm", help="forget a cursor")
    removal.set_defaults(run=remove_cursor)
    for each in (listing, setting, removal):
        each.add_argument("topic", metavar="TOPIC")
        if each is not listing:
            each.add_argument("name", metavar="NAME")
        if each is setting:
            each.add_argument("seq", metavar="SEQ", type=whole_number, help="the last seq that was processed")
        add_options(each)


def list_cursors(args: argparse.Namespace) -> int:
    with connect(args) as client:
        cursors = client.cursors(args.topic).cursors
    if args.json:
        for cursor in cursors:
            print_json(cursor)
    elif not cursors:
        print(f"{args.topic} has no named cursors")
    else:
        rows = [(c.name, f"{c.seq:,}", f"{c.lag:,}", time_of(c.updated_ts)) for c in cursors]
        print_table(("cursor", "seq", "lag", "set at"), rows, (False, True, True, False))
    return 0


def set_cursor(args: argparse.Namespace) -> int:
    with connect(args) as client:
        cursor = client.set_cursor(args.topic, args.name, args.seq)
    if args.json:
        print_json(cursor)
    else:
        print(f"{args.name} is at seq {cursor.seq:,} of {args.topic}, {cursor.lag:,} behind its head")
    return 0


def remove_cursor(args: argparse.Namespace) -> int:
    with connect(args) as client:
        reply = client.delete_cursor(args.topic, args.name)
    if args.json:
        print_json(reply)
    else:
        print(f"{args.topic} forgot {args.name}" if reply.deleted else f"{args.topic} has no cursor {args.name}")
    return 0 if reply.deleted else MISSING
