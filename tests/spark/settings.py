"""What makes Spark small enough for tests.

Most run in one process. `tests/spark/cluster` runs those of source and sink again, some pipelines, and the tests that
kill, with executors in processes of their own.
TOPICS_TEST_SPARK_MASTER="local-cluster[2,1,1024]" does so with all of them.
"""

import os

# A short life on few cores: compile lightly, collect simply, and do not verify classes, a seventh of a session's start.
LIGHT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
# For sessions a test starts in a process of its own too, as a user does, without settings.
LIGHT_JVM_FOR_ALL = {"SPARK_SUBMIT_OPTS": LIGHT_JVM, "SPARK_LAUNCHER_OPTS": LIGHT_JVM}

CLUSTER = "local-cluster[2,1,1024]"
MASTER = os.environ.get("TOPICS_TEST_SPARK_MASTER", "local[2]")

SESSION_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": LIGHT_JVM,
    "spark.executor.extraJavaOptions": LIGHT_JVM,
}

LOG_SETTINGS = """
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c: %m%n%ex
"""
