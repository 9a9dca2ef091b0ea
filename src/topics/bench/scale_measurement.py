"""What many topics cost: to create and keep them, to stop and start with them, and to write to a hot topic among them.

One server has many topics, another has ten, and the server of an older checkout has as many as the first. The two with
many topics create them in turns, side by side; one with many and one with ten take turns with a hot topic; the rest is
measured one server at a time.
"""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from topics.bench.child_process import cpu_ns
from topics.bench.errors import BenchError
from topics.bench.measurement import Figure, Measurement, MeasurementResult, Progress
from topics.bench.own_process import OWN_SOURCES, OwnProcess, server_on, sources_in
from topics.bench.plan import LoadSettings, ManyTopicsPlan, run_load
from topics.bench.records import BATCH_RECORDS, write_body
from topics.bench.samples import Sample
from topics.bench.targets import target_of
from topics.clock import SystemClock
from topics.limits import UNSEALED_BYTES_MAX

TOPICS_DEFAULT = 100_000
FEW_TOPICS = 10
HOT_RECORDS_DEFAULT = 3_000_000
HOT_WRITERS = 2
CONNECTIONS = 16
MAKE_S_MAX = 600.0
STOP_S_MAX = 300.0
READY_S_MAX = 300.0
SLOWED_S = 0.05  # how long a refused writer waits before it tries again
HOT_TURNS = 6
HOT_TURN_SHARE = 10  # each writes this part of the records
HOT_SETTLE_S = 2.5  # after a turn: what was put off is done, and counted, before the other's begins
IDLE_AFTER_S = 30.0
IDLE_S = 5.0
MEMORY_PROBE_S = 0.2

BUDGET_MIB = UNSEALED_BYTES_MAX / 2**20
STOP_TIMES_MAX = 0.03
START_TIMES_MAX = 0.25
START_AFTER_KILL_TIMES_MAX = 0.1
MAKE_TIMES_MIN = 2.5
TOPIC_BYTES_MAX = 3000.0
HOT_TIMES_MIN = 0.9
IDLE_TIMES_MAX = 2.0


@dataclass(frozen=True, slots=True)
class Hot:
    """The result of writing to a hot topic at full speed."""

    records_per_s: float
    added_bytes: int  # at the peak


@dataclass(frozen=True, slots=True)
class Ends:
    """Seconds of a clean stop, and of starts."""

    stop_s: float
    start_after_stop_s: float
    start_after_kill_s: float


class ScaleMeasurement(Measurement):
    name = "scale"
    part_of_everything = False  # it takes a quarter of an hour
    compares = True

    def __init__(self, topics: int | None, records: int | None, checkout: Path | None) -> None:
        self._topics = topics or TOPICS_DEFAULT
        self._records = records or HOT_RECORDS_DEFAULT
        self._sources = {"topics": OWN_SOURCES}
        if checkout is not None:
            self._sources[f"checkout {checkout.resolve().name}"] = sources_in(checkout)

    def measure(self, progress: Progress) -> MeasurementResult:
        figures = self._many_topics(progress)
        progress(f"scale: {FEW_TOPICS} topics, a hot one")
        with _server(OWN_SOURCES) as (server, _):
            _make(FEW_TOPICS, {"topics": server})
            few = write_hot(server, self._records)
        figures += [
            Figure(f"memory added by {self._records} hot records, {FEW_TOPICS} topics", _mib(few), "MiB", BUDGET_MIB),
            *self._hot_turns(progress),
        ]
        return MeasurementResult(
            self.name,
            f"{self._topics} topics with a record each, then {self._records} records into one hot topic",
            tuple(figures),
            ("memory is the kernel's figure for the process without mapped files, at its peak",),
        )

    def _many_topics(self, progress: Progress) -> list[Figure]:
        """Everything with many topics, beside the older server if there is one."""
        ends: dict[str, Ends] = {}
        hot: dict[str, Hot] = {}
        figures: list[Figure] = []
        with ExitStack() as stack:
            lives = {name: stack.enter_context(_server(sources)) for name, sources in self._sources.items()}
            servers = {name: server for name, (server, _) in lives.items()}
            own = servers["topics"]
            progress("scale: an empty server, idle")
            empty_cpu = _idle_cpu(own)
            empty_bytes = own.anonymous_bytes()
            progress(f"scale: making {self._topics} topics")
            made = _make(self._topics, servers)
            topic_bytes = (own.anonymous_bytes() - empty_bytes) / self._topics
            # The older server first, so that this one does not pay for work the older puts off.
            for name in reversed(self._sources):
                server, directory = lives[name]
                if server is own:
                    progress(f"scale: idle with {self._topics} topics")
                    time.sleep(IDLE_AFTER_S)
                    idle = _idle_cpu(own) / empty_cpu
                progress(f"scale: {self._records} hot records, {name}")
                hot[name] = write_hot(server, self._records)
                progress(f"scale: a stop, a start, a kill and a start, {name}")
                ends[name] = self._ends(server, directory, self._sources[name])
        figures += [
            *_make_figures(made),
            Figure("memory of a topic with one record", topic_bytes, "bytes", TOPIC_BYTES_MAX),
            Figure(f"idle CPU with {self._topics} topics ÷ an empty server", idle, "times", IDLE_TIMES_MAX),
            *_ends_figures(ends),
        ]
        what = f"memory added by {self._records} hot records, {self._topics} topics"
        figures += [
            Figure(f"{name}: {what}", _mib(each), "MiB", BUDGET_MIB if name == "topics" else None)
            for name, each in hot.items()
        ]
        return figures

    def _hot_turns(self, progress: Progress) -> list[Figure]:
        """Hot writes with many topics beside those with few, in turns: single bursts differ by 40 %."""
        progress(f"scale: {HOT_TURNS} turns of hot records, {self._topics} and {FEW_TOPICS} topics")
        with _server(OWN_SOURCES) as (many, _), _server(OWN_SOURCES) as (few, _):
            _make(self._topics, {"topics": many})
            _make(FEW_TOPICS, {"topics": few})
            time.sleep(IDLE_AFTER_S)
            seconds, cpu = {many: 0.0, few: 0.0}, {many: 0.0, few: 0.0}
            for turn in range(HOT_TURNS):
                for server in (many, few) if turn % 2 else (few, many):
                    before = _cpu_s(server)
                    seconds[server] += 1 / write_hot(server, self._records // HOT_TURN_SHARE).records_per_s
                    time.sleep(HOT_SETTLE_S)
                    cpu[server] += _cpu_s(server) - before
        what = f"with {self._topics} topics ÷ with {FEW_TOPICS}"
        return [
            Figure(f"hot writes a second {what}", seconds[few] / seconds[many], "times", at_least=HOT_TIMES_MIN),
            Figure(f"CPU of a hot write {what}", cpu[many] / cpu[few], "times"),
        ]

    def _ends(self, server: OwnProcess, directory: Path, sources: Path) -> Ends:
        stop_s = _timed_stop(server)
        with server_on(directory, sources=sources, ready_s_max=READY_S_MAX) as again:
            start_after_stop_s = again.started_s
            _timed_stop(again)
        with _server(sources) as (killed, its_directory):
            _make(self._topics, {"topics": killed})
            write_hot(killed, self._records)
            killed.kill()
            with server_on(its_directory, sources=sources, ready_s_max=READY_S_MAX) as again:
                start_after_kill_s = again.started_s
                _timed_stop(again)
        return Ends(stop_s, start_after_stop_s, start_after_kill_s)


def write_hot(server: OwnProcess, records: int, topic: str = "bench-hot") -> Hot:
    """Writes batches at full speed; a writer that the server slows down tries again a moment later."""
    clock = SystemClock()
    before = server.anonymous_bytes()
    peak = before
    batches = max(records // BATCH_RECORDS, HOT_WRITERS)
    path = f"/v0/topics/{topic}?return_seqs=false"
    problems: list[BenchError] = []

    def write(count: int) -> None:
        body = write_body(0, BATCH_RECORDS)
        try:
            with server.control() as control:
                while count:
                    status = control.status("POST", path, body)
                    if status == 429:
                        time.sleep(SLOWED_S)
                        continue
                    if not 200 <= status < 300:
                        raise BenchError(f"a write to {topic} answered {status}")
                    count -= 1
        except BenchError as problem:
            problems.append(problem)

    writers = [threading.Thread(target=write, args=(batches // HOT_WRITERS,)) for _ in range(HOT_WRITERS)]
    began_ns = clock.monotonic_ns()
    for writer in writers:
        writer.start()
    for writer in writers:
        while writer.is_alive():
            peak = max(peak, server.anonymous_bytes())
            writer.join(MEMORY_PROBE_S)
    if problems:
        raise problems[0]
    seconds = (clock.monotonic_ns() - began_ns) / 1e9
    return Hot(batches * BATCH_RECORDS / seconds, peak - before)


@contextmanager
def _server(sources: Path) -> Iterator[tuple[OwnProcess, Path]]:
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as name:
        directory = Path(name)
        with server_on(directory, sources=sources) as server:
            yield server, directory


def _make(topics: int, servers: dict[str, OwnProcess]) -> dict[str, Sample]:
    """Creates each topic by its first write. Several servers take turns."""
    names = topic_names(topics)
    settings = LoadSettings(CONNECTIONS, MAKE_S_MAX, warm_up_s=0.05)
    plans = [
        ManyTopicsPlan(
            target=target_of(server, name), settings=settings, topics=names, records_per_request=1, once=True
        )
        for name, server in servers.items()
    ]
    made = dict(zip(servers, run_load(plans), strict=True))
    for name, sample in made.items():
        if sample.errors:
            raise BenchError(f"{name}: topics could not be made: {sample.first_error}")
    return made


def make_topics(topics: int, server: OwnProcess) -> list[str]:
    """Creates topics with one record each, at full speed, and returns their names."""
    _make(topics, {"topics": server})
    return topic_names(topics)


def topic_names(topics: int) -> list[str]:
    return [f"bench-scale-{number:06d}" for number in range(topics)]


def _idle_cpu(server: OwnProcess) -> float:
    """The share of a core that an idle server uses."""
    before = _cpu_s(server)
    time.sleep(IDLE_S)
    return max(_cpu_s(server) - before, 1e-9) / IDLE_S


def _cpu_s(server: OwnProcess) -> float:
    spent_ns = cpu_ns(server.process.pid)
    if spent_ns is None:
        raise BenchError("the CPU time of a process cannot be read here")
    return spent_ns / 1e9


def _timed_stop(server: OwnProcess) -> float:
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    server.stop(STOP_S_MAX)
    return (clock.monotonic_ns() - began_ns) / 1e9


def _make_figures(made: dict[str, Sample]) -> list[Figure]:
    subject, *others = made.values()
    figures = [
        Figure(f"{name}: writes that make a topic", each.records_per_s, "a second") for name, each in made.items()
    ]
    for name, other in zip(list(made)[1:], others, strict=True):
        figures.append(
            Figure(
                f"writes that make a topic ÷ {name}",
                subject.records_per_s / other.records_per_s,
                "times",
                at_least=MAKE_TIMES_MIN,
            )
        )
        if subject.cpu_us_per_record is not None and other.cpu_us_per_record:
            ratio = subject.cpu_us_per_record / other.cpu_us_per_record
            figures.append(Figure(f"CPU of a write that makes a topic ÷ {name}", ratio, "times"))
    return figures


def _ends_figures(ends: dict[str, Ends]) -> list[Figure]:
    figures: list[Figure] = []
    for name, each in ends.items():
        figures += [
            Figure(f"{name}: clean stop", each.stop_s, "s"),
            Figure(f"{name}: start after a clean stop", each.start_after_stop_s, "s"),
            Figure(f"{name}: start after a kill", each.start_after_kill_s, "s"),
        ]
    own = ends["topics"]
    for name, each in ends.items():
        if name == "topics":
            continue
        killed = own.start_after_kill_s / each.start_after_kill_s
        figures += [
            Figure(f"clean stop ÷ {name}", own.stop_s / each.stop_s, "times", STOP_TIMES_MAX),
            Figure(
                f"start after a clean stop ÷ {name}",
                own.start_after_stop_s / each.start_after_stop_s,
                "times",
                START_TIMES_MAX,
            ),
            Figure(f"start after a kill ÷ {name}", killed, "times", START_AFTER_KILL_TIMES_MAX),
        ]
    return figures


def _mib(hot: Hot) -> float:
    return hot.added_bytes / 2**20
