"""`topics work QUEUE -- COMMAND …`: a shell command as a worker. The job is its stdin, its exit code decides."""

import argparse
import os
import shutil
import sys
from typing import TYPE_CHECKING

from topics.cli.connection import add_options, connect
from topics.cli.output import Paint, Style, duration, print_json
from topics.cli.parser import Commands, examples
from topics.cli.queue import own_node
from topics.cli.table import counted
from topics.cli.values import InvalidArguments, duration_ms, positive_number
from topics.errors import NotAQueue

if TYPE_CHECKING:
    from topics.cli.crew import Done

SOME_FAILED = 1
RETRY_MS_DEFAULT = 5000
GRACE_MS_DEFAULT = 30_000


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "work",
        usage="topics work QUEUE [options] -- COMMAND [ARGUMENT …]",
        description="Runs COMMAND for each job of a queue, until Ctrl-C. The job's data is its stdin; JOB_SEQ, JOB_TAG "
        "and JOB_DELIVERIES are in its environment. Exit code 0 completes the job; with any other the job comes "
        "again, after a longer pause each time. Its lease is kept alive meanwhile. Ctrl-C lets running jobs finish; a "
        "second Ctrl-C does not.",
        epilog=examples(
            "topics work resize -- ./resize.sh",
            "topics work resize -j 8 -- sh -c 'convert \"$(jq -r .file)\" -resize 50% out/$JOB_SEQ.png'",
            "topics work nightly --drain -- ./import.py    # until there is nothing to do; from cron",
        ),
    )
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument("words", metavar="COMMAND", nargs="+", help="after --, with its arguments")
    parser.add_argument("-j", "--concurrency", type=positive_number, default=1, metavar="N", help="jobs at a time (1)")
    parser.add_argument(
        "--drain", action="store_true", help="end when there is nothing to do; status 1 if a job failed"
    )
    parser.add_argument(
        "--retry",
        type=duration_ms,
        default=RETRY_MS_DEFAULT,
        metavar="TIME",
        help="pause before a failed job comes again (5s)",
    )
    parser.add_argument(
        "--grace",
        type=duration_ms,
        default=GRACE_MS_DEFAULT,
        metavar="TIME",
        help="time for running jobs to finish after Ctrl-C (30s)",
    )
    parser.add_argument(
        "--lease", type=duration_ms, metavar="TIME", help="how long a job is leased (as the queue is configured)"
    )
    parser.add_argument("--node", default=f"{own_node()}:{os.getpid()}", help=f"who works ({own_node()}:PID)")
    add_options(parser)
    parser.set_defaults(run=run, until_interrupted=True)


def run(args: argparse.Namespace) -> int:
    if shutil.which(args.words[0]) is None:
        raise InvalidArguments(f"there is no command {args.words[0]}; name one on the PATH, or with its directory")
    with connect(args) as client:
        if client.topic(args.queue).type != "queue":
            raise NotAQueue(args.queue)
    from topics.cli.crew import work  # noqa: PLC0415 (help does not wait for it)

    paint = Paint(sys.stderr)

    def told(done: "Done") -> None:
        if args.json:
            print_json(done)
        else:
            print(_line(done, paint), file=sys.stderr, flush=True)

    def finishing(count: int) -> None:
        if not args.json:
            print(f"finishing {counted(count, 'job')}; Ctrl-C again ends that", file=sys.stderr, flush=True)

    if not args.json:
        print(f"working on {args.queue}, {counted(args.concurrency, 'job')} at a time; Ctrl-C ends", file=sys.stderr)
    counts = work(args, told, finishing)
    if not args.json:
        print(f"{counted(counts.acked, 'job')} done, {counts.retried:,} failed", file=sys.stderr)
    return SOME_FAILED if args.drain and counts.retried else 0


def _line(done: "Done", paint: Paint) -> str:
    took = duration(done.took_ms) if done.took_ms < 2000 else f"{done.took_ms / 1000:.1f} s"
    job = f"job {done.seq}" + (f", delivery {done.deliveries}" if done.deliveries > 1 else "")
    if done.lost_lease:
        return paint(f"! {job}: its lease was lost meanwhile; somebody else has it ({took})", Style.YELLOW)
    if done.exit_code == 0:
        return f"{paint('✓', Style.GREEN)} {job} ({took})"
    how = f"exit code {done.exit_code}" if done.exit_code >= 0 else f"killed by signal {-done.exit_code}"
    return paint(f"✗ {job}: {how} ({took}); again in {duration(done.again_ms)}", Style.RED)
