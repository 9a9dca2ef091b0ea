"""`topics bench`: options, the run, and the exit status.

Exit status: 0 measured, 1 errors in the replies (or, with `--check`, a bound missed or not proven),
2 the run could not be made, 130 interrupted.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

from topics.bench.comparison import WorkloadResult, compare
from topics.bench.curve_measurement import ALL_CURVES, SCALE_CURVES, CurveSettings
from topics.bench.curve_measurement import RECORDS_MAX as CURVE_RECORDS_MAX
from topics.bench.curve_measurement import TOPICS_MAX as CURVE_TOPICS_MAX
from topics.bench.curve_picture import keep_curve
from topics.bench.curves import Curve, render_curves
from topics.bench.errors import BenchError
from topics.bench.live_workload import MediaRoom
from topics.bench.marks import Key, lines_of, read_earlier, render_marks
from topics.bench.measurement import Measurement, MeasurementResult
from topics.bench.plan import REQUESTS_MAX_DEFAULT, WARM_UP_S_DEFAULT, LoadSettings
from topics.bench.report import render_figures, render_json, render_text
from topics.bench.targets import (
    Target,
    TargetKind,
    empty_handler,
    nats,
    nats_binary,
    own_server,
    redis,
    redis_binary,
    target_at,
)
from topics.bench.workload import Workload
from topics.bench.workloads import DURABILITY_CLASSES, EVERYTHING, Sizes, select, select_measurements, selections

CONNECTIONS_MAX = 1000
SECONDS_MAX = 600.0
ROUNDS_MAX = 100
PARTICIPANTS_MAX = 1000
PACKETS_PER_S_MAX = 1000
RECORDS_MAX = 100_000_000
TOPICS_MAX = 1_000_000
TARGETS = ("topics", "empty", "redis", "nats")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `bench` to the command line; the parsed arguments carry `run`."""
    summary = "measure this server beside its peers"
    parser = subparsers.add_parser("bench", help=summary, description=f"{summary.capitalize()}.")
    add_arguments(parser)
    parser.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", nargs="?", default=EVERYTHING, choices=selections(), help="what to measure")
    parser.add_argument("--durability", choices=DURABILITY_CLASSES, default="disk", help="class of the topics (disk)")
    parser.add_argument(
        "--targets",
        type=_target_list,
        default=TARGETS,
        metavar="LIST",
        help="what the benchmark starts itself, separated by commas: topics,empty,redis,nats (all)",
    )
    parser.add_argument(
        "--url", action="append", default=[], help="also measure the /v0 server at this URL (repeatable)"
    )
    parser.add_argument(
        "--against-checkout",
        type=Path,
        metavar="DIR",
        help="also measure the server of another checkout, and show how much faster this one is (. shows the noise)",
    )
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="show each number beside that of an earlier run, kept with --json"
    )
    parser.add_argument("--api-key", default=os.environ.get("TOPICS_API_KEY"), help="key for --url ($TOPICS_API_KEY)")
    parser.add_argument("--allow-remote", action="store_true", help="accept a --url that is not loopback")
    parser.add_argument("--connections", type=_count(CONNECTIONS_MAX), default=16, help="keep-alive connections (16)")
    parser.add_argument("--seconds", type=_seconds, default=2.0, help="seconds a round is measured for (2)")
    parser.add_argument(
        "--warm-up", type=_seconds, default=WARM_UP_S_DEFAULT, help="seconds to warm up before that, not counted"
    )
    parser.add_argument("--rounds", type=_count(ROUNDS_MAX), default=3, help="rounds per target (3)")
    parser.add_argument(
        "--requests",
        type=_count(REQUESTS_MAX_DEFAULT),
        default=REQUESTS_MAX_DEFAULT,
        help="at most this many requests in a round",
    )
    parser.add_argument(
        "--participants",
        type=_count(PARTICIPANTS_MAX),
        default=MediaRoom.participants,
        help="participants of the media room",
    )
    parser.add_argument(
        "--packets",
        type=_count(PACKETS_PER_S_MAX),
        default=MediaRoom.packets_per_s,
        help="packets a second from each participant",
    )
    parser.add_argument(
        "--records",
        type=_count(RECORDS_MAX),
        metavar="N",
        help="records for recovery, memory and spark (1000000) and for scale (3000000)",
    )
    parser.add_argument("--topics", type=_count(TOPICS_MAX), metavar="N", help="topics for scale (100000)")
    parser.add_argument(
        "--curves",
        type=Path,
        metavar="DIR",
        help="measure cost over size instead, and keep numbers and pictures there; with `scale`, only its curves",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round to this file")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a mark is missed, or cannot be trusted")


def run(args: argparse.Namespace) -> int:
    """Measures, prints the report, and gives the exit status."""
    progress = ProgressLine(sys.stderr)
    if args.curves is not None:
        return _draw_curves(args, progress)
    settings = LoadSettings(args.connections, args.seconds, args.warm_up, args.requests)
    room = MediaRoom(args.participants, args.packets)
    results: list[WorkloadResult] = []
    measured: list[MeasurementResult] = []
    notes: list[str] = []
    earlier: dict[Key, float] | None = None
    status = 0
    try:
        if args.against is not None:
            earlier = read_earlier(args.against)
        measurements = _measurements(args)
        with _interrupt_on_terminate(), ExitStack() as stack:
            workloads = select(args.workload, args.durability, room)
            if args.against_checkout is not None and not workloads and not any(each.compares for each in measurements):
                raise BenchError(
                    f"--against-checkout has nothing to compare: {args.workload} measures this checkout alone"
                )
            targets = _targets(args, workloads, stack, notes, progress) if workloads else []
            for workload in workloads:
                results.append(compare(workload, targets, settings, args.rounds, progress.show))
            if targets:
                progress.show("stopping")
        with _interrupt_on_terminate():
            for measurement in measurements:
                measured.append(measurement.measure(progress.show))
    except KeyboardInterrupt:
        notes.append("interrupted: only complete workloads are shown")
        status = 130
    except BenchError as problem:
        progress.clear()
        print(f"topics: {problem.message}", file=sys.stderr)
        status = 2
    progress.clear()
    if results:
        print(render_text(results, notes), end="\n" if measured else "")
    if measured:
        print(render_figures(measured), end="")
    if results or measured:
        marks = render_marks(lines_of(results, measured), earlier)
        print(f"\n{marks}" if marks else "", end="")
        if args.json is not None:
            args.json.write_bytes(render_json(results, notes, settings, args.durability, measured))
    elif status == 130:
        print("topics: interrupted before the first workload was complete", file=sys.stderr)
    return status or _verdict(results, measured, check=args.check)


def _draw_curves(args: argparse.Namespace, progress: "ProgressLine") -> int:
    """Measures the curves, and keeps each as soon as it is measured."""
    measures = {EVERYTHING: ALL_CURVES, "scale": SCALE_CURVES}.get(args.workload)
    if measures is None:
        print(
            f"topics: --curves draws all curves, or those of scale; there are none of {args.workload}", file=sys.stderr
        )
        return 2
    settings = CurveSettings(
        args.durability, args.seconds, args.topics or CURVE_TOPICS_MAX, args.records or CURVE_RECORDS_MAX
    )
    curves: list[Curve] = []
    try:
        args.curves.mkdir(parents=True, exist_ok=True)
        with _interrupt_on_terminate():
            for measure in measures:
                curves.append(measure(settings, progress.show))
                keep_curve(args.curves, curves[-1])
    except KeyboardInterrupt:
        return 130
    except (BenchError, OSError) as problem:
        print(f"topics: {problem}", file=sys.stderr)
        return 2
    finally:
        progress.clear()
        print(render_curves(curves), end="")
    return 0


class ProgressLine:
    """The progress as one line that overwrites itself on a terminal, elsewhere as a plain line for each step."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._overwrites = stream.isatty()

    def show(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}" if self._overwrites else f"{text}\n")
        self._stream.flush()

    def clear(self) -> None:
        if self._overwrites:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _measurements(args: argparse.Namespace) -> list[Measurement]:
    if "topics" not in args.targets:
        return []
    sizes = Sizes(args.records, args.topics, args.rounds, args.against_checkout)
    return select_measurements(args.workload, args.durability, sizes)


def _targets(
    args: argparse.Namespace,
    workloads: Sequence[Workload],
    stack: ExitStack,
    notes: list[str],
    progress: ProgressLine,
) -> list[Target]:
    """Starts the targets asked for. The first is the subject of the ratios: this server, or else the first URL."""
    if args.against_checkout is not None and "topics" not in args.targets:
        raise BenchError("--against-checkout compares with this server: add topics to --targets")
    others = [target_at(url, allow_remote=args.allow_remote, api_key=args.api_key) for url in args.url]
    targets: list[Target] = []
    if "topics" in args.targets:
        progress.show("starting the server")
        targets.append(stack.enter_context(own_server()))
    if args.against_checkout is not None:
        progress.show(f"starting the server of {args.against_checkout}")
        targets.append(stack.enter_context(own_server(args.against_checkout)))
    targets += others
    if "empty" in args.targets:
        progress.show("starting the empty handler")
        targets.append(stack.enter_context(empty_handler()))
    if "redis" in args.targets:
        binary = redis_binary()
        if binary is None:
            notes.append("redis was not measured: there is no redis-server on PATH")
        else:
            progress.show("starting redis")
            for sync_always in sorted({each.synced for each in workloads if TargetKind.REDIS in each.kinds}):
                targets.append(stack.enter_context(redis(binary, sync_always=sync_always)))
    if "nats" in args.targets and any(TargetKind.NATS in each.kinds for each in workloads):
        binary = nats_binary()
        if binary is None:
            notes.append("nats was not measured: there is no nats-server on PATH")
        else:
            progress.show("starting nats")
            targets.append(stack.enter_context(nats(binary)))
    if not targets:
        raise BenchError("nothing to measure: name --targets or a --url")
    return targets


def _verdict(results: list[WorkloadResult], measured: list[MeasurementResult], *, check: bool) -> int:
    failed = any(target.errors for result in results for target in result.targets)
    missed = any(ratio.missed for result in results for ratio in result.ratios)
    missed = missed or any(figure.missed for result in results for figure in result.figures)
    missed = missed or any(figure.missed for result in measured for figure in result.figures)
    # A ratio with a caveat proves nothing, so it cannot pass a check.
    unproven = any(result.caveats for result in results)
    return 1 if failed or (check and (missed or unproven)) else 0


@contextmanager
def _interrupt_on_terminate() -> Iterator[None]:
    """SIGTERM stops the run like Ctrl-C, so that no process it started is left behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _target_list(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    for name in names:
        if name not in TARGETS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(TARGETS)}")
    return names


def _count(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between 1 and {most}")
        return value

    parse.__name__ = "count"  # argparse names the type in its message
    return parse


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {SECONDS_MAX:.0f} s")
    return value
