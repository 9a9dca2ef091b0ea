"""`topics put TOPIC [DATA…]`: writes records, from the command line or, one a line, from stdin.

Lines are written as they come: whatever has gathered while the last write was under way is the next one, up to --batch.
With --producer every record has the number of its line, so that a repeated run adds nothing.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topics import limits
from topics.cli.connection import add_options, connect
from topics.cli.input_lines import Line, lines_of_stdin, numbered
from topics.cli.output import print_json
from topics.cli.parser import Commands, examples
from topics.cli.progress import ProgressLine
from topics.cli.record_input import InvalidLine, Records
from topics.cli.table import counted
from topics.cli.values import InvalidArguments, duration_ms, json_path, key_value, positive_number

if TYPE_CHECKING:
    from topics.client.calls import NewRecord
    from topics.client.sync_client import Client
    from topics.wire.responses import WriteResponse


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "put",
        description="Writes records. Each DATA is a record in JSON; without any, each line of stdin is one. The "
        "options apply to all of them. The topic is created if it does not exist.",
        epilog=examples(
            "topics put orders '{\"sku\":1}' --tag vip:7",
            "topics put orders < orders.ndjson --tag-from .customer",
            "tail -F app.log | topics put logs --text            # each line a JSON string",
            "topics put orders --producer nightly < orders.ndjson   # run it again: nothing is written twice",
            'topics put resize \'{"file":"a.mov"}\' --delay 10m     # a delayed job',
        ),
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("data", metavar="DATA", nargs="*", help="records in JSON (stdin, one a line)")
    parser.add_argument("--text", action="store_true", help="DATA and lines are text, not JSON")
    parser.add_argument("--tag", help="tag of every record")
    parser.add_argument(
        "--tag-from", type=json_path, metavar="PATH", help="take each record's tag from its data: .sku, .customer.id"
    )
    parser.add_argument("--node", help="who writes")
    parser.add_argument(
        "--meta", type=key_value, action="append", default=[], metavar="KEY=VALUE", help="may be repeated"
    )
    parser.add_argument(
        "--delay", type=duration_ms, default=0, metavar="TIME", help="delay the jobs of a queue by this much"
    )
    again = parser.add_argument_group("written once, however often it is sent").add_mutually_exclusive_group()
    again.add_argument(
        "--producer", metavar="NAME", help="number records by line, so that a repeated run adds only what is new"
    )
    again.add_argument("--key", help="the idempotency key of this one write")
    again.add_argument(
        "--key-from",
        type=json_path,
        metavar="PATH",
        help="take each record's idempotency key from its data; each is then a separate write",
    )
    parser.add_argument(
        "--batch",
        type=positive_number,
        default=limits.CLI_BATCH_RECORDS,
        metavar="N",
        help=f"at most this many records in a write ({limits.CLI_BATCH_RECORDS})",
    )
    parser.add_argument("--no-create", action="store_true", help="refuse to create the topic")
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    records = Records(args)
    if args.key is not None and not args.data:
        raise InvalidArguments("--key is for one write of DATA; for stdin use --producer or --key-from")
    if args.key is not None:
        args.batch = len(args.data)
    lines: Iterable[list[Line]] = [numbered(args.data)] if args.data else lines_of_stdin()
    if not args.data and sys.stdin.isatty():
        print("one record a line; Ctrl-D ends", file=sys.stderr)
    with connect(args, patient=True) as client:
        Writing(args, client, records).all(lines)
    return 0


@dataclass(slots=True)
class Tally:
    """What the replies said, added up."""

    written: int = 0
    known: int = 0
    first_seq: int = 0
    last_seq: int = 0
    created: bool = False


class Writing:
    def __init__(self, args: argparse.Namespace, client: "Client", records: Records) -> None:
        self._args = args
        self._client = client
        self._records = records
        self._tally = Tally()
        self._progress = ProgressLine("writing")
        self._next_number = 0  # with a producer: what the topic does not have yet

    def all(self, chunks: Iterable[list[Line]]) -> None:
        try:
            for chunk in chunks:
                for batch in self._batches(chunk):
                    self._write(batch)
        except InvalidLine as error:
            raise error.after(self._tally.written + self._tally.known) from None
        except KeyboardInterrupt:
            self._progress.clear()
            print(f"topics: {self._told()} so far", file=sys.stderr)
            raise
        finally:
            self._progress.clear()
        if not self._args.json:
            print(self._told())

    def _batches(self, chunk: list[Line]) -> Iterator[list[tuple[int, "NewRecord"]]]:
        """Runs of records with contiguous numbers. What was gathered is written before a bad line is reported."""
        size = 1 if self._args.key_from is not None else self._args.batch
        batch: list[tuple[int, NewRecord]] = []
        total_bytes = 0
        for line in chunk:
            try:
                record = self._records.of(line)
            except InvalidLine:
                if batch:
                    yield batch
                raise
            if record is None or line.number < self._next_number - 1:
                self._tally.known += record is not None
                continue
            full = len(batch) >= size or total_bytes + len(line.text) > limits.CLI_BATCH_BYTES
            if batch and (full or line.number != batch[-1][0] + 1):
                yield batch
                batch, total_bytes = [], 0
            batch.append((line.number, record))
            total_bytes += len(line.text)
        if batch:
            yield batch

    def _write(self, batch: list[tuple[int, "NewRecord"]]) -> None:
        from topics.model.producer import Producer  # noqa: PLC0415 (help does not wait for it)

        args = self._args
        producer = None if args.producer is None else Producer(args.producer, batch[0][0])
        key = args.key if args.key_from is None else self._records.key_of(batch[0][1])
        written = [record for _, record in batch]
        reply = self._client.append_many(
            args.topic, written, node=args.node, key=key, producer=producer, create=not args.no_create
        )
        self._count(reply, len(batch))
        if args.json:
            print_json(reply)
        self._progress.tell(f"{self._tally.written:,} records")

    def _count(self, reply: "WriteResponse", sent: int) -> None:
        tally = self._tally
        new = 0 if reply.deduped else reply.count
        tally.known += sent - new
        tally.created |= reply.created
        if reply.next_sequence:
            self._next_number = reply.next_sequence
        if new:
            tally.first_seq = tally.first_seq or reply.first_seq
            tally.last_seq = reply.last_seq
            tally.written += new

    def _told(self) -> str:
        tally, topic = self._tally, self._args.topic
        known = f"{counted(tally.known, 'record')} there already" if tally.known else ""
        if not tally.written:
            return f"{topic}: nothing new, {known}" if known else f"{topic}: nothing to write"
        seqs = f"seq {tally.first_seq:,}" if tally.written == 1 else f"seqs {tally.first_seq:,} to {tally.last_seq:,}"
        more = [part for part in ("a new topic" if tally.created else "", known) if part]
        return f"{topic}: wrote {counted(tally.written, 'record')}, {seqs}" + (f" ({', '.join(more)})" if more else "")
