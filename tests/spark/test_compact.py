"""Compaction: fewer files, the same records; and a damaged file is never merged into something that looks sound."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.archives import archive_topics, archived_rows
from spark.server import RestartableServer
from topics.spark.pipelines import manifest
from topics.spark.pipelines.archive_files import digest_of_file, xor_of
from topics.spark.pipelines.archive_store import open_archive
from topics.spark.pipelines.compact import CompactSpec, compact
from topics.spark.pipelines.errors import ArchiveDiffers, ArchiveInUse, NotAnArchive


def test_small_files_become_one_a_topic_and_date_with_the_same_records(
    spark: SparkSession, server: RestartableServer, name: str, tmp_path: Path
) -> None:
    topics = [server.topic(name + letter) for letter in "ab"]
    for topic in topics:
        topic.write(*({"data": n, "tag": f"t{n % 3}", "meta": {"n": str(n)}} for n in range(100)))
    names = [topic.name for topic in topics]
    archive_topics(spark, server, tmp_path / "a", *names, round_records=50)
    before = manifest.load(str(tmp_path / "a"))
    rows = {name: archived_rows(spark, tmp_path / "a", name) for name in names}
    assert len(before.files) >= 8

    done = compact(spark, CompactSpec(str(tmp_path / "a")))
    after = manifest.load(str(tmp_path / "a"))
    assert (done.files_before, done.files_after, done.records) == (len(before.files), len(after.files), 200)
    dates = {(file.topic, file.date) for file in before.files.values()}
    assert {(file.topic, file.date) for file in after.files.values()} == dates
    assert len(after.files) == len(dates)
    assert {name: archived_rows(spark, tmp_path / "a", name) for name in names} == rows
    assert (after.topics, after.archive_id) == (before.topics, before.archive_id)
    for topic in topics:
        assert xor_of(after.files_of(topic.name)) == xor_of(before.files_of(topic.name))
    on_disk = {str(path.relative_to(tmp_path / "a")) for path in (tmp_path / "a" / "records").rglob("*.parquet")}
    assert on_disk == after.files.keys()
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
    sizes = [file.size_bytes for file in manifest.load(str(tmp_path / "a")).files.values()]
    assert sum(sizes) < 1_000_000
    assert compact(spark, CompactSpec(str(tmp_path / "a"), file_mb=1)).files_after == 1


def test_a_file_with_other_rows_than_were_archived_is_not_merged(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(10)
    archive_topics(spark, server, tmp_path / "a", topic.name, round_records=5)
    first = min((tmp_path / "a" / "records").rglob("*.parquet"))
    table = pq.read_table(first, partitioning=None)
    changed = table.set_column(table.schema.get_field_index("data"), "data", [["7"] * 5])
    due = first.stat().st_size
    pq.write_table(changed, first, compression="zstd")
    # As long as the file that was there: the length alone does not tell.
    content = first.read_bytes()
    state = manifest.load(str(tmp_path / "a"))
    if len(content) != due:
        path = sorted((tmp_path / "a" / "manifest").iterdir())[1]
        path.write_bytes(path.read_bytes().replace(b'"size_bytes": %d' % due, b'"size_bytes": %d' % len(content)))
        rechain(tmp_path / "a")
    with pytest.raises(ArchiveDiffers, match="its rows are not those that were archived"):
        compact(spark, CompactSpec(str(tmp_path / "a")))
    assert manifest.load(str(tmp_path / "a")).files.keys() == state.files.keys()
    assert digest_of_file(str(first))[0] == len(content)


def rechain(directory: Path) -> None:
    """Makes every commit name the one before it again, as whoever changed one would have to."""
    digest = ""
    for path in sorted((directory / "manifest").iterdir()):
        content = path.read_bytes()
        start = content.index(b'"parent_xxh3": "') + len(b'"parent_xxh3": "')
        content = content[:start] + digest.encode() + content[content.index(b'"', start) :]
        path.write_bytes(content)
        digest = manifest.digest_of(content)


def test_what_is_no_archive_or_in_use_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive):
        compact(spark, CompactSpec(str(tmp_path)))
    with open_archive(str(tmp_path / "a")) as store:
        store.create(manifest.ArchiveColumns())
        with pytest.raises(ArchiveInUse):
            compact(spark, CompactSpec(str(tmp_path / "a")))
