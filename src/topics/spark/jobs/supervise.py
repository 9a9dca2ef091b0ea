"""Runs jobs again and again, each in its own thread, and reports each run.

A job that fails is tried again after a growing wait, and does not affect the others. Jobs that write to one archive
take turns. When asked to stop, jobs finish their current run.
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
"""A run that ends before this reports only its outcome."""
IDLE_TOLD_MS = 60_000
"""How often a job reports that it keeps finding nothing new."""


class Outcome(Struct, frozen=True):
    """What a run did. `lag`: records that waited when it ended, if known. `wrong`: what it found to be wrong, as an
    audit does; then the run has failed, but trying again at once would find the same."""

    rows: int
    lag: int | None = None
    accounts: tuple[Account, ...] = ()
    wrong: str | None = None


@dataclass(frozen=True, slots=True)
class Supervised:
    """`job` is the kind, `name` the user's own. `run` makes one run; if it raises, the run has failed. Jobs with the
    same `turn` never run at the same time."""

    name: str
    job: str
    every_s: float
    run: Callable[[], Outcome]
    turn: threading.Lock = field(default_factory=threading.Lock)


Tell = Callable[[Report], None]


def supervise(
    jobs: Sequence[Supervised], tell: Tell, stop: threading.Event, *, once: bool = False, clock: Clock | None = None
) -> dict[str, int]:
    """Runs the jobs until `stop` is set and their current runs have ended, or each once if `once`. Returns how many
    runs of each job failed in a row at the end."""
    runners = [_Runner(job, tell, stop, once, clock or SystemClock()) for job in jobs]
    # Daemons, so that a second Ctrl-C ends the process without waiting for them.
    threads = [threading.Thread(target=runner.run, name=runner.job.name, daemon=True) for runner in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.5)  # returns now and then, so that signals are handled
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
        """Whether the previous run found nothing new."""
        self._told_ms = 0
        self._telling = threading.Lock()
        self._running = 0
        """The number of the current run, or 0."""

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
        """Makes a run and returns how long to wait for the next one."""
        self._number += 1
        began_ns = self._clock.monotonic_ns()
        try:
            with self._told_if_long():
                outcome = self.job.run()
        except Exception as error:  # whatever it is, it concerns only this job, and the report has it
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
    return f"{type(error).__name__}: {error}"  # raised by the user's own function
