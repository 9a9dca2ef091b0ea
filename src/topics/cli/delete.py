"""`topics delete TOPIC`: deletes records, after a preview and a question. Readers see nothing of it: no tombstone."""

import argparse
import sys
from typing import TYPE_CHECKING

from topics.cli.connection import add_options, connect
from topics.cli.output import byte_count, clipped, clock_time, harmless, print_json
from topics.cli.parser import Commands, examples
from topics.cli.questions import add_yes, agreed
from topics.cli.table import counted
from topics.cli.values import InvalidArguments, whole_number

if TYPE_CHECKING:
    from topics.wire.responses import DeletePreviewReply, RecordReply

DECLINED = 1
SAMPLE_SHOWN_MAX = 5
LINE_CHARS_MAX = 100


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "delete",
        description="Deletes records for good, for every reader at once. Shows what would be deleted, and asks. "
        "Exit status: 1 when the answer was no.",
        epilog=examples(
            "topics delete orders --before 1000                # seqs below 1000",
            "topics delete orders --match customer:77          # records with this tag",
            "topics delete orders --match 'customer:*' --before 1000 --preview",
        ),
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--before", type=whole_number, metavar="SEQ", help="records with a smaller seq")
    parser.add_argument("--match", metavar="TAG", help="records with this tag; a * at its end matches any ending")
    parser.add_argument("--preview", action="store_true", help="show what would be deleted, and delete nothing")
    add_yes(parser)
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.before is None and args.match is None:
        raise InvalidArguments(
            f"name the records to delete: --before SEQ, --match TAG, or both; all of them: topics rm {args.topic}"
        )
    with connect(args) as client:
        # A path of its own, never a field: an older server answers 404 here instead of deleting.
        preview = client.preview_delete(args.topic, before_seq=args.before, match=args.match)
        if args.preview or not preview.count:
            if args.json:
                print_json(preview)
            else:
                print("\n".join(_told(args.topic, preview)))
            return 0
        if not args.yes:
            print("\n".join(_told(args.topic, preview)), file=sys.stderr)
        if not agreed(args, f"Delete {counted(preview.count, 'record')} of {args.topic} for good?"):
            return DECLINED
        reply = client.delete(args.topic, before_seq=args.before, match=args.match)
    if args.json:
        print_json(reply)
    else:
        print(f"{args.topic}: deleted {counted(reply.deleted, 'record')}, {reply.count:,} left")
    return 0


def _told(topic: str, preview: "DeletePreviewReply") -> list[str]:
    if not preview.count:
        return [f"{topic}: no record matches; nothing would be deleted"]
    seqs = f"seqs {preview.first_seq:,} to {preview.last_seq:,}" if preview.count > 1 else f"seq {preview.first_seq:,}"
    head = f"{topic}: {counted(preview.count, 'record')} ({byte_count(preview.bytes)}) would be deleted, {seqs}"
    sample = [_sample_line(record) for record in preview.sample[:SAMPLE_SHOWN_MAX]]
    more = preview.count - len(sample)
    return [head, *sample, *([f"  … and {more:,} more"] if more > 0 else [])]


def _sample_line(record: "RecordReply") -> str:
    tag = "" if record.tag is None else f"{record.tag}  "
    text = clipped(f"{tag}{bytes(record.data).decode()}", LINE_CHARS_MAX)
    return f"  {record.seq:>6}  {clock_time(record.ts)}  {harmless(text)}"
