"""`topics tail TOPIC…`: the last records of topics, and with -f those to come. What was lost is shown, in red."""

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from topics.cli.connection import add_options, connect
from topics.cli.parser import Commands, examples
from topics.cli.record_lines import RecordLines, fields_of
from topics.cli.values import duration_ms, whole_number
from topics.clock import SystemClock

if TYPE_CHECKING:
    from topics.cli.following import Happening
    from topics.cli.places import Item
    from topics.client.reading import Place
    from topics.client.sync_client import Client
    from topics.wire.overview import TopicOverview

COUNT_DEFAULT = 20


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "tail",
        description="Prints the last records of topics in the order of time, and with -f those to come. Losses have a "
        "line of their own, in red, with range and reason.",
        epilog=examples(
            "topics tail orders",
            "topics tail orders -f",
            "topics tail 'chat:*' -f                    # a prefix: topics made later join",
            "topics tail orders --since 2h --tag 'vip:*'",
            "topics tail orders --from-seq 0 --json     # everything, for programs",
            "topics tail orders --fields seq,.customer,.total",
        ),
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help="a name, or a prefix followed by *")
    parser.add_argument(
        "-f",
        "--follow",
        dest="until_interrupted",
        action="store_true",
        help="go on with records as they come, until Ctrl-C",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "-n",
        type=whole_number,
        metavar="N",
        help=f"begin with the last N records of all topics together ({COUNT_DEFAULT})",
    )
    place.add_argument("--since", type=duration_ms, metavar="TIME", help="begin this long ago: 90s, 15m, 2h, 7d")
    place.add_argument("--from-seq", type=whole_number, metavar="SEQ", help="begin after this seq; 0 is the beginning")
    parser.add_argument("--tag", help="only records with this tag; a * at its end matches any ending")
    parser.add_argument(
        "--fields",
        type=fields_of,
        default=(),
        metavar="LIST",
        help="some of topic,seq,ts,tag,node,meta,data, and paths into the data as .sku",
    )
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from topics.cli.places import is_pattern, meant  # noqa: PLC0415 (help does not wait for it)

    several = len(args.topics) > 1 or any(map(is_pattern, args.topics))
    with connect(args) as client:
        topics = meant(client, args.topics)
        lines = RecordLines(args.json, args.fields, several, topics)
        for item in begun(client, topics, args):
            lines.item(item)
    if not args.until_interrupted:
        if not topics and not args.json:
            print(f"no topic begins with {args.topics[0].removesuffix('*')}", file=sys.stderr)
        return 0
    from topics.cli.following import follow  # noqa: PLC0415
    from topics.client.events import CaughtUp, TopicDeleted  # noqa: PLC0415

    def show(happening: "Happening") -> None:
        if isinstance(happening, TopicDeleted):
            print(f"topics: {happening.topic} was deleted", file=sys.stderr)
        elif not isinstance(happening, CaughtUp):
            lines.item(happening)

    follow(args.url, args.topics, {name: topic.head_seq for name, topic in topics.items()}, args.tag, show)
    return 0


def begun(client: "Client", topics: "dict[str, TopicOverview]", args: argparse.Namespace) -> "Iterable[Item]":
    """What is there already: up to the heads as they were when the topics were looked up."""
    from topics.cli.places import from_place, last_of_all  # noqa: PLC0415

    place: Place = {} if args.tag is None else {"tag": args.tag}
    if args.since is not None:
        place["from_time"] = max(SystemClock().now_ms() - args.since, 0)
        return from_place(client, topics.values(), place)
    if args.from_seq is not None:
        place["from_seq"] = args.from_seq
        return from_place(client, topics.values(), place)
    return last_of_all(client, topics.values(), COUNT_DEFAULT if args.n is None else args.n, args.tag)
