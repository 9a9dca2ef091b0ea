"""A local Spark session with this source in it, for jobs, notebooks and tests."""

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from topics.spark.errors import JavaMissing

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A Python source cannot ask for filters; this setting of the session makes Spark pass them.
    "spark.sql.python.filterPushdown.enabled": "true",
}

WORKER_PYTHON = Path(__file__).with_name("worker_python.sh")

JAVA_ADVICE = (
    "Spark needs Java 17 or newer and found none. On Debian or Ubuntu: apt-get install "
    "openjdk-17-jre-headless; on macOS: brew install openjdk@17; elsewhere set JAVA_HOME"
)


def has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    if home is not None:
        return os.access(os.path.join(home, "bin", "java"), os.X_OK)
    return shutil.which("java") is not None


def local_session(
    name: str = "topics", *, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one on this machine. Spark finds the source by itself if the package is
    importable."""
    if not has_java():
        raise JavaMissing(JAVA_ADVICE)
    if "PYSPARK_PYTHON" not in os.environ:
        # Otherwise Spark starts the first python3 on the PATH, which may not have this package.
        os.environ["PYSPARK_PYTHON"] = _python_of_workers(master)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (DEFAULTS | dict(settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _python_of_workers(master: str) -> str:
    """This Python. Where its PySpark is an installed one and the workers run on this machine, they start by way of a
    script."""
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    is_installed = str(Path(pyspark.__file__).parents[1]) in places
    if not master.startswith("local") or not is_installed or not os.access(WORKER_PYTHON, os.X_OK):
        return sys.executable
    os.environ["SPARK_TOPICS_PYTHON"] = sys.executable
    return str(WORKER_PYTHON)
