"""`pipelines.toml`: jobs that run by themselves, each with its usual command line.

[storage]                            # options of an object store, if an archive is in one
AWS_REGION = "eu-north-1"

[jobs.archive-shop]
run = "archive shop --to archive"
every = "10s"

[jobs.big-orders]
python = "big_orders.py:keep"        # keep(frame) gets what is new
topic = "shop"
every = "1m"
"""

import argparse
import importlib.util
import os
import re
import shlex
import sys
import threading
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from topics.cli.parser import Parser, nearest
from topics.cli.pipeline_job import Common, PipelineJob, archive_at
from topics.cli.values import InvalidArguments
from topics.clock import SystemClock
from topics.errors import TopicNotFound, TopicsError
from topics.limits import PIPELINE_EVERY_MS_MIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from topics.spark.jobs.reports import Account
    from topics.spark.jobs.supervise import Outcome, Supervised

CHECKPOINTS = ".topics-checkpoints"
TIME = "{time}"
KEYS = frozenset(("run", "python", "topic", "every"))
ROWS = {
    "archive": "records", "audit": "records", "compact": "records", "export": "records", "forget": "forgotten",
    "import": "imported", "replay": "appended", "rollup": "records",
}  # fmt: skip
"""For each job that may be in the file, the field of its summary that counts what it did."""
ARCHIVE_OF = {"archive": "to", "compact": "directory", "forget": "archive"}
"""For each job that writes to an archive, the argument that names the archive."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class _QuietParser(Parser):
    def error(self, message: str) -> NoReturn:
        raise InvalidArguments(message)


@dataclass(frozen=True, slots=True)
class FileJob:
    """A job of the file, checked. `archive` is the one it writes to, if it does."""

    name: str
    job: str
    every_s: float
    run: "Callable[[SparkSession], Outcome]"
    archive: str | None = None

    def supervised(self, spark: "SparkSession", turn: threading.Lock) -> "Supervised":
        from topics.spark.jobs.supervise import Supervised  # noqa: PLC0415

        # A separate session, so that no job sees the views or settings of another.
        session = spark.newSession()

        def run() -> "Outcome":
            # And a separate pool: in one pool, jobs would wait for each other's stages.
            session.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
            return self.run(session)

        return Supervised(self.name, self.job, self.every_s, run, turn)


@dataclass(frozen=True, slots=True)
class _Made:
    """What the jobs of the file create: it need not exist yet when other jobs are checked."""

    topics: frozenset[str]
    archives: frozenset[str]

    def will_have(self, error: TopicsError) -> bool:
        from topics.spark.archive.errors import NotAnArchive  # noqa: PLC0415

        if isinstance(error, TopicNotFound):
            return error.detail.get("topic") in self.topics
        return isinstance(error, NotAnArchive) and error.detail.get("directory") in self.archives


def read_file(path: str, common: Common, jobs: Mapping[str, PipelineJob]) -> list[FileJob]:
    """Checks everything before Spark starts, as if each job were run by hand. Raises `InvalidArguments`, which names
    the job."""
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise InvalidArguments(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArguments(f"{path}: {error}") from None
    tables = content.pop("jobs", None)
    _set_storage(path, content.pop("storage", {}))
    if content:
        unknown = next(iter(content))
        near = nearest(unknown, ["jobs", "storage"])
        raise InvalidArguments(f"{path}: there is no {unknown} in it{near}; jobs are [jobs.NAME]")
    if not isinstance(tables, dict) or not tables:
        raise InvalidArguments(f"{path}: there are no jobs in it; a job is [jobs.NAME] with run and every")
    read = {name: _Words.of(f"{path}: job {name}", name, given, jobs) for name, given in tables.items()}
    made = _Made(
        frozenset(words.args.into for words in read.values() if words.args is not None and "into" in words.args),
        frozenset(words.archive for words in read.values() if words.job == "archive" and words.archive is not None),
    )
    return [words.checked(common, jobs, made) for words in read.values()]


def _set_storage(path: str, given: Any) -> None:
    from topics.spark.archive.place import set_options  # noqa: PLC0415

    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise InvalidArguments(f'{path}: options of a store are texts in quotes, such as AWS_REGION = "eu-north-1"')
    try:
        # What is in the environment, or on the command line, goes before the file.
        set_options(given | {name: os.environ[name] for name in given if name in os.environ})
    except TopicsError as error:
        raise InvalidArguments(f"{path}: {error.message}") from None


@dataclass(frozen=True, slots=True)
class _Words:
    """A job as the file has it, its words read. `args` is None for a function of the user's own."""

    where: str
    name: str
    job: str
    every_s: float
    given: Mapping[str, str]
    words: tuple[str, ...] = ()
    args: argparse.Namespace | None = None

    @classmethod
    def of(cls, where: str, name: str, given: Any, jobs: Mapping[str, PipelineJob]) -> "_Words":
        if NAME.fullmatch(name) is None:
            raise InvalidArguments(f"{where}: a name has letters, digits and . _ - after the first, 100 at most")
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise InvalidArguments(f"{where}: run, python, topic and every are texts in quotes")
        for key in given:
            if key not in KEYS:
                raise InvalidArguments(f"{where}: there is no {key}{nearest(key, KEYS)}")
        if "every" not in given or ("run" in given) == ("python" in given):
            raise InvalidArguments(f"{where}: it needs every, and either run or python")
        if "run" in given and "topic" in given:
            raise InvalidArguments(f"{where}: topic goes with python; in run, it is one of the words")
        every_s = _every_s(where, given["every"])
        if "python" in given:
            return cls(where, name, "python", every_s, given)
        try:
            words = tuple(shlex.split(given["run"]))
        except ValueError as error:
            raise InvalidArguments(f"{where}: run cannot be read: {error}") from None
        if not words or words[0] not in ROWS:
            known = ", ".join(sorted(ROWS))
            raise InvalidArguments(f"{where}: run begins with one of {known}{nearest(words[0] if words else '', ROWS)}")
        args = _arguments(where, jobs[words[0]], words)
        if getattr(args, "follow", False):
            raise InvalidArguments(f"{where}: --follow is what every does; leave it out")
        if words[0] == "export" and TIME not in args.to:
            raise InvalidArguments(f"{where}: every run exports to a directory of its own: put {TIME} into --to")
        return cls(where, name, words[0], every_s, given, words, args)

    @property
    def archive(self) -> str | None:
        named = getattr(self.args, ARCHIVE_OF.get(self.job, ""), None)
        return None if named is None else archive_at(named)

    def checked(self, common: Common, jobs: Mapping[str, PipelineJob], made: _Made) -> FileJob:
        if self.args is None:
            return FileJob(self.name, self.job, self.every_s, _own_function(self, common, made))
        job = jobs[self.job]
        of_job = Common(common.url, common.api_key, common.master, common.settings, self.args.checkpoint)
        try:
            job.spec(_arguments(self.where, job, self.words, _now()), of_job)
        except TopicsError as error:
            if not made.will_have(error):
                raise InvalidArguments(f"{self.where}: {error.message}") from error
        return FileJob(self.name, self.job, self.every_s, self._run(job, of_job, made), self.archive)

    def _run(self, job: PipelineJob, common: Common, made: _Made) -> "Callable[[SparkSession], Outcome]":
        def run(spark: "SparkSession") -> "Outcome":
            from topics.spark.jobs.progress import Lag  # noqa: PLC0415
            from topics.spark.jobs.supervise import Outcome  # noqa: PLC0415

            try:
                # Checked again: what it needs may have come or gone since the last run.
                spec = job.spec(_arguments(self.where, job, self.words, _now()), common)
            except TopicsError as error:
                if made.will_have(error):
                    return Outcome(0)  # the job that creates it has not run yet
                raise
            progress = Lag()
            summary: Any = job.run(spark, spec, progress)
            wrong = job.render(summary) if self.job == "audit" and job.status(summary) != 0 else None
            rows = getattr(summary, ROWS[self.job])
            # A roll-up that found nothing new had no batch to report a lag.
            lag = 0 if self.job == "rollup" and rows == 0 else progress.lag
            return Outcome(rows, lag, _accounts(self.job, summary), wrong)

        return run


def _every_s(where: str, text: str) -> float:
    from topics.spark.jobs.rollup_spec import duration_ms  # noqa: PLC0415

    try:
        every_ms = duration_ms(text, "every")
    except TopicsError as error:
        raise InvalidArguments(f"{where}: {error.message}") from None
    if every_ms < PIPELINE_EVERY_MS_MIN:
        raise InvalidArguments(f"{where}: every is {PIPELINE_EVERY_MS_MIN // 1000}s at least")
    return every_ms / 1000


def _arguments(where: str, job: PipelineJob, words: tuple[str, ...], time: str = TIME) -> argparse.Namespace:
    parser = _QuietParser(prog=words[0], add_help=False)
    job.add_arguments(parser)
    parser.add_argument("--checkpoint") if job.takes_checkpoint else parser.set_defaults(checkpoint=None)
    parser.set_defaults(url=None, api_key=None, json=False)
    try:
        return parser.parse_args([word.replace(TIME, time) for word in words[1:]])
    except InvalidArguments as error:
        raise InvalidArguments(f"{where}: {error.message}") from None


def _now() -> str:
    """For names of directories: sorted, they are in the order of time."""
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H-%M-%SZ")


def _accounts(name: str, summary: Any) -> "tuple[Account, ...]":
    """The accounts of a job that accounts for every seq of its topics."""
    from topics.spark.jobs.reports import Account  # noqa: PLC0415

    if name == "audit":
        return tuple(Account(t.topic, t.read, t.deleted, t.lost, t.head_seq) for t in summary.topics)
    if name != "archive":
        return ()
    from topics.spark.archive import table  # noqa: PLC0415

    cuts = table.load(summary.directory).topics.values()
    return tuple(Account(cut.topic, cut.records, cut.deleted, cut.lost, cut.to_seq) for cut in cuts)


def _own_function(words: _Words, common: Common, made: _Made) -> "Callable[[SparkSession], Outcome]":
    path, _, function = words.given["python"].rpartition(":")
    if "topic" not in words.given or not path or not function:
        raise InvalidArguments(f"{words.where}: python is FILE.py:FUNCTION, and topic is what it reads")
    wanted = _function(words.where, path, function)
    from topics.spark.jobs.preflight import require_topics, require_writable  # noqa: PLC0415

    server, topic = common.server(), words.given["topic"]
    checkpoint = os.path.join(CHECKPOINTS, f"up-{words.name}")
    try:
        require_writable(checkpoint, "checkpoint")
        require_topics(server, [topic])
    except TopicsError as error:
        if not made.will_have(error):
            raise InvalidArguments(f"{words.where}: {error.message}") from error

    def run(spark: "SparkSession") -> "Outcome":
        from topics.spark.jobs.own_function import hand_over  # noqa: PLC0415
        from topics.spark.jobs.supervise import Outcome  # noqa: PLC0415

        try:
            require_topics(server, [topic])
        except TopicNotFound as error:
            if made.will_have(error):
                return Outcome(0)
            raise
        return hand_over(spark, server, topic, wanted, checkpoint)

    return run


def _function(where: str, path: str, name: str) -> Callable[[Any], object]:
    spec = importlib.util.spec_from_file_location(f"topics_pipeline_{os.path.basename(path).partition('.')[0]}", path)
    if spec is None or spec.loader is None or not os.path.exists(path):
        raise InvalidArguments(f"{where}: there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidArguments(f"{where}: {path} cannot be imported: {error!r}") from error
    found = getattr(module, name, None)
    if not callable(found):
        functions = [known for known, value in vars(module).items() if callable(value)]
        raise InvalidArguments(f"{where}: {path} has no function {name}{nearest(name, functions)}")
    return found  # type: ignore[no-any-return]  # whatever it returns is not looked at
