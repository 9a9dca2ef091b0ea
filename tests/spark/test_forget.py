"""Forgetting: a tag's records leave the topic and the archive for good, and an audit can tell."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.archives import archive_topics, archived_rows, backup_of, origin
from spark.readings import history
from spark.server import RestartableServer
from topics.cli.pipeline_forget import render
from topics.errors import InvalidRequest, TopicNotFound
from topics.spark.archive import table
from topics.spark.archive.errors import ArchiveInUse, TopicNotArchived
from topics.spark.archive.state import ArchivedFile
from topics.spark.archive.table import ArchiveTable
from topics.spark.errors import InvalidOption
from topics.spark.jobs import forget as forgetting
from topics.spark.jobs.audit import AuditSpec, audit
from topics.spark.jobs.forget import ForgetSpec, check_spec, forget


def write_users(topic: Topic, count: int) -> None:
    topic.write(*({"data": {"n": n}, "tag": f"user-{n % 5}:{n}"} for n in range(count)))


def kept(count: int) -> list[int]:
    return [n + 1 for n in range(count) if n % 5 != 3]


def test_a_tag_is_forgotten_by_the_topic_and_the_archive_and_an_audit_checks_it(
    spark: SparkSession, own_server: RestartableServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = own_server.topic("people")
    write_users(topic, 60)
    archive_topics(spark, own_server, tmp_path / "a", topic.name, round_records=20)
    write_users(topic, 10)
    with own_server.client() as client:
        client.put_router("copies", topic.name, "people.copy")
    root = str(tmp_path / "a")
    spec = ForgetSpec(origin(own_server), topic.name, "user-3:*", root)
    before = {file.path for file in table.load(root).files}

    # Killed after some files: the topic has forgotten, and the archive is found out by an audit.
    rewrite = forgetting._rewrite

    def first_only(spark: SparkSession, store: ArchiveTable, some: list[ArchivedFile], *more: Any) -> None:
        rewrite(spark, store, some[:1], *more)
        raise KeyboardInterrupt

    monkeypatch.setattr(forgetting, "_rewrite", first_only)
    with pytest.raises(KeyboardInterrupt):
        forget(spark, spec)
    monkeypatch.undo()
    found = audit(spark, AuditSpec(backup_of(own_server, tmp_path / "b1"), archive=root))
    assert "records with the tag user-3:* were to be forgotten and are in the archive" in str(found.topics)

    # The same command finishes it. What is written later is not meant.
    summary = forget(spark, spec)
    assert (summary.deleted, summary.archived_to) == (0, 60)
    assert 0 < summary.forgotten < 12
    assert {path for path in before if (tmp_path / "a" / path).exists()} == set()
    assert summary.still_on_disk == ()
    assert "not touched: copies by routers, in people.copy" in render(summary)
    topic.write({"data": {"n": -1}, "tag": "user-3:later"})

    assert [row[0] for row in archived_rows(spark, tmp_path / "a", topic.name)] == kept(60)
    assert pl.read_delta(table.records_dir(root))["seq"].sort().to_list() == kept(60)
    assert sorted(history(topic)[0]) == [*kept(60), *(60 + seq for seq in kept(10)), 71]
    assert archive_topics(spark, own_server, tmp_path / "a", topic.name).records == 9
    sound = audit(spark, AuditSpec(backup_of(own_server, tmp_path / "b2"), archive=root))
    assert sound.sound, sound
    assert "forgotten of people: user-3:*, up to seq 70" in sound.notes


def test_who_read_the_records_before_cannot_add_them_again(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_users(topic, 10)
    archive_topics(spark, server, tmp_path / "a", topic.name)
    write_users(topic, 10)
    append = ArchiveTable.append
    spec = ForgetSpec(origin(server), topic.name, "user-3:*", str(tmp_path / "a"))

    def late(store: ArchiveTable, *given: Any) -> None:
        forget(spark, spec)
        append(store, *given)

    monkeypatch.setattr(ArchiveTable, "append", late)
    with pytest.raises(ArchiveInUse):
        archive_topics(spark, server, tmp_path / "a", topic.name)
    monkeypatch.undo()
    archive_topics(spark, server, tmp_path / "a", topic.name)
    assert [row[0] for row in archived_rows(spark, tmp_path / "a", topic.name)] == [
        *kept(10),
        *(10 + seq for seq in kept(10)),
    ]


def test_bad_input_is_refused_and_deletes_nothing(
    spark: SparkSession, server: RestartableServer, topic: Topic, name: str, tmp_path: Path
) -> None:
    write_users(topic, 5)
    other = server.topic(f"{name}other")
    other.fill(1)
    archive_topics(spark, server, tmp_path / "a", other.name)
    for match, error in (("*", InvalidOption), ("a*b*", InvalidRequest)):
        with pytest.raises(error):
            check_spec(ForgetSpec(origin(server), topic.name, match))
    with pytest.raises(TopicNotFound):
        check_spec(ForgetSpec(origin(server), "no-such-topic", "x"))
    with pytest.raises(TopicNotArchived):
        forget(spark, ForgetSpec(origin(server), topic.name, "user-3:*", str(tmp_path / "a")))
    assert len(history(topic)[0]) == 5
