"""Options: defaults as in Spark's Kafka source, and a refusal that names the option for everything else."""

import pickle

import pytest

from topics.spark import options
from topics.spark.boundary import EARLIEST, LATEST
from topics.spark.errors import InvalidOption
from topics.spark.options import Files, Mode, OnDataLoss, Server

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


def test_times_may_be_iso_8601() -> None:
    assert read(startingTimestamp="2023-11-14T22:13:20Z").start.ts == 1_700_000_000_000
    assert read(startingTimestamp="2023-11-14T23:13:20.0001+01:00").start.ts == 1_700_000_000_001
    assert read(startingTimestamp="2023-11-14").start.ts == 1_699_920_000_000


def test_times_by_topic_are_as_kafka_has_them_or_shorter() -> None:
    kafkas = read(startingOffsetsByTimestamp='{"orders": {"0": 1700000000000}}')
    shorter = read(startingOffsetsByTimestamp='{"orders": "2023-11-14T22:13:20Z"}')
    assert kafkas.start == shorter.start
    assert kafkas.start.times == {"orders": 1_700_000_000_000}
    assert kafkas.start.is_by_time


def test_offsets_may_be_nested_as_kafka_has_them() -> None:
    assert read(startingOffsets='{"orders": {"0": 17}}').start.seqs == {"orders": 17}
    assert read(startingOffsets='{"orders": {"0": 0}}').start.seqs == {"orders": 1}
    assert read(startingOffsets='{"orders": {"0": -2}}').start.seqs == {"orders": -2}


@pytest.mark.parametrize(
    ("pattern", "prefix", "included"),
    [
        ("orders-.*", "orders-", ("orders-1", "orders-")),
        ("ab*", "a", ("a", "abb")),
        ("a|b", "", ("a", "b")),
        (r"shop\.[0-9]+", "shop", ("shop.12",)),
    ],
)
def test_a_pattern_is_a_prefix_to_list_and_matches_whole_names(
    pattern: str, prefix: str, included: tuple[str, ...]
) -> None:
    given = options.read_options(URL | {"subscribePattern": pattern}, Mode.BATCH)
    assert given.subscription.prefix == prefix
    assert all(map(given.subscription.includes, included))
    assert not given.subscription.includes("other")
    assert not given.subscription.includes("orders")


def test_a_stream_can_wait_for_enough() -> None:
    parsed = read_stream(minOffsetsPerTrigger="100", maxTriggerDelay="5m", maxOffsetsPerTrigger="200")
    assert (parsed.trigger_offsets_min, parsed.trigger_delay_ms_max) == (100, 300_000)
    assert read_stream(minOffsetsPerTrigger="1").trigger_delay_ms_max == 900_000


def test_what_spark_adds_to_a_table_is_taken() -> None:
    given = {"option.url": "http://x", "option.subscribe": "a", "subscribe": "a", "serialization.format": "1"}
    assert options.read_options(given, Mode.BATCH).topics == ("a",)


def test_a_schema_can_be_asked_for_before_the_kind_of_query_is_known() -> None:
    for given in ({"startingOffsets": "latest", "cursor": "c"}, {"endingOffsets": "latest"}):
        assert options.read_options(BASE | given, Mode.UNKNOWN).topics == ("orders",)


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
        ({"schema": "topics", "inferSchema": "true"}, "inferSchema"),
        ({"mode": "STRICT"}, "mode"),
        ({"timeZone": "Mars/Olympus"}, "timeZone"),
        ({"subscribePattern": "o.*"}, "subscribe"),
        ({"startingOffsets": '{"orders": {"1": 5}}'}, "startingOffsets"),
        ({"startingOffsetsByTimestamp": '{"orders": "soon"}'}, "startingOffsetsByTimestamp"),
        ({"startingOffsetsByTimestamp": "{}"}, "startingOffsetsByTimestamp"),
        ({"startingOffsetsByTimestamp": '{"orders": 1}', "startingTimestamp": "1"}, "startingOffsetsByTimestamp"),
        ({"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger"),
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
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "maxTriggerDelay"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger"),
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
