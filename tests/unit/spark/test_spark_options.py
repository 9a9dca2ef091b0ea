"""Options: defaults as in Spark's Kafka source, and a refusal that names the option for everything else."""

import pickle

import pytest

from topics.spark import options
from topics.spark.errors import InvalidOption
from topics.spark.options import EARLIEST, LATEST, Files, Mode, OnDataLoss, Server, TableSchema

URL = {"url": "http://localhost:4000"}
BASE = URL | {"subscribe": "orders"}


def read(**given: str) -> options.ReadOptions:
    return options.read_options(BASE | given, Mode.BATCH)


def read_stream(**given: str) -> options.ReadOptions:
    return options.read_options(BASE | given, Mode.STREAMING)


def test_a_batch_reads_from_earliest_to_latest() -> None:
    parsed = read()
    assert (parsed.start.everywhere, parsed.end.everywhere) == (EARLIEST, LATEST)
    assert parsed.on_data_loss is OnDataLoss.FAIL
    assert (parsed.min_partitions, parsed.partition_records_max, parsed.include_data) == (1, None, True)


def test_a_stream_begins_at_latest() -> None:
    assert read_stream().start.everywhere == LATEST


def test_names_of_options_ignore_case() -> None:
    assert options.read_options({"URL": "http://x", "SubScribe": "a"}, Mode.BATCH).topics == ("a",)


def test_topics_are_a_list_in_the_order_of_names() -> None:
    assert read(subscribe="b, a").topics == ("a", "b")


def test_seqs_are_given_by_topic() -> None:
    assert read(startingOffsets='{"orders": 17}').start.seqs == {"orders": 17}


def test_times_are_milliseconds() -> None:
    assert read(startingTimestamp="1700000000000").start.ts == 1_700_000_000_000


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({"failOnDataLoss": "true"}, OnDataLoss.FAIL),
        ({"failOnDataLoss": "false"}, OnDataLoss.WARN),
        ({"failOnDataLoss": "false", "onDataLoss": "rows"}, OnDataLoss.ROWS),
        ({"onDataLoss": "rows"}, OnDataLoss.ROWS),
    ],
)
def test_what_a_loss_does(given: dict[str, str], mode: OnDataLoss) -> None:
    assert read(**given).on_data_loss is mode


def test_tags_become_a_match() -> None:
    assert read(tag="a*").filters.match == ("tag", "Eq", "a*")
    assert read(tagPrefix="a").filters.match == ("tag", "Glob", "a*")


def test_files_need_no_url() -> None:
    given = {"path": "data", "coldPath": "cold", "subscribe": "orders"}
    assert options.read_options(given, Mode.BATCH).origin == Files("data", "cold")


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"subscribeTo": "x"}, "subscribeTo"),
        ({"kafka.bootstrap.servers": "x"}, "kafka.bootstrap.servers"),
        ({"topic": "x"}, "topic"),
        ({"url": "localhost"}, "url"),
        ({"path": "data"}, "url"),
        ({"coldPath": "cold"}, "coldPath"),
        ({"subscribePrefix": "o"}, "subscribe"),
        ({"subscribe": "a,,b"}, "subscribe"),
        ({"subscribe": "a,a"}, "subscribe"),
        ({"subscribe": "no/name"}, "subscribe"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"startingOffsets": "soon"}, "startingOffsets"),
        ({"startingOffsets": "[1]"}, "startingOffsets"),
        ({"startingOffsets": '{"orders": 0}'}, "startingOffsets"),
        ({"startingOffsets": '{"orders": 1.5}'}, "startingOffsets"),
        ({"startingOffsets": '{"orders": true}'}, "startingOffsets"),
        ({"startingOffsets": '{"orders": -1}'}, "startingOffsets"),
        ({"startingOffsets": '{"orders": 1, "other": 1}'}, "startingOffsets"),
        ({"startingOffsets": '{"orders": 100, "orders": 2000}'}, "startingOffsets"),
        ({"startingOffsets": "{}"}, "startingOffsets"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "startingTimestamp"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp"),
        ({"startingTimestamp": "-1"}, "startingTimestamp"),
        ({"maxOffsetsPerTrigger": "10"}, "maxOffsetsPerTrigger"),
        ({"cursor": "c"}, "cursor"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition"),
        ({"minPartitions": "1_0"}, "minPartitions"),
        ({"minPartitions": "１"}, "minPartitions"),
        ({"minPartitions": "2.0"}, "minPartitions"),
        ({"tag": "a", "tagPrefix": "b"}, "tag"),
        ({"tagPrefix": "a*"}, "tagPrefix"),
        ({"includeData": "yes"}, "includeData"),
        ({"failOnDataLoss": "true", "onDataLoss": "warn"}, "failOnDataLoss"),
        ({"onDataLoss": "ignore"}, "onDataLoss"),
        ({"schema": "avro"}, "schema"),
        ({"schema": "kafka", "onDataLoss": "rows"}, "onDataLoss"),
    ],
)
def test_a_batch_read_refuses(given: dict[str, str], option: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        read(**given)
    assert refused.value.detail["option"] == option


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets"),
        ({"endingTimestamp": "1"}, "endingTimestamp"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"cursor": "no/name"}, "cursor"),
    ],
)
def test_a_streaming_read_refuses(given: dict[str, str], option: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        read_stream(**given)
    assert refused.value.detail["option"] == option


@pytest.mark.parametrize(
    ("given", "option"), [({}, "url"), (URL, "subscribe"), (URL | {"subscribePrefix": ""}, "subscribePrefix")]
)
def test_what_is_missing_is_named(given: dict[str, str], option: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        options.read_options(given, Mode.BATCH)
    assert refused.value.detail["option"] == option


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({}, "url"),
        (URL | {"subscribe": "x"}, "subscribe"),
        (URL | {"path": "data"}, "path"),
        (URL | {"topic": "no/name"}, "topic"),
        (URL | {"maxRecordsPerChunk": "10001"}, "maxRecordsPerChunk"),
        (URL | {"maxBytesPerChunk": str(64 * 1024 * 1024)}, "maxBytesPerChunk"),
        (URL | {"createTopics": "perhaps"}, "createTopics"),
    ],
)
def test_a_write_refuses(given: dict[str, str], option: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        options.write_options(given)
    assert refused.value.detail["option"] == option


def test_a_write_takes_what_spark_adds() -> None:
    assert options.write_options(URL | {"checkpointLocation": "x", "topic": "t"}).topic == "t"


def test_the_key_comes_from_the_option_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_API_KEY", "from-environment")
    assert _key(read()) == "from-environment"
    assert _key(read(apiKey="s3cret")) == "s3cret"


def test_the_key_is_never_shown_and_still_travels() -> None:
    parsed = read(apiKey="s3cret")
    assert "s3cret" not in repr(parsed)
    assert "s3cret" not in str(parsed.origin)
    assert _key(pickle.loads(pickle.dumps(parsed))) == "s3cret"


@pytest.mark.parametrize("key", ["", "s3cret\n", "s3 cret", "s3crét"])
def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(InvalidOption, match="option apiKey") as refused:
        read(apiKey=key)
    assert "s3" not in str(refused.value)


def _key(parsed: options.ReadOptions) -> str | None:
    assert isinstance(parsed.origin, Server)
    return None if parsed.origin.api_key is None else parsed.origin.api_key.reveal()


def test_the_schema_is_known_without_the_rest() -> None:
    assert options.table_schema({"schema": "Kafka"}) is TableSchema.KAFKA
