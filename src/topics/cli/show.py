"""`topics show TOPIC`: one topic on one page: what is in it, who reads it, what it lost, and how it is configured."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from topics.cli.connection import add_options, connect
from topics.cli.output import Paint, Style, byte_count, print_json, time_of
from topics.cli.parser import Commands, examples
from topics.cli.table import counted
from topics.cli.topic_options import shown

if TYPE_CHECKING:
    from topics.wire.responses import CursorState, LossOut, RouterSummary, TopicState

LOSSES_SHOWN_MAX = 10


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "show",
        description="Shows a topic: state, configuration, named cursors, routers, and the ledger of what it lost.",
        epilog=examples("topics show orders", "topics show orders --json | jq .head_seq"),
    )
    parser.add_argument("topic", metavar="TOPIC")
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with connect(args) as client:
        state = client.topic(args.topic)
        cursors = client.cursors(args.topic).cursors
        losses = client.losses(args.topic).losses
        routers = [*client.routers(source=args.topic), *client.routers(dest=args.topic)]
    if args.json:
        print_json(_object(state) | {"cursors": cursors, "losses": losses, "routers": routers})
        return 0
    paint = Paint(sys.stdout)
    kind = "queue" if state.type == "queue" else "topic"
    print(f"{paint(state.topic, Style.BOLD)}  {kind} of class {state.config.durability}")
    for name, value in _facts(state):
        print(f"  {name:<10} {value}")
    _print_losses(losses, paint)
    _print_readers(cursors, routers, state.topic)
    print()
    print(paint("configuration", Style.BOLD))
    fields = [
        (field, value)
        for field, value in shown(_object(state.config))
        if field not in {"type", "durability", "durable"}
    ]
    width = max(len(field) for field, _ in fields)
    for field, value in fields:
        print(f"  {field:<{width}}  {value}")
    return 0


def _facts(state: "TopicState") -> list[tuple[str, str]]:
    facts = [
        ("records", f"{state.count:,} ({byte_count(state.bytes)})"),
        (
            "seqs",
            f"{state.earliest_seq:,} to {state.head_seq:,}"
            if state.count
            else f"none live; head is {state.head_seq:,}",
        ),
        ("written", time_of(state.last_write_ts) if state.last_write_ts else "never"),
        ("read", time_of(state.last_read_ts) if state.last_read_ts else "never"),
    ]
    queue = state.queue
    if queue:
        facts.append(
            ("jobs", f"{queue.ready:,} ready, {queue.in_flight:,} in flight, {queue.dead_lettered:,} dead-lettered")
        )
    return facts


def _print_losses(losses: "list[LossOut]", paint: Paint) -> None:
    if not losses:
        return
    lost = sum(loss.gap_to - loss.gap_from + 1 for loss in losses)
    print()
    print(paint(f"lost: {lost:,} in {counted(len(losses), 'range')}", Style.RED))
    for loss in losses[-LOSSES_SHOWN_MAX:]:
        print(paint(f"  ✗ {loss.gap_from:,} to {loss.gap_to:,}  {loss.reason}, last {time_of(loss.ts)}", Style.RED))
    if len(losses) > LOSSES_SHOWN_MAX:
        print(f"  and {len(losses) - LOSSES_SHOWN_MAX} earlier ones (--json has all)")


def _print_readers(cursors: "list[CursorState]", routers: "list[RouterSummary]", topic: str) -> None:
    if cursors:
        print("\ncursors")
        width = max(len(cursor.name) for cursor in cursors)
        for cursor in cursors:
            behind = f"{cursor.lag:,} behind" if cursor.lag else "at the head"
            print(f"  {cursor.name:<{width}}  seq {cursor.seq:,}, {behind}")
    if routers:
        print("\nrouters")
        for router in routers:
            other = f"to {router.dest}" if router.source == topic else f"from {router.source}"
            print(f"  {router.router}  {other}, {router.forwarded_total:,} copied")


def _object(value: Any) -> dict[str, Any]:
    from msgspec import UNSET, structs  # noqa: PLC0415 (help does not wait for it)

    return {
        name: field for name, field in structs.asdict(value).items() if field is not UNSET and name != "performance"
    }
