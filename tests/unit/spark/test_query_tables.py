"""Tables a query reads from that nobody has: found without Spark, and never where Spark might know better."""

import pytest

from topics.spark.jobs.query_views import unknown_tables

KNOWN = ["orders", "shop_eu", "archive", "archive_orders"]


@pytest.mark.parametrize(
    ("sql", "unknown"),
    [
        ("SELECT * FROM ordes", ["ordes"]),
        ("select count(*) from `Ordes` where seq > 3", ["Ordes"]),
        ("SELECT a.seq FROM orders a JOIN shipments b USING (seq)", ["shipments"]),
        ("SELECT * FROM (SELECT * FROM nothing)", ["nothing"]),
        ("SELECT * FROM Orders, archive", []),
        ("SELECT 1", []),
        ("WITH big AS (SELECT * FROM orders), small (n) AS (SELECT 1) SELECT * FROM big JOIN small", []),
        ("SELECT extract(day FROM ts), substring(tag FROM 2) FROM orders", []),
        ("SELECT * FROM orders WHERE tag IS DISTINCT FROM node", []),
        ("SELECT 'from nowhere', \"from here\" FROM orders -- from the start\n/* join us */", []),
        ("SELECT * FROM range(10) JOIN explode(array(1))", []),
        ("SELECT * FROM VALUES (1) AS t(a)", []),
        ("SELECT * FROM parquet.`/tmp/x`", []),
        ("SELECT * FROM orders LATERAL VIEW explode(array(1)) t AS a", []),
    ],
)
def test_only_a_plain_name_that_nobody_has_is_unknown(sql: str, unknown: list[str]) -> None:
    assert unknown_tables(sql, KNOWN) == unknown
