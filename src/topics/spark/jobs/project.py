"""`init` writes a project of Spark Declarative Pipelines over topics; `run` runs it.

Spark has its own command for that, `spark-pipelines`, which starts its own processes: `run` finds it, gives it the
Python that has this package, and passes on what it prints.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Event

from msgspec import Struct
from pyspark.sql import SparkSession

from topics.client.core import Address
from topics.client.sockets import listens
from topics.clock import SystemClock, monotonic_ms
from topics.model.names import check_topic_name
from topics.spark.errors import InvalidOption, PipelineError
from topics.spark.jobs.progress import Progress
from topics.spark.jobs.project_files import project_files
from topics.spark.options import API_KEY_VARIABLE

SPEC_FILES = ("spark-pipeline.yml", "spark-pipeline.yaml")
CONNECT_PORT = 15002
CONNECT_PORT_WAIT_S = 30.0
LINES_KEPT = 400  # enough for the error and a stack trace or two

_CONSEQUENCE = "[INVALID_HANDLE."
_SAID = re.compile(r"\b[\w.$]+(?:Exception|Error)\)?:? (?P<what>.+)")


class NotAProject(PipelineError):
    """There is no pipeline in the directory. `topics pipeline init DIR` writes one."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has no spark-pipeline.yml; topics pipeline init writes a project", path=path)


class ProjectExists(PipelineError):
    """The directory is not empty, and nothing is overwritten: name an empty or a new one."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not empty; name a directory that is, or a new one", path=path)


class PipelinesMissing(PipelineError):
    """Spark's declarative pipelines need packages that are not installed. The message says how to install them."""

    def __init__(self, package: str) -> None:
        super().__init__(
            f'declarative pipelines need {package}; install it with: pip install "topics-engine[pipelines]"'
        )


class ConnectPortInUse(PipelineError):
    """Another pipeline runs on this machine, or has just ended, and Spark gives all of them the same port. Run it again
    later."""

    def __init__(self) -> None:
        super().__init__(
            f"port {CONNECT_PORT} is in use: Spark runs one pipeline at a time on a machine. Wait for the other one, "
            "or name a Spark Connect server: --master sc://host:15002"
        )


class PipelineFailed(PipelineError):
    """The pipeline failed. What it had committed stays; run it again once the cause is gone."""


@dataclass(frozen=True, slots=True)
class InitSpec:
    directory: str
    topic: str
    url: str


class InitSummary(Struct, frozen=True):
    directory: str
    files: list[str]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """`said` gets every line the pipeline prints."""

    directory: str
    master: str
    settings: Mapping[str, str]
    api_key: str | None
    full_refresh: bool
    said: Callable[[str], None]


class RunSummary(Struct, frozen=True):
    directory: str
    completed: bool


def check_init(spec: InitSpec) -> None:
    check_topic_name(spec.topic, "--topic")
    Address.of(spec.url)
    if os.path.exists(spec.directory) and (not os.path.isdir(spec.directory) or os.listdir(spec.directory)):
        raise ProjectExists(spec.directory)


def init_project(spark: SparkSession | None, spec: InitSpec, progress: Progress) -> InitSummary:
    """Needs no session. All files appear at once: the directory gets its name once it is complete."""
    check_init(spec)
    target = os.path.abspath(spec.directory)
    partial = f"{target}.incomplete"
    shutil.rmtree(partial, ignore_errors=True)
    files = project_files(os.path.basename(target), f"file://{target}/storage", spec.url, spec.topic)
    for path, text in files.items():
        full = os.path.join(partial, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
    os.replace(partial, target)
    return InitSummary(spec.directory, list(files))


def check_run(spec: RunSpec) -> str:
    """Refuses what it can before Spark starts; returns the path of the specification."""
    for package in ("grpc", "grpc_status", "google.rpc", "zstandard", "yaml"):
        if find_spec(package.partition(".")[0]) is None:
            raise PipelinesMissing(package)
    if not spec.master.startswith(("local", "sc://")):
        raise InvalidOption(
            "master",
            f"{spec.master}: a pipeline runs on this machine, local[*], or on a Spark Connect server, sc://host:15002",
        )
    for name in SPEC_FILES:
        path = os.path.join(spec.directory, name)
        if os.path.isfile(path):
            return os.path.abspath(path)
    raise NotAProject(spec.directory)


def run_project(spark: SparkSession | None, spec: RunSpec, progress: Progress) -> RunSummary:
    """Needs no session: Spark's command starts its own processes."""
    path = check_run(spec)
    if spec.master.startswith("local"):
        await_connect_port()
    command = [spark_pipelines(), "run", "--spec", path, "--remote", spec.master]
    for name, value in spec.settings.items():
        command += ["--conf", f"{name}={value}"]
    if spec.full_refresh:
        command.append("--full-refresh-all")
    environment = os.environ | {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    if spec.api_key is not None:
        environment[API_KEY_VARIABLE] = spec.api_key
    last: list[str] = []
    with subprocess.Popen(
        command,
        cwd=os.path.dirname(path),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = [*last[1 - LINES_KEPT :], line.rstrip()]
            spec.said(line.rstrip())
    if process.returncode:
        raise PipelineFailed(f"the pipeline in {spec.directory} failed: {reason_of(last)}")
    return RunSummary(spec.directory, completed=True)


def await_connect_port(wait_s: float = CONNECT_PORT_WAIT_S) -> None:
    """Waits until the port of Spark's local server is free. It is always the same one, and the server of a pipeline
    that has just ended would accept the next pipeline as its own."""
    clock = SystemClock()
    deadline_ms = monotonic_ms(clock) + wait_s * 1000
    while listens("127.0.0.1", CONNECT_PORT):
        if monotonic_ms(clock) >= deadline_ms:
            raise ConnectPortInUse
        Event().wait(0.2)


def spark_pipelines() -> str:
    """The path of `spark-pipelines` in this Python's PySpark."""
    beside = os.path.join(os.path.dirname(sys.executable), "spark-pipelines")
    found = beside if os.access(beside, os.X_OK) else shutil.which("spark-pipelines")
    if found is None:
        raise InvalidOption("pyspark", "its command spark-pipelines is not on the PATH")
    return found


def reason_of(lines: list[str]) -> str:
    """The first line that names an error, without its classes. A closed session is only the consequence of an error,
    and may be printed before it."""
    errors = [said["what"] for line in lines if (said := _SAID.search(line)) is not None]
    causes = [error for error in errors if _CONSEQUENCE not in error]
    return next(iter(causes or errors or lines[-1:]), "it printed nothing")
