"""A local Spark session with this source in it, for jobs, notebooks and tests."""

import os
import shutil
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from topics.spark.errors import JavaMissing

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A Python source cannot ask for filters; this setting of the session makes Spark pass them.
    "spark.sql.python.filterPushdown.enabled": "true",
}


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
    # Otherwise Spark starts the first python3 on the PATH, which may not have this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (DEFAULTS | dict(settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
