"""`topics queue …`: the jobs of a queue by hand. `topics work` does the same with a command."""

import argparse
import os
import pwd
from typing import Any

from topics.cli.connection import add_options, connect
from topics.cli.output import clock_time, harmless, print_json, print_table
from topics.cli.parser import Commands, examples
from topics.cli.table import counted
from topics.cli.values import InvalidArguments, duration_ms, positive_number, whole_number

NOTHING = 1
PEEK_DEFAULT = 10


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "queue",
        description="The jobs of a queue, by hand: lease them, complete them, give them back. A lease belongs to a "
        "node, which is you on this machine unless --node says otherwise.",
        epilog=examples(
            'topics put resize \'{"file":"a.mov"}\'',
            "topics queue claim resize",
            "topics queue ack resize 1",
            "topics queue nack resize 2 --delay 30s",
            "topics queue peek resize           # without leasing",
            "topics queue redrive resize        # give dead letters another chance",
        ),
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, what: str, run: Any, *, takes_seqs: bool = False, of_node: bool = False) -> Any:
        added = actions.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        added.add_argument("queue", metavar="QUEUE")
        if takes_seqs:
            added.add_argument("seqs", metavar="SEQ", nargs="+", type=positive_number)
            added.add_argument(
                "--lease-id",
                action="append",
                metavar="ID",
                help="id of the lease, one for each SEQ: a job that was leased again since is left alone",
            )
        if of_node:
            added.add_argument("--node", default=own_node(), help=f"who holds the lease ({own_node()})")
        add_options(added)
        added.set_defaults(run=run)
        return added

    claim = action("claim", "lease jobs; exit status 1 when there are none", claim_jobs, of_node=True)
    claim.add_argument("--max", type=positive_number, default=1, metavar="N", help="how many (1)")
    claim.add_argument("--lease", type=duration_ms, metavar="TIME", help="for how long (as the queue is configured)")
    action("ack", "complete jobs: they are deleted", ack_jobs, takes_seqs=True, of_node=True)
    nack = action("nack", "give jobs back", nack_jobs, takes_seqs=True, of_node=True)
    nack.add_argument(
        "--delay", type=duration_ms, default=0, metavar="TIME", help="wait before they can be claimed again (none)"
    )
    extend = action("extend", "extend leases", extend_leases, takes_seqs=True, of_node=True)
    extend.add_argument("--lease", type=duration_ms, default=30_000, metavar="TIME", help="from now on (30s)")
    peek = action("peek", "look at the first jobs without leasing them", peek_jobs)
    peek.add_argument("-n", type=positive_number, default=PEEK_DEFAULT, metavar="N", help=f"how many ({PEEK_DEFAULT})")
    action("leases", "who holds which job, since when and until when", list_leases)
    redrive = action("redrive", "move dead letters back to their queue", redrive_jobs)
    redrive.add_argument("--max", type=whole_number, metavar="N", help="how many at most (all)")
    redrive.add_argument("--match", metavar="TAG", help="only jobs with this tag; a * at its end matches any ending")


def own_node() -> str:
    """The same in every shell of this person on this machine."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number nobody has
        name = str(os.getuid())
    return f"{name}@{os.uname().nodename}"


def claim_jobs(args: argparse.Namespace) -> int:
    with connect(args) as client:
        jobs = client.claim(args.queue, node=args.node, max=args.max, lease_ms=args.lease).claimed
    for job in jobs:
        if args.json:
            print_json(job)
        else:
            tag = f"  {harmless(job.tag)}" if job.tag is not None else ""
            again = f"  delivery {job.deliveries}" if job.deliveries > 1 else ""
            until = clock_time(job.deadline)
            print(f"{job.seq:>6}  leased until {until}{again}{tag}  {harmless(bytes(job.data).decode())}")
    if not jobs and not args.json:
        print(f"nothing to claim in {args.queue}")
    return 0 if jobs else NOTHING


def ack_jobs(args: argparse.Namespace) -> int:
    with connect(args) as client:
        reply = client.ack(args.queue, args.seqs, node=args.node, lease_ids=_lease_ids(args))
    return _settled(args, reply, reply.acked, "completed")


def nack_jobs(args: argparse.Namespace) -> int:
    with connect(args) as client:
        reply = client.nack(args.queue, args.seqs, node=args.node, lease_ids=_lease_ids(args), delay_ms=args.delay)
    return _settled(args, reply, reply.nacked, "gave back")


def extend_leases(args: argparse.Namespace) -> int:
    with connect(args) as client:
        reply = client.extend(args.queue, args.seqs, node=args.node, lease_ids=_lease_ids(args), lease_ms=args.lease)
    return _settled(args, reply, reply.extended, "extended")


def peek_jobs(args: argparse.Namespace) -> int:
    with connect(args) as client:
        state = client.topic(args.queue)
        leases = {lease.seq: lease for lease in client.leases(args.queue)}
        reply = client.diff(args.queue, from_seq=0, limit=args.n)
    for job in reply.records[: args.n]:
        lease = leases.get(job.seq)
        if args.json:
            print_json(
                {
                    "$seq": job.seq,
                    "$ts": job.ts,
                    "$tag": job.tag,
                    "data": job.data,
                    "leased_to": lease.node if lease else None,
                }
            )
        else:
            held = f"  held by {harmless(lease.node)} until {clock_time(lease.deadline)}" if lease else ""
            tag = f"  {harmless(job.tag)}" if job.tag is not None else ""
            print(f"{job.seq:>6}  {clock_time(job.ts)}{tag}  {harmless(bytes(job.data).decode())}{held}")
    counters = state.queue
    if not args.json and counters:
        print(f"{counters.ready:,} ready, {counters.in_flight:,} in flight, {counters.dead_lettered:,} dead-lettered")
    return 0


def list_leases(args: argparse.Namespace) -> int:
    with connect(args) as client:
        leases = list(client.leases(args.queue))
    if args.json:
        for lease in leases:
            print_json(lease)
    elif not leases:
        print(f"nobody holds a job of {args.queue}")
    else:
        rows = [
            (
                f"{lease.seq:,}",
                harmless(lease.node),
                clock_time(lease.claimed_ts),
                clock_time(lease.deadline),
                f"{lease.deliveries:,}",
                lease.lease_id,
            )
            for lease in leases
        ]
        print_table(
            ("job", "node", "since", "until", "deliveries", "lease"), rows, (True, False, False, False, True, False)
        )
    return 0


def redrive_jobs(args: argparse.Namespace) -> int:
    with connect(args) as client:
        reply = client.redrive(args.queue, max=args.max, match=args.match)
    if args.json:
        print_json(reply)
    elif reply.dead_letter is None:
        print(f"{args.queue} has no dead-letter topic; give it one: topics config {args.queue} --dead-letter TOPIC")
    else:
        print(f"moved {counted(reply.redriven, 'job')} from {reply.dead_letter} back to {args.queue}")
    return 0


def _lease_ids(args: argparse.Namespace) -> list[str] | None:
    if args.lease_id is not None and len(args.lease_id) != len(args.seqs):
        raise InvalidArguments(f"give --lease-id once for each SEQ: {len(args.seqs)} times here")
    ids: list[str] | None = args.lease_id
    return ids


def _settled(args: argparse.Namespace, reply: Any, count: int, verb: str) -> int:
    if args.json:
        print_json(reply)
    else:
        print(f"{verb} {counted(count, 'job')}")
        if reply.skipped:
            seqs = ", ".join(map(str, reply.skipped))
            print(f"left alone: {seqs}; {args.node} does not hold them (see topics queue leases {args.queue})")
    return NOTHING if reply.skipped else 0
