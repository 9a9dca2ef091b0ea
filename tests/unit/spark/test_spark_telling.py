"""Errors as Spark tells them, and the options of a table as Spark remembers them."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StructField, StructType

from topics.spark.catalog import remembered, remembering
from topics.spark.errors import DataLoss, InvalidOption
from topics.spark.telling import telling, tells

SCHEMA = StructType([StructField("seq", LongType()), StructField("total", LongType())])


def test_an_error_is_sparks_own_with_a_condition_and_its_cause() -> None:
    @tells
    def refuse() -> None:
        raise InvalidOption("tag", "is wrong")

    with pytest.raises(PySparkException, match=r"^\[TOPICS_INVALID_OPTION\] option tag: is wrong$") as told:
        refuse()
    assert told.value.getCondition() == "TOPICS_INVALID_OPTION"
    assert told.value.getMessageParameters() == {"option": "tag"}
    assert isinstance(told.value.__cause__, InvalidOption)


def test_what_nobody_expected_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError), telling():
        _ = 1 // 0


def test_a_loss_names_its_topic_and_range() -> None:
    with pytest.raises(PySparkException, match='seqs 1 to 4 of topic "orders"') as told, telling():
        raise DataLoss("orders", 1, 4, "cap")
    assert told.value.getMessageParameters() == {"topic": "orders", "gap_from": "1", "gap_to": "4", "reason": "cap"}


def test_a_table_remembers_its_options_but_not_the_key() -> None:
    made = {"url": "http://x", "option.url": "http://x", "option.apiKey": "s3cret", "apiKey": "s3cret"}
    kept = remembering(SCHEMA, made)
    assert "s3cret" not in kept.json()
    schema, options = remembered(StructType.fromJson(kept.jsonValue()), {"TAG": "t"})
    assert schema == SCHEMA
    assert options == {"url": "http://x", "option.url": "http://x", "TAG": "t"}


def test_options_of_a_query_win_over_those_of_the_table() -> None:
    kept = remembering(SCHEMA, {"option.tag": "a", "tag": "a"})
    found = remembered(kept, {"Tag": "b"})[1]
    assert found["Tag"] == "b"
    assert "tag" not in found


def test_a_frame_that_is_no_table_remembers_nothing() -> None:
    assert remembering(SCHEMA, {"url": "http://x"}) is SCHEMA
