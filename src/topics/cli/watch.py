"""`topics watch TOPIC…`: everything that happens to topics from now on: records, losses, deletes, catching up."""

import argparse
from typing import TYPE_CHECKING

from topics.cli.connection import add_options, connect
from topics.cli.output import print_json
from topics.cli.parser import Commands, examples
from topics.cli.record_lines import RecordLines, fields_of

if TYPE_CHECKING:
    from topics.cli.following import Happening


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "watch",
        description="Shows what happens to topics from now on, until Ctrl-C: records, losses, topics that are made and "
        "deleted, readers that have caught up. Topics need not be there yet.",
        epilog=examples(
            "topics watch orders",
            "topics watch 'chat:*' audit",
            "topics watch orders --json | jq 'select(.\"$lost\")'    # losses only",
        ),
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help="a name, or a prefix followed by *")
    parser.add_argument("--tag", help="only records with this tag; a * at its end matches any ending")
    parser.add_argument("--fields", type=fields_of, default=(), metavar="LIST", help="as in tail")
    add_options(parser)
    parser.set_defaults(run=run, until_interrupted=True)


def run(args: argparse.Namespace) -> int:
    from topics.cli.following import follow  # noqa: PLC0415 (help does not wait for it)
    from topics.cli.places import there  # noqa: PLC0415

    with connect(args) as client:
        starts = dict.fromkeys(there(client, args.topics))
    shown = Shown(RecordLines(args.json, args.fields, several=True, known=starts), args.json)
    if not args.json:
        for name in starts:
            shown.lines.note(name, "watching from now on")
        if not starts:
            shown.lines.note("", f"there is no {' or '.join(args.topics)} yet; waiting")
    follow(args.url, args.topics, starts, args.tag, shown.happening, caught_up=True)
    return 0


class Shown:
    def __init__(self, lines: RecordLines, as_json: bool) -> None:
        self.lines = lines
        self._json = as_json

    def happening(self, happening: "Happening") -> None:
        from topics.client.events import CaughtUp, TopicDeleted  # noqa: PLC0415

        match happening:
            case CaughtUp():
                self._note(happening.topic, "caught_up", f"caught up at seq {happening.head_seq:,}", happening.head_seq)
            case TopicDeleted():
                self._note(
                    happening.topic, "deleted", f"deleted; its head was {happening.head_seq:,}", happening.head_seq
                )
            case _:
                self.lines.item(happening)

    def _note(self, topic: str, event: str, what: str, head_seq: int) -> None:
        if self._json:
            print_json({"$topic": topic, f"${event}": {"head_seq": head_seq}})
        else:
            self.lines.note(topic, what)
