"""What makes Spark small enough for tests."""

SESSION_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.codegen.wholeStage": "false",
    # A short life on few cores: compile lightly, collect simply.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
