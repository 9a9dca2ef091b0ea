"""Every example of docs/spark.md, run one after the other as a reader would, and what it says they print."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.archives import archive_topics
from spark.readings import history
from spark.server import RestartableServer
from topics.spark.options import OPTIONS

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"
ORDERS = (
    ("order-7730", {"sku": "GRINDER", "total": 8900}),
    ("order-7731", {"sku": "AEROPRESS", "total": 3499}),
    ("order-7732", {"sku": "KETTLE", "total": 16500}),
    ("order-7733", {"sku": "FILTERS", "total": 799}),
    ("order-7734", {"sku": "AEROPRESS", "total": 3499}),
)


def blocks(kind: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    return [text for found, text in fenced if found == kind]


def test_every_example_runs_and_prints_what_the_document_says(
    spark: SparkSession, own_server: RestartableServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = own_server.topic("orders")
    orders.configure(cap_records=4)
    for tag, data in ORDERS:
        orders.write({"data": data, "tag": tag})
    archive_topics(spark, own_server, tmp_path / "orders-archive", "orders")
    given = {
        "http://127.0.0.1:4000": own_server.url,
        "topics-data": own_server.data_path,
        "orders-archive": str(tmp_path / "orders-archive"),
        "copier-checkpoint": str(tmp_path / "copier-checkpoint"),
    }
    examples = blocks("python")
    assert len(examples) > 6
    namespace: dict[str, object] = {}
    for example in examples:
        code = example
        for written, here in given.items():
            code = code.replace(written, here)
        exec(compile(code, str(DOCUMENT), "exec"), namespace)
    printed = capsys.readouterr().out
    table = next(block for block in blocks("") if "tombstone" in block)
    assert table in printed
    totals = {record["$tag"]: record["data"]["total"] for record in history(own_server.topic("totals"))[0].values()}
    assert totals == {"AEROPRESS": 6998, "FILTERS": 799, "KETTLE": 16500}
    assert [record["$tag"] for record in history(own_server.topic("orders.copy"))[0].values()] == [
        tag for tag, _ in ORDERS[1:]
    ]
    spark.sql("DROP VIEW orders")


def test_every_option_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    assert [name for name in OPTIONS if f"`{name}`" not in text] == []
