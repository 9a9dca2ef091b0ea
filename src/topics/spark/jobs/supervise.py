"""Jobs that run by themselves: each in a thread of its own, again and again, and each run reported.

A job that fails is tried again, later each time, and no other job is touched by it. Jobs that write to one archive take
turns. Asked to stop, jobs finish the run they are at.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from topics.clock import Clock, SystemClock
from topics.errors import TopicsError
from topics.spark.jobs.reports import DONE, FAILED, STARTED, STOPPED, Account, Report
from topics.spark.jobs.spark_messages import message_of

BACK_OFF_S, BACK_OFF_S_MAX = 1.0, 300.0
ERROR_CHARS_MAX = 2000
STARTED_TOLD_S = 5.0
"""A run that is over before that tells only what came of it."""
IDLE_TOLD_MS = 60_000
"""A job that finds nothing new, run after run, tells of it this often."""


class Outcome(Struct, frozen=True):
    """What a run did. `lag`: records that waited when it ended, where that is known. `wrong`: what it found to be
    wrong, as an audit does. The run is a failed one, but trying again at once would find the same."""

    rows: int
    lag: int | None = None
    accounts: tuple[Account, ...] = ()
    wrong: str | None = None


@dataclass(frozen=True, slots=True)
class Supervised:
    """`job` is the kind, `name` the user's own. `run` is one run, and what it raises is that run's failure. `turn` is
    held meanwhile: jobs with the same one never run at once."""

    name: str
    job: str
    every_s: float
    run: Callable[[], Outcome]
    turn: threading.Lock = field(default_factory=threading.Lock)


Tell = Callable[[Report], None]


def supervise(
    jobs: Sequence[Supervised], tell: Tell, stop: threading.Event, *, once: bool = False, clock: Clock | None = None
) -> dict[str, int]:
    """Until `stop` is set and the jobs have finished what they are at, or, `once`, each has run once. Of each job the
    runs that failed in a row at the end."""
    runners = [_Runner(job, tell, stop, once, clock or SystemClock()) for job in jobs]
    # Daemons: whoever is asked a second time to stop ends without them.
    threads = [threading.Thread(target=runner.run, name=runner.job.name, daemon=True) for runner in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.5)  # so that signals are heard
    return {runner.job.name: runner.failures for runner in runners}


class _Runner:
    def __init__(self, job: Supervised, tell: Tell, stop: threading.Event, once: bool, clock: Clock) -> None:
        self.job = job
        self.failures = 0
        self._tell = tell
        self._stop = stop
        self._once = once
        self._clock = clock
        self._number = 0
        self._idle = False
        """Whether the run before found nothing new."""
        self._told_ms = 0
        self._telling = threading.Lock()
        self._running = 0
        """The number of the run that is under way, or 0."""

    def run(self) -> None:
        while not self._stop.is_set():
            with self.job.turn:
                if self._stop.is_set():
                    break
                wait_s = self._one_run()
            if self._once:
                return
            self._stop.wait(wait_s)
        self._report(STOPPED)

    def _one_run(self) -> float:
        """How long to wait for the next one."""
        self._number += 1
        began_ns = self._clock.monotonic_ns()
        try:
            with self._told_if_long():
                outcome = self.job.run()
        except Exception as error:  # whatever it is, it is this job's, and the report has it
            self.failures += 1
            self._idle = False
            wait_s: float = min(BACK_OFF_S * 2 ** min(self.failures - 1, 20), BACK_OFF_S_MAX)
            self._report(FAILED, wait_s, error=_text(error)[:ERROR_CHARS_MAX])
            return wait_s
        self.failures = 0 if outcome.wrong is None else self.failures + 1
        idle = outcome.rows == 0 and outcome.wrong is None
        if not (idle and self._idle) or self._clock.now_ms() - self._told_ms >= IDLE_TOLD_MS:
            elapsed_ns = max(self._clock.monotonic_ns() - began_ns, 1)
            self._report(
                DONE if outcome.wrong is None else FAILED,
                self.job.every_s,
                rows=outcome.rows,
                rows_per_s=outcome.rows * 1_000_000_000 // elapsed_ns,
                lag=outcome.lag,
                elapsed_ms=elapsed_ns // 1_000_000,
                topics=outcome.accounts,
                error=None if outcome.wrong is None else outcome.wrong[:ERROR_CHARS_MAX],
            )
        self._idle = idle
        return self.job.every_s

    @contextmanager
    def _told_if_long(self) -> Iterator[None]:
        def tell(number: int) -> None:
            with self._telling:
                if self._running == number:
                    self._report(STARTED)

        self._running = self._number
        timer = threading.Timer(STARTED_TOLD_S, tell, [self._number])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._telling:
                self._running = 0

    def _report(self, state: str, wait_s: float | None = None, **more: Any) -> None:
        wait_ms = None if wait_s is None else int(wait_s * 1000)
        self._told_ms = self._clock.now_ms()
        self._tell(
            Report(pipeline=self.job.name, job=self.job.job, state=state, run=self._number, wait_ms=wait_ms, **more)
        )


def _text(error: Exception) -> str:
    if isinstance(error, TopicsError):
        return error.message
    if isinstance(error, PySparkException | Py4JError):
        return message_of(error)
    return f"{type(error).__name__}: {error}"  # of the user's own function
