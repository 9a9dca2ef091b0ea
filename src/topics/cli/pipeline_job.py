"""What a job of `topics pipeline` is to the command line. Each job is a module with one of these as `JOB`.

Nothing of Spark is imported before a job is asked for and its arguments are read: `spec`, `run` and `render` import
what they need themselves.
"""

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from topics.spark.jobs.progress import Progress
    from topics.spark.options import Server


@dataclass(frozen=True, slots=True)
class Common:
    """The options jobs have. A job that speaks to no server, or keeps no checkpoint, never asks for either."""

    url: str
    """`--url`, else TOPICS_URL, else this machine's."""
    api_key: str | None
    master: str
    settings: Mapping[str, str]
    checkpoint: str | None

    def server(self) -> "Server":
        """The server of `--url`, once it answered: an address nobody listens at is refused before Spark starts."""
        from topics.spark.jobs.preflight import reachable_server  # noqa: PLC0415

        return reachable_server(self.url, self.api_key)


@dataclass(frozen=True, slots=True)
class PipelineJob:
    """`spec` makes the job's typed spec from its arguments and checks all that can be checked without Spark; it raises
    a `TopicsError` that says what to do. `run` does the job and returns a summary; `render` is the summary for people,
    `status` the exit status it stands for. `writes`: where a job that changes something does it, told before it begins.
    `takes_url`, `takes_checkpoint`, `takes_storage`: whether `--url`, `--checkpoint` and `--storage` mean something to
    it. `needs_session` is
    False for jobs that start no Spark session of their own: they get None. `needs_java`: whether anything of it runs
    on Spark at all. `settings`: those of Spark it needs."""

    help: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    spec: Callable[[argparse.Namespace, Common], Any]
    run: Callable[["SparkSession", Any, "Progress"], Struct]
    render: Callable[[Any], str]
    status: Callable[[Any], int] = lambda summary: 0
    writes: Callable[[Any], str] | None = None
    takes_url: bool = False
    takes_checkpoint: bool = False
    takes_storage: bool = False
    needs_session: bool = True
    needs_java: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)


def archive_at(text: str) -> str:
    """An archive as jobs know it: the address of one in an object store, or an absolute path."""
    return text.rstrip("/") if "://" in text else os.path.abspath(text)
