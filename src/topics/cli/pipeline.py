"""`topics pipeline JOB …`: bulk jobs on Spark. A job is a module with a `JOB` and a line in the table.

Exit status: what the job says (0 in most cases), 2 when it was refused or failed, 130 after Ctrl-C. All a job has
finished by then stays, and the same command goes on from there.
"""

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from topics.cli.connection import URL_DEFAULT, url_default
from topics.cli.pipeline_job import Common, PipelineJob
from topics.cli.spark_noise import quiet_delta, quiet_start
from topics.cli.values import InvalidArguments
from topics.errors import TopicsError
from topics.spark.errors import JavaMissing, SparkMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = {
    "import": "topics.cli.pipeline_import",
    "export": "topics.cli.pipeline_export",
    "rollup": "topics.cli.pipeline_rollup",
    "query": "topics.cli.pipeline_query",
    "init": "topics.cli.pipeline_init",
    "run": "topics.cli.pipeline_run",
    "archive": "topics.cli.pipeline_archive",
    "compact": "topics.cli.pipeline_compact",
    "convert": "topics.cli.pipeline_convert",
    "replay": "topics.cli.pipeline_replay",
    "forget": "topics.cli.pipeline_forget",
    "audit": "topics.cli.pipeline_audit",
    "up": "topics.cli.pipeline_up",
    "status": "topics.cli.pipeline_status",
}

EXAMPLES = {"--conf": "spark.executor.memory=2g", "--storage": "AWS_REGION=eu-north-1"}
FAILED = 2
INTERRUPTED = 130

# A job on the command line is one short conversation: Spark's own is left to its logs.
LOG_SETTINGS = f"file:{os.path.join(os.path.dirname(__file__), 'pipeline_log.properties')}"
SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    # Deep stacks: Spark looks at an interrupted batch with a regular expression that recurses for each character.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_SETTINGS} -Xss64m",
}


class JobFailed(TopicsError):
    """Spark gave up on the job. The message is Spark's own; what was finished before stays."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "pipeline",
        description="Bulk jobs on Spark, on this machine unless --master says otherwise. A job that is interrupted or "
        "killed leaves its last good state; the same command goes on from there.",
    )
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    known: dict[str, PipelineJob] = {name: import_module(module).JOB for name, module in JOBS.items()}
    for name, job in known.items():
        job_parser = jobs.add_parser(name, help=job.help, description=job.description)
        job.add_arguments(job_parser)
        add_common_arguments(job_parser, job)
        job_parser.set_defaults(run=run, pipeline_job=job, pipeline_jobs=known, error_status=FAILED)


def add_common_arguments(parser: argparse.ArgumentParser, job: PipelineJob) -> None:
    parser.set_defaults(url=None, api_key=None, checkpoint=None, storage=[])
    group = parser.add_argument_group("common options")
    if job.takes_url:
        group.add_argument("--url", help=f"the server ($TOPICS_URL, or {URL_DEFAULT})")
        group.add_argument(
            "--api-key", metavar="KEY", help="its API key ($TOPICS_API_KEY, which no process list shows)"
        )
    group.add_argument("--master", default="local[*]", help="where Spark runs (local[*]: all cores of this machine)")
    group.add_argument(
        "--conf", metavar="K=V", action="append", default=[], help="a setting of Spark; may be given many times"
    )
    if job.takes_checkpoint:
        group.add_argument("--checkpoint", metavar="DIR", help="where the job keeps its place (as the job says)")
    if job.takes_storage:
        group.add_argument(
            "--storage",
            metavar="K=V",
            action="append",
            default=[],
            help="an option of the archive's object store, such as AWS_REGION=eu-north-1; may be given many times",
        )
    group.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    job: PipelineJob = args.pipeline_job
    common = Common(
        args.url or url_default(), args.api_key, args.master, settings_of("--conf", args.conf), args.checkpoint
    )
    require_spark(java=job.needs_java)
    if job.takes_storage:
        quiet_delta()
        set_storage(args.storage)
    spec = job.spec(args, common)
    if job.writes is not None:
        print(f"topics: {args.job} writes to {job.writes(spec)}", file=sys.stderr, flush=True)
    try:
        summary = _run_job(job, spec, common, args.job)
    except KeyboardInterrupt:
        print("topics: interrupted; all that was finished stays, and the same command goes on from there",
              file=sys.stderr)  # fmt: skip
        return INTERRUPTED
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode())
    else:
        text = job.render(summary)
        if text:
            print(text)
    return job.status(summary)


def set_storage(pairs: Sequence[str]) -> None:
    from topics.spark.archive.place import set_options  # noqa: PLC0415

    set_options(settings_of("--storage", pairs))


def settings_of(option: str, pairs: Sequence[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise InvalidArguments(f"{option} {pair}: write it as name=value, such as {EXAMPLES[option]}")
        settings[name] = value
    return settings


def require_spark(*, java: bool = True) -> None:
    """Raises `SparkMissing` or `JavaMissing`, each with how to install it."""
    if any(find_spec(package) is None for package in ("pyspark", "pyarrow", "pandas", "deltalake")):
        raise SparkMissing
    from topics.spark.session import JAVA_ADVICE, has_java  # noqa: PLC0415

    if java and not has_java():
        raise JavaMissing(JAVA_ADVICE)


def _run_job(job: PipelineJob, spec: object, common: Common, name: str) -> Any:
    from topics.spark.jobs.progress import Shown  # noqa: PLC0415

    progress = Shown(sys.stderr)
    # Spark makes a directory for tables where it is started, also when there are none.
    with tempfile.TemporaryDirectory(prefix="topics-spark-", ignore_cleanup_errors=True) as scratch:
        session = _session(common, name, scratch, job.settings) if job.needs_session else None
        try:
            return job.run(session, spec, progress)  # type: ignore[arg-type]  # as the job said
        except TopicsError:
            raise
        except Exception as error:
            # Everything Spark raises; a plan and a stack of two languages help nobody who did not write them.
            raise JobFailed(f"{name} failed: {first_line(error)}") from error
        finally:
            progress.end()
            if session is not None:
                session.stop()


def _session(common: Common, name: str, scratch: str, of_job: Mapping[str, str]) -> "SparkSession":
    from topics.spark.session import local_session  # noqa: PLC0415

    # Spark's bridge to Java complains to the root logger about what Ctrl-C broke off; that is no news.
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("topics").addHandler(logging.StreamHandler())
    settings = SETTINGS | {"spark.sql.warehouse.dir": scratch} | dict(of_job) | dict(common.settings)
    with quiet_start():
        return local_session(f"topics {name}", master=common.master, settings=settings)


def first_line(error: Exception) -> str:
    """What went wrong, without the plan and the stack. Python errors of tasks end with their message."""
    text = str(error).strip()
    raised = [line.strip() for line in text.splitlines() if line.strip().startswith("topics.") and "Error" not in line]
    return raised[-1].partition(": ")[2] if raised else (text.splitlines() or [type(error).__name__])[0]
