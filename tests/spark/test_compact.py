"""Compaction: fewer files, the same records; and a damaged file is never merged into something that looks sound."""

import random
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.archives import archive_topics, archived_rows
from spark.server import RestartableServer
from topics.spark.archive import table
from topics.spark.archive.errors import ArchiveDiffers, NotAnArchive
from topics.spark.jobs.compact import CompactSpec, compact
from topics.spark.jobs.progress import Silent
from topics.spark.jobs.query import QuerySpec, query


def test_small_files_become_one_a_topic_and_date_with_the_same_records(
    spark: SparkSession, server: RestartableServer, name: str, tmp_path: Path
) -> None:
    topics = [server.topic(name + letter) for letter in "ab"]
    for topic in topics:
        topic.write(*({"data": n, "tag": f"t{n % 3}", "meta": {"n": str(n)}} for n in range(100)))
    names = [topic.name for topic in topics]
    archive_topics(spark, server, tmp_path / "a", *names, round_records=50)
    before = table.load(str(tmp_path / "a"))
    rows = {name: archived_rows(spark, tmp_path / "a", name) for name in names}
    assert len(before.files) >= 8

    done = compact(spark, CompactSpec(str(tmp_path / "a")))
    after = table.load(str(tmp_path / "a"))
    assert (done.files_before, done.files_after, done.records) == (len(before.files), len(after.files), 200)
    dates = {(file.topic, file.date) for file in before.files}
    assert {(file.topic, file.date) for file in after.files} == dates
    assert len(after.files) == len(dates)
    assert {name: archived_rows(spark, tmp_path / "a", name) for name in names} == rows
    assert (after.topics, after.archive_id) == (before.topics, before.archive_id)
    # Old versions are there as long as they are kept.
    assert pl.read_delta(str(tmp_path / "a" / "records"), version=before.version).height == 200
    assert compact(spark, CompactSpec(str(tmp_path / "a"), keep_hours=0)).removed == len(before.files)
    on_disk = {str(path.relative_to(tmp_path / "a")) for path in (tmp_path / "a" / "records").rglob("*.parquet")}
    assert on_disk == {file.path for file in after.files}
    # Nothing is left to do, and archiving goes on where it was.
    assert compact(spark, CompactSpec(str(tmp_path / "a"))).records == 0
    topics[0].fill(3)
    assert archive_topics(spark, server, tmp_path / "a", *names).records == 3


def test_files_that_are_together_below_the_size_are_merged(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    for _ in range(3):
        topic.write(*({"data": f"{n * 2654435761 % 2**32:032b}" * 30} for n in range(1500)))
        archive_topics(spark, server, tmp_path / "a", topic.name)
    sizes = [file.size_bytes for file in table.load(str(tmp_path / "a")).files]
    assert sum(sizes) < 1_000_000
    assert compact(spark, CompactSpec(str(tmp_path / "a"), file_mb=1)).files_after == 1


def test_what_would_be_too_large_as_one_file_becomes_several(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    payload = random.Random(7)
    for _ in range(4):
        topic.write(*({"data": payload.randbytes(500).hex()} for _ in range(800)))
        archive_topics(spark, server, tmp_path / "a", topic.name)
    sizes = [file.size_bytes for file in table.load(str(tmp_path / "a")).files]
    assert all(1_000_000 / 3 < size < 1_000_000 / 2 for size in sizes), sizes
    rows = archived_rows(spark, tmp_path / "a", topic.name)
    assert compact(spark, CompactSpec(str(tmp_path / "a"), file_mb=1)).files_after == 2
    assert archived_rows(spark, tmp_path / "a", topic.name) == rows


def test_a_file_with_other_rows_than_were_archived_is_not_merged(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(10)
    archive_topics(spark, server, tmp_path / "a", topic.name, round_records=5)
    before = table.load(str(tmp_path / "a"))
    first = min((tmp_path / "a" / "records").rglob("*.parquet"))
    content = first.read_bytes()
    chunk = pq.ParquetFile(first).metadata.row_group(0).column(0)
    at = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 2
    first.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(Exception, match="a page of it is not what was written"):
        compact(spark, CompactSpec(str(tmp_path / "a")))
    assert table.load(str(tmp_path / "a")) == before
    # A query finds it out as well, and names the file.
    spec = QuerySpec("SELECT max(seq) FROM archive", None, (), str(tmp_path / "a"), lambda names, rows: len(list(rows)))
    with pytest.raises(ArchiveDiffers, match=f"{first.name} is not what was archived"):
        query(spark, spec, Silent())


def test_what_is_no_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive):
        compact(spark, CompactSpec(str(tmp_path)))
