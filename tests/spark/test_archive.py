"""Archives: every seq of a topic is archived once, lost or deleted; and what is wrong changes nothing."""

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from acceptance.small_disk import mounted_disk
from conformance.client import Topic
from spark.archives import archive_topics, archived_rows, live_rows, origin, without_payload
from spark.readings import driver_that_holds, history
from spark.server import RestartableServer
from spark.test_batch_read import write_history
from topics.clock import SystemClock
from topics.errors import TopicNotFound
from topics.spark.archive import table
from topics.spark.archive.errors import (
    ArchiveDiffers,
    ArchiveInUse,
    ArchiveOfAnotherServer,
    DirectoryNotEmpty,
    SchemaDiffers,
    SchemaDoesNotFit,
    TargetDiskFull,
)
from topics.spark.archive.files import read_archive
from topics.spark.archive.table import ArchiveTable
from topics.spark.errors import InvalidOption
from topics.spark.jobs.archive import ArchiveSpec, archive, check_spec
from topics.spark.options import Files

DISK_BYTES = 256 << 10


def contents(directory: Path) -> dict[str, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_every_seq_is_archived_lost_or_deleted_and_a_second_run_adds_only_what_is_new(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    write_history(topic)
    records, losses = history(topic)
    lost = sum(last - first + 1 for first, last, _ in losses)

    done = archive_topics(spark, server, tmp_path / "a", topic.name, round_records=700).topics[0]
    assert (done.from_seq, done.to_seq, done.records, done.lost) == (0, 2000, len(records), lost)
    assert done.records + done.lost + done.deleted == 2000
    rows = archived_rows(spark, tmp_path / "a", topic.name)
    assert without_payload(rows) == live_rows(topic)
    assert [json.loads(row[5]) for row in rows] == [records[row[0]]["data"] for row in rows]

    # Engines that know nothing of this project give the same rows and sums.
    with_polars = pl.read_delta(str(tmp_path / "a" / "records")).sort("seq")
    with duckdb.connect() as engine:
        asked = "select count(*), sum(seq)::bigint, min(data), max(data) from read_parquet($1)"
        with_duckdb = engine.execute(asked, [DeltaTable(tmp_path / "a" / "records").file_uris()]).fetchall()
    assert with_polars["seq"].to_list() == [row[0] for row in rows]
    assert with_polars["data"].to_list() == [row[5] for row in rows]
    sums = (len(rows), sum(row[0] for row in rows), min(row[5] for row in rows), max(row[5] for row in rows))
    assert with_duckdb == [sums]
    losses_table = pl.read_delta(str(tmp_path / "a" / "losses")).to_dicts()
    assert sum(loss["gap_to"] - loss["gap_from"] + 1 for loss in losses_table) == lost
    assert {loss["reason"] for loss in losses_table} == {"cap"}

    topic.write({"data": "one more"})
    again = archive_topics(spark, server, tmp_path / "a", topic.name)
    assert [(t.from_seq, t.to_seq, t.records) for t in again.topics] == [(2000, 2001, 1)]
    assert archive_topics(spark, server, tmp_path / "a", topic.name).topics == ()
    assert archived_rows(spark, tmp_path / "a", topic.name)[:-1] == rows


def test_payloads_are_archived_byte_for_byte_and_files_are_zstd_by_topic_and_date(
    spark: SparkSession, server: RestartableServer, name: str, tmp_path: Path
) -> None:
    topic = server.topic(f"{name}shop:eu")
    for payload in (b'{"a": 1.0,  "a":1e400}', b'"\\u00fc"', b"null", b"[ ]"):
        topic.api.post_bytes(topic.path, b'{"records":[{"data":' + payload + b"}]}")
    archive_topics(spark, server, tmp_path / "a", topic.name)
    rows = archived_rows(spark, tmp_path / "a", topic.name)
    assert [row[5] for row in rows] == ['{"a": 1.0,  "a":1e400}', '"\\u00fc"', "null", "[ ]"]
    [path] = (tmp_path / "a" / "records").rglob("*.parquet")
    date = rows[0][1].date().isoformat()
    directory, day, file = path.relative_to(tmp_path / "a" / "records").parts
    assert (directory, day) == (f"topic={name}shop%3Aeu", f"date={date}")
    assert file.startswith(f"{1:020d}-{4:020d}-")
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    # Whoever reads the directory with Spark alone sees the same.
    plain = spark.read.parquet(str(tmp_path / "a" / "records")).collect()
    assert {(row.topic, row.date.isoformat()) for row in plain} == {(topic.name, date)}


def test_a_prefix_archives_every_topic_of_it_also_from_files(
    spark: SparkSession, server: RestartableServer, name: str, tmp_path: Path
) -> None:
    for letter in "abc":
        server.topic(name + letter).fill(10)
    live = archive(spark, ArchiveSpec(origin(server), str(tmp_path / "live"), prefix=name))
    files = archive(spark, ArchiveSpec(Files(server.data_path, None), str(tmp_path / "files"), prefix=name))
    assert [topic.topic for topic in live.topics] == [name + letter for letter in "abc"]
    assert [(t.topic, t.records) for t in files.topics] == [(t.topic, t.records) for t in live.topics]
    for letter in "abc":
        rows = [archived_rows(spark, tmp_path / where, name + letter) for where in ("live", "files")]
        assert rows[0] == rows[1]


@pytest.mark.parametrize("schema", ["sku string, total double", "infer", "variant"])
def test_typed_columns_stand_beside_the_text(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path, schema: str
) -> None:
    topic.write({"data": {"sku": "a", "total": 2.5}}, {"data": {"sku": "b", "total": 3.5}})
    archive_topics(spark, server, tmp_path / "a", topic.name, schema=schema)
    frame = read_archive(spark, str(tmp_path / "a"))
    cast = "variant_get(value, '$.{}', '{}')" if schema == "variant" else "cast(value.{} as {})"
    rows = frame.selectExpr("data", cast.format("sku", "string"), cast.format("total", "double")).collect()
    assert sorted(tuple(row) for row in rows) == [
        ('{"sku":"a","total":2.5}', "a", 2.5),
        ('{"sku":"b","total":3.5}', "b", 3.5),
    ]
    # The schema stays that of the archive, and another one is refused.
    topic.write({"data": {"sku": "c", "total": 1}})
    assert archive_topics(spark, server, tmp_path / "a", topic.name).records == 1
    with pytest.raises(SchemaDiffers, match="leave the schema out"):
        archive_topics(spark, server, tmp_path / "a", topic.name, schema="other string")


def test_a_schema_is_inferred_from_no_more_than_a_driver_holds(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    chance = random.Random(7)
    topic.write(*({"data": {"n": n, "note": chance.randbytes(10_000).hex()}} for n in range(100)))
    with driver_that_holds(spark, "500k"):
        archive_topics(spark, server, tmp_path / "a", topic.name, schema="infer")
    assert sorted(row.n for row in read_archive(spark, str(tmp_path / "a")).select("value.n").collect()) == [
        *range(100)
    ]


def test_a_record_that_does_not_fit_is_named_and_nothing_of_its_round_is_archived(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.write({"data": {"total": 1}}, {"data": {"total": 2}})
    archive_topics(spark, server, tmp_path / "a", topic.name, schema="total bigint")
    before = contents(tmp_path / "a")
    topic.write({"data": {"total": 3}}, {"data": {"total": "many"}})
    with pytest.raises(SchemaDoesNotFit, match=f'seq 4 of topic "{topic.name}" does not fit'):
        archive_topics(spark, server, tmp_path / "a", topic.name)
    assert contents(tmp_path / "a") == before


def test_follow_goes_on_with_what_comes(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(5)
    looks: list[float] = []

    def wait(duration_s: float) -> bool:
        looks.append(duration_s)
        topic.fill(3)
        return len(looks) > 2

    spec = ArchiveSpec(origin(server), str(tmp_path / "a"), (topic.name,), follow=True, interval_s=0.25)
    summary = archive(spark, spec, stop=wait)
    assert (summary.records, summary.commits, looks) == (11, 3, [0.25] * 3)


def test_an_archive_of_another_server_is_refused_and_left_alone(
    spark: SparkSession, server: RestartableServer, own_server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(10)
    archive_topics(spark, server, tmp_path / "a", topic.name)
    # The other server gave its topic another epoch; then the same one, but for shorter, and for other records.
    other = own_server.topic(topic.name)
    other.fill(20)
    commit = table.load(str(tmp_path / "a")).topics[topic.name]
    rewrite_properties(tmp_path / "a", topic.name, commit.epoch)
    with pytest.raises(ArchiveOfAnotherServer, match=r"epoch .* archive to another directory"):
        archive_topics(spark, own_server, tmp_path / "a", topic.name)
    rewrite_properties(tmp_path / "a", topic.name, other.state()["epoch"])
    with pytest.raises(ArchiveOfAnotherServer, match="seq 10 is another record"):
        archive_topics(spark, own_server, tmp_path / "a", topic.name)
    rewrite_properties(tmp_path / "a", topic.name, commit.epoch)
    # A topic made anew is another one, too.
    topic.remove()
    topic.fill(20)
    with pytest.raises(ArchiveOfAnotherServer, match="deleted and recreated"):
        archive_topics(spark, server, tmp_path / "a", topic.name)


def rewrite_properties(directory: Path, topic: str, epoch: int, server_id: str = "") -> None:
    """As of a version before there were ids, unless one is given."""
    properties = {f"{table.EPOCH}{topic}": str(epoch), table.SERVER_ID: server_id}
    DeltaTable(table.records_dir(str(directory))).alter.set_table_properties(properties, raise_if_not_exists=False)


def test_an_archive_is_not_continued_with_another_server_of_which_nothing_archived_is_left(
    spark: SparkSession, server: RestartableServer, own_server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(100)
    archive_topics(spark, server, tmp_path / "a", topic.name)
    other = own_server.topic(topic.name)
    other.configure(cap_records=10)
    other.fill(150)
    with server.client() as client:
        server_id = client.ready().server_id
    # By chance the other topic has the same epoch, and all that could be compared is gone.
    rewrite_properties(tmp_path / "a", topic.name, other.state()["epoch"], server_id)
    before = contents(tmp_path / "a")
    with pytest.raises(ArchiveOfAnotherServer, match=f"another server .its id is {server_id}"):
        archive_topics(spark, own_server, tmp_path / "a", topic.name)
    with pytest.raises(ArchiveOfAnotherServer, match="another server"):
        archive(spark, ArchiveSpec(Files(own_server.data_path, None), str(tmp_path / "a"), (topic.name,)))
    assert contents(tmp_path / "a") == before


def test_an_archive_from_before_there_were_ids_takes_that_of_the_server_it_goes_on_with(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(10)
    archive_topics(spark, server, tmp_path / "a", topic.name)
    rewrite_properties(tmp_path / "a", topic.name, topic.state()["epoch"])
    topic.fill(1)
    assert archive_topics(spark, server, tmp_path / "a", topic.name).records == 1
    with server.client() as client:
        assert table.load(str(tmp_path / "a")).server_id == client.ready().server_id != ""


def test_of_two_archives_at_once_one_is_refused_and_leaves_nothing(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.fill(3)
    archive_topics(spark, server, tmp_path / "a", topic.name)
    topic.fill(3)
    append = ArchiveTable.append

    def late(store: ArchiveTable, *given: Any) -> None:
        monkeypatch.setattr(ArchiveTable, "append", append)
        assert archive_topics(spark, server, tmp_path / "a", topic.name).records == 3
        append(store, *given)

    monkeypatch.setattr(ArchiveTable, "append", late)
    with pytest.raises(ArchiveInUse, match="run again"):
        archive_topics(spark, server, tmp_path / "a", topic.name)
    assert [row[0] for row in archived_rows(spark, tmp_path / "a", topic.name)] == list(range(1, 7))
    on_disk = {str(path.relative_to(tmp_path / "a")) for path in (tmp_path / "a" / "records").rglob("*.parquet")}
    assert on_disk == {file.path for file in table.load(str(tmp_path / "a")).files}
    assert archive_topics(spark, server, tmp_path / "a", topic.name).records == 0


def test_a_file_that_is_not_what_was_archived_is_refused(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(10)
    archive_topics(spark, server, tmp_path / "a", topic.name)
    [path] = (tmp_path / "a" / "records").rglob("*.parquet")
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(ArchiveDiffers, match=f"{len(content) - 1} bytes, expected {len(content)}"):
        archive_topics(spark, server, tmp_path / "a", topic.name)
    path.unlink()
    with pytest.raises(ArchiveDiffers, match="missing"):
        archive_topics(spark, server, tmp_path / "a", topic.name)


def test_bad_input_is_refused_before_anything_is_made(server: RestartableServer, topic: Topic, tmp_path: Path) -> None:
    topic.fill(1)
    target = str(tmp_path / "a")
    with pytest.raises(TopicNotFound):
        check_spec(ArchiveSpec(origin(server), target, ("no-such-topic",)))
    with pytest.raises(TopicNotFound):
        check_spec(ArchiveSpec(origin(server), target, prefix="no-such-"))
    with pytest.raises(InvalidOption):
        check_spec(ArchiveSpec(origin(server), target))
    with pytest.raises(InvalidOption, match="'sku strin' is not a schema"):
        check_spec(ArchiveSpec(origin(server), target, (topic.name,), schema="sku strin"))
    with pytest.raises(InvalidOption, match="nothing can be written in /proc"):
        check_spec(ArchiveSpec(origin(server), "/proc/nope", (topic.name,)))
    assert not (tmp_path / "a").exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine")
    with pytest.raises(DirectoryNotEmpty, match=r"thesis\.txt"):
        ArchiveTable(str(tmp_path / "b"), SystemClock())


def test_a_schema_nobody_can_read_is_refused(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(1)
    with pytest.raises(InvalidOption, match="is not a schema"):
        archive_topics(spark, server, tmp_path / "a", topic.name, schema="total bigger than life")
    with pytest.raises(InvalidOption, match="no JSON objects"):
        archive_topics(spark, server, tmp_path / "a", topic.name, schema="infer")


@pytest.mark.parametrize(
    ("schema", "refused"),
    [("", ("infer", "variant")), ("n bigint", ("infer", "variant")), ("variant", ("infer",)), ("infer", ("variant",))],
)
def test_words_for_a_schema_the_archive_does_not_have_are_refused(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path, schema: str, refused: tuple[str, ...]
) -> None:
    topic.write({"data": {"n": 1}})
    archive_topics(spark, server, tmp_path / "a", topic.name, schema=schema)
    for word in refused:
        with pytest.raises(SchemaDiffers, match=f"not {word}: leave the schema out"):
            archive_topics(spark, server, tmp_path / "a", topic.name, schema=word)
        with pytest.raises(SchemaDiffers):
            check_spec(ArchiveSpec(origin(server), str(tmp_path / "a"), (topic.name,), schema=word))
    # The same command goes on, and so does one without a schema.
    assert archive_topics(spark, server, tmp_path / "a", topic.name, schema=schema).records == 0
    assert archive_topics(spark, server, tmp_path / "a", topic.name).records == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", DISK_BYTES) as directory:
        yield directory


def test_a_full_target_disk_leaves_the_last_good_state(
    spark: SparkSession, server: RestartableServer, topic: Topic, small_disk: Path
) -> None:
    topic.fill(10)
    archive_topics(spark, server, small_disk / "a", topic.name)
    before = contents(small_disk / "a")
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        while (free := DISK_BYTES - filler.stat().st_size) > 16 << 10:
            try:
                file.write(bytes(min(4096, free)))
            except OSError:
                break
    topic.write(*({"data": "".join(chr(33 + (n * k * 7) % 90) for k in range(900))} for n in range(300)))
    with pytest.raises(TargetDiskFull, match="free some and run again"):
        archive_topics(spark, server, small_disk / "a", topic.name)
    assert contents(small_disk / "a") == before
    filler.unlink()
    assert archive_topics(spark, server, small_disk / "a", topic.name).records == 300
    assert len(archived_rows(spark, small_disk / "a", topic.name)) == 310


def test_a_topic_that_grows_while_it_is_archived_is_archived_up_to_where_it_was(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(100)
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            topic.fill(10)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            archive_topics(spark, server, tmp_path / "a", topic.name)
    finally:
        over.set()
        writer.join()
    archive_topics(spark, server, tmp_path / "a", topic.name)
    seqs = [row[0] for row in archived_rows(spark, tmp_path / "a", topic.name)]
    assert seqs == list(range(1, topic.state()["head_seq"] + 1))
