"""The examples on Spark, in the session of all tests here."""

import runpy
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark.readings import history
from spark.server import RestartableServer

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(script: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / script))


def test_readings_are_rolled_up_by_device_and_minute_once_the_minute_is_over(
    spark: SparkSession, own_server: RestartableServer, tmp_path: Path
) -> None:
    write, roll_up = example("iot-rollups/devices.py")["write"], example("iot-rollups/rollup.py")["roll_up"]
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)

    with own_server.client() as client:
        client.create("readings")
        write(client, "attic", [(noon + timedelta(seconds=20 * n), 20.0 + n) for n in range(3)])
        write(client, "cellar", [(noon + timedelta(seconds=59), 8.0), (noon + timedelta(minutes=10), 9.0)])
    roll_up(spark, own_server.url, str(tmp_path / "checkpoint"))
    found = [record["data"] for record in history(own_server.topic("readings.minutes"))[0].values()]
    rolled_up = sorted((each["device"], each["readings"], each["min"], each["avg"], each["max"]) for each in found)
    assert rolled_up == [("attic", 3, 20.0, 21.0, 22.0), ("cellar", 1, 8.0, 8.0, 8.0)]


def test_changes_of_a_table_are_captured_once_and_make_the_same_table(
    spark: SparkSession, own_server: RestartableServer
) -> None:
    capturing = example("cdc-sqlite/capture.py")
    current_rows = example("cdc-sqlite/table.py")["current_rows"]
    database = sqlite3.connect(":memory:")
    try:
        database.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, price INTEGER)")
        for _ in range(2):
            capturing["setup"](database, "products")
        database.executemany("INSERT INTO products VALUES (?, ?, ?)", [(1, "kettle", 1), (2, "mill", 2), (3, "cup", 3)])
        database.commit()
        database.execute("INSERT INTO products VALUES (4, 'never', 0)")
        database.rollback()
        with own_server.client() as client:
            assert capturing["capture"](database, client, "products") == 3
            database.execute("UPDATE products SET price = 20 WHERE id = 2")
            database.execute("DELETE FROM products WHERE id = 3")
            database.commit()
            assert capturing["capture"](database, client, "products") == 2
            assert capturing["capture"](database, client, "products") == 0
        rows = current_rows(spark, own_server.url, "products", "id: bigint, name: string, price: bigint")
        assert sorted(tuple(row) for row in rows.collect()) == database.execute("SELECT * FROM products").fetchall()
    finally:
        database.close()
