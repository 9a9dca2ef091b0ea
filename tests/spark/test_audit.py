"""Audits: every seq accounted for, the archive compared, and any damage found and named."""

import re
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.archives import Bar, archive_topics, backup_of
from spark.readings import history
from spark.server import RestartableServer
from spark.test_batch_read import write_history
from topics.cli.pipeline_audit import render, status
from topics.spark.archive.errors import NotAnArchive
from topics.spark.jobs.audit import AuditSpec, audit
from topics.spark.jobs.audit_report import AuditSummary, TopicAudit
from topics.storage.errors import DirectoryInUse, NoDataDirectory


def of(summary: AuditSummary, topic: Topic) -> TopicAudit:
    return next(found for found in summary.topics if found.topic == topic.name)


def test_read_and_deleted_and_lost_make_the_head_and_the_archive_matches(
    spark: SparkSession, own_server: RestartableServer, tmp_path: Path
) -> None:
    capped, plain, empty = (own_server.topic(name) for name in ("capped", "plain", "empty"))
    write_history(capped)
    plain.write(*({"data": {"n": n}, "tag": f"t{n % 7}", "meta": {"n": str(n)}} for n in range(9000)))
    plain.write(*({"data": {"n": n}, "tag": f"t{n % 7}"} for n in range(9000, 15000)))
    empty.configure()
    archive_topics(spark, own_server, tmp_path / "a", "capped", "plain")
    plain.delete_records(match="t3")
    plain.delete_records(before_seq=1000)
    plain.fill(50)
    counts = {topic.name: len(history(topic)[0]) for topic in (capped, plain)}
    data = backup_of(own_server, tmp_path / "backup")

    page = tmp_path / "audit.html"
    bar = Bar()
    summary = audit(spark, AuditSpec(data, archive=str(tmp_path / "a"), html=str(page)), bar)
    assert summary.sound, render(summary)
    assert bar.is_full, bar.parts
    assert len(bar.parts) == 3
    assert status(summary) == 0
    for topic in (capped, plain):
        found = of(summary, topic)
        assert found.read == counts[topic.name]
        assert found.read + found.deleted + found.lost == found.head_seq
        assert found.archive_matched + found.archive_only <= (found.archived_to or 0)
    losses = history(capped)[1]
    assert [(lost.gap_from, lost.gap_to, lost.reason) for lost in of(summary, capped).lost_ranges] == losses
    assert (of(summary, plain).archived_to, of(summary, plain).archive_matched) == (15000, counts["plain"] - 50)
    assert of(summary, plain).archive_only == 15000 - counts["plain"] + 50
    assert of(summary, empty).head_seq == 0

    text = page.read_text()
    assert '<span class="verdict">sound</span>' in text
    assert set(re.findall(r'aria-label="The seq line of (\w+)"', text)) == {"capped", "plain"}
    for kind in ("live", "deleted", "lost", "archived"):
        assert f'<rect class="{kind}"' in text
    assert not re.search(r"(src|href)=|url\(|@import|<script", text), "the page needs something else"
    assert msgspec.json.decode(msgspec.json.encode(summary), type=AuditSummary) == summary

    # Once the server has stopped, all is in segments. Then one byte of one, one byte of the archive, a file of it.
    own_server.stop()
    data = own_server.data_path
    assert audit(spark, AuditSpec(data, archive=str(tmp_path / "a"))).sound
    segment = max((Path(data) / "topics").glob("*/seg-*.data"), key=lambda path: path.stat().st_size)
    original = segment.read_bytes()
    segment.write_bytes(original[:2000] + bytes([original[2000] ^ 1]) + original[2001:])
    damaged = audit(spark, AuditSpec(data))
    assert status(damaged) == 1
    assert any(str(segment) in problem for problem in damaged.problems), damaged.problems
    segment.write_bytes(original)

    file = max((tmp_path / "a" / "records" / "topic=plain").rglob("*.parquet"))
    content = file.read_bytes()
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(0)
    at = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 2
    file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    damaged = audit(spark, AuditSpec(data, archive=str(tmp_path / "a"), html=str(page)))
    assert status(damaged) == 1
    assert "a page of it is not what was written" in " ".join(of(damaged, plain).problems)
    assert '<span class="verdict bad">' in page.read_text()
    file.unlink()
    damaged = audit(spark, AuditSpec(data, archive=str(tmp_path / "a")))
    assert "missing" in " ".join(of(damaged, plain).problems)
    assert "live records are not in the archive" in " ".join(of(damaged, plain).problems)


def test_an_archive_of_other_records_is_found_out(
    spark: SparkSession, own_server: RestartableServer, tmp_path: Path
) -> None:
    topic = own_server.topic("orders")
    topic.write(*({"data": {"n": n}} for n in range(50)))
    archive_topics(spark, own_server, tmp_path / "a", topic.name)
    # Deleted and made anew: the same name and the same seqs, but it is another one.
    topic.remove()
    topic.write(*({"data": {"n": n + 1}} for n in range(50)))
    data = backup_of(own_server, tmp_path / "backup")
    summary = audit(spark, AuditSpec(data, archive=str(tmp_path / "a")))
    assert status(summary) == 1
    assert 'it has another topic "orders"' in " ".join(of(summary, topic).problems)
    assert "orders" in render(summary)


def test_an_archive_of_another_server_is_a_problem(
    spark: SparkSession, server: RestartableServer, own_server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(3)
    own_server.topic(topic.name).fill(3)
    archive_topics(spark, server, tmp_path / "a", topic.name)
    summary = audit(spark, AuditSpec(backup_of(own_server, tmp_path / "backup"), archive=str(tmp_path / "a")))
    assert status(summary) == 1
    [problem] = summary.problems
    assert "it belongs to another server" in problem


def test_what_cannot_be_audited_is_refused(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(1)
    with pytest.raises(DirectoryInUse):
        audit(spark, AuditSpec(server.data_path))
    with pytest.raises(NoDataDirectory):
        audit(spark, AuditSpec(str(tmp_path / "none")))
    with pytest.raises(NotAnArchive):
        audit(spark, AuditSpec(backup_of(server, tmp_path / "backup"), archive=str(tmp_path)))
