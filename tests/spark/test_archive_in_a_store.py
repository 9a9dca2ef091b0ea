"""An archive in an object store is the same table as in a directory: all jobs, two writers, a kill, and what a store
refuses. S3 is moto's, in a process of its own (`spark.store`)."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.archives import Bar, archive_topics, archived_rows, backup_of, live_rows, origin, without_payload
from spark.readings import history
from spark.server import RestartableServer
from spark.store import SECRET, use_store
from spark.test_batch_read import write_history
from topics.clock import SystemClock
from topics.spark.archive import table
from topics.spark.archive.errors import ArchiveInUse, DirectoryNotEmpty, NotAnArchive, StoreFailed
from topics.spark.archive.files import read_archive
from topics.spark.archive.place import Place, set_options
from topics.spark.archive.table import ArchiveTable
from topics.spark.errors import InvalidOption
from topics.spark.jobs.archive import ArchiveSpec, check_spec
from topics.spark.jobs.audit import AuditSpec, audit
from topics.spark.jobs.compact import CompactSpec, compact
from topics.spark.jobs.forget import ForgetSpec, forget
from topics.spark.jobs.progress import Silent
from topics.spark.jobs.query import QuerySpec, query
from topics.spark.jobs.replay import ReplaySpec, replay
from topics.spark.offsets import Gap, SeqRange
from topics.spark.options import Mode, read_options
from topics.spark.origin import open_log


@pytest.fixture
def root(store_endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an archive to be."""
    use_store(store_endpoint, monkeypatch, "bucket")
    return f"s3://bucket/{name}archive"


def asked(spark: SparkSession, root: str, sql: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []

    def keep(names: Any, rows: Any) -> int:
        found.extend(tuple(row) for row in rows)
        return len(found)

    query(spark, QuerySpec(sql, None, (), root, keep), Silent())
    return found


def test_all_jobs_do_with_a_store_what_they_do_with_a_directory(
    spark: SparkSession, own_server: RestartableServer, root: str, tmp_path: Path, spark_log: Path
) -> None:
    topic = own_server.topic("shop:eu")
    write_history(topic)
    topic.write(*({"data": {"n": n}, "tag": f"user-{n % 3}"} for n in range(30)))
    records, losses = history(topic)
    lost = sum(last - first + 1 for first, last, _ in losses)
    place = Place.of(root)

    done = archive_topics(spark, own_server, root, topic.name, round_records=700).topics[0]
    assert (done.to_seq, done.records, done.lost) == (2030, len(records), lost)
    assert done.records + done.lost + done.deleted == 2030
    topic.write({"data": "one more"})
    assert archive_topics(spark, own_server, root, topic.name).records == 1
    assert archive_topics(spark, own_server, root, topic.name).topics == ()
    rows = archived_rows(spark, root, topic.name)
    assert without_payload(rows) == live_rows(topic)
    options = {name: value for name, value in place.options.items() if name.startswith("AWS_")}
    assert pl.read_delta(f"{root}/records", storage_options=options)["seq"].sort().to_list() == [r[0] for r in rows]
    in_losses = pl.read_delta(f"{root}/losses", storage_options=options).to_dicts()
    assert sum(loss["gap_to"] - loss["gap_from"] + 1 for loss in in_losses) == lost

    sql = "SELECT count(*), sum(seq), max(v:n::int) FROM archive_shop_eu WHERE tag LIKE 'user-%'"
    before = asked(spark, root, sql)
    assert before[0][0] == 30
    merged = compact(spark, CompactSpec(root, keep_hours=0))
    assert (merged.files_before, merged.files_after) == (4, 1)
    assert asked(spark, root, sql) == before
    assert place.files("records/topic=shop%3Aeu") == [file.path for file in table.load(root).files]
    assert place.files("staging") == []

    again = own_server.topic("shop.again")
    bar = Bar()
    assert replay(spark, ReplaySpec(root, origin(own_server), again.name, from_seq=2001), bar).appended == 31
    assert replay(spark, ReplaySpec(root, origin(own_server), again.name, from_seq=1990)).present == 31
    assert bar.is_full
    options = {"url": own_server.url, "subscribe": topic.name, "archive": root, "onDataLoss": "rows"}
    with open_log(read_options(options, Mode.BATCH)) as log:
        shares = log.plan([SeqRange(topic.name, topic.state()["epoch"], 0, 2031)], 2, None)
        items = [item for _, item in log.read_all(shares)]
    assert sum(len(item) for item in items if not isinstance(item, Gap)) == len(rows)

    forgotten = forget(spark, ForgetSpec(origin(own_server), topic.name, "user-1", root))
    assert (forgotten.deleted, forgotten.forgotten, forgotten.files_rewritten) == (10, 10, 1)
    assert forgotten.still_on_disk == ("10 deleted records in segments of the server, until those segments go",)
    assert [row[0] for row in archived_rows(spark, root, topic.name)] == [row[0] for row in rows if row[3] != "user-1"]
    found = audit(spark, AuditSpec(backup_of(own_server, tmp_path / "b"), archive=root))
    assert found.sound, found
    plan = read_archive(spark, root)._jdf.queryExecution().toString()
    assert SECRET not in plan + spark_log.read_text()
    assert "forgotten of shop:eu: user-1, up to seq 2031" in found.notes


def test_of_two_archives_at_once_one_is_refused_and_leaves_nothing(
    spark: SparkSession, server: RestartableServer, topic: Topic, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.fill(3)
    archive_topics(spark, server, root, topic.name)
    topic.fill(3)
    append = ArchiveTable.append

    def late(store: ArchiveTable, *given: Any) -> None:
        monkeypatch.setattr(ArchiveTable, "append", append)
        assert archive_topics(spark, server, root, topic.name).records == 3
        append(store, *given)

    monkeypatch.setattr(ArchiveTable, "append", late)
    with pytest.raises(ArchiveInUse, match="run again"):
        archive_topics(spark, server, root, topic.name)
    state = table.load(root)
    assert (state.topics[topic.name].to_seq, state.topics[topic.name].records) == (6, 6)
    assert Place.of(root).files(f"records/topic={topic.name}") == sorted(file.path for file in state.files)
    assert archive_topics(spark, server, root, topic.name).records == 0


def test_a_job_killed_before_its_commit_has_archived_nothing_and_the_next_one_makes_it_whole(
    spark: SparkSession, server: RestartableServer, topic: Topic, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.write({"data": {"n": 1}})
    archive_topics(spark, server, root, topic.name, schema="variant")
    topic.write({"data": {"n": 2}})

    def killed(*given: Any) -> None:
        raise KeyboardInterrupt

    for step in ("placing", "append"):
        with monkeypatch.context() as patch:
            patch.setattr(ArchiveTable, step, killed)
            patch.setattr(Place, "remove_all", lambda *given: None)
            with pytest.raises(KeyboardInterrupt):
                archive_topics(spark, server, root, topic.name)
    assert table.load(root).topics[topic.name].to_seq == 1
    store = ArchiveTable(root, SystemClock())
    assert len(store.unnamed_files()) == 2
    assert archive_topics(spark, server, root, topic.name).records == 1
    frame = read_archive(spark, root).selectExpr("seq", "variant_get(value, '$.n', 'int') AS n").orderBy("seq")
    assert [tuple(row) for row in frame.collect()] == [(1, 1), (2, 2)]
    compact(spark, CompactSpec(root, keep_hours=0))
    assert ArchiveTable(root, SystemClock()).unnamed_files() == []
    assert [tuple(row) for row in read_archive(spark, root).selectExpr("seq", "value:n::int").collect()] == [
        (1, 1),
        (2, 2),
    ]


def test_a_commit_whose_answer_got_lost_is_not_made_again(
    spark: SparkSession,
    server: RestartableServer,
    topic: Topic,
    root: str,
    store_endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_store(store_endpoint, monkeypatch, "forgetful")
    forgetful = root.replace("bucket", "forgetful", 1)
    topic.fill(5)
    for _ in range(4):  # one for each commit at most: the table, its properties, the records
        try:
            archive_topics(spark, server, forgetful, topic.name)
        except (ArchiveInUse, StoreFailed):
            continue
        break
    state = table.load(forgetful)
    assert (state.topics[topic.name].to_seq, state.topics[topic.name].records) == (5, 5)
    assert [row[0] for row in archived_rows(spark, forgetful, topic.name)] == [1, 2, 3, 4, 5]
    assert archive_topics(spark, server, forgetful, topic.name).records == 0


NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("bucket", "variables", "told"),
    [
        ("missing", {}, "there is no such bucket: create it, or name another one"),
        ("closed", {}, "the credentials do not suffice: they have to list, read, write and delete there"),
        ("bucket", {"AWS_ENDPOINT_URL": NOBODY}, f"{NOBODY} cannot be reached: check the address, AWS_ENDPOINT_URL"),
        ("bucket", {"AWS_ALLOW_HTTP": "false"}, "its endpoint has no TLS: set AWS_ALLOW_HTTP=true"),
        (
            "bucket",
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_METADATA_ENDPOINT": NOBODY},
            "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
    ],
)
def test_what_a_store_refuses_is_told_in_a_sentence_with_what_to_do_before_spark_starts(
    server: RestartableServer,
    topic: Topic,
    root: str,
    monkeypatch: pytest.MonkeyPatch,
    bucket: str,
    variables: dict[str, str],
    told: str,
) -> None:
    topic.fill(1)
    for name, value in variables.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    address = root.replace("bucket", bucket, 1)
    for refused in (
        lambda: check_spec(ArchiveSpec(origin(server), address, (topic.name,))),
        lambda: table.load(address),
    ):
        with pytest.raises(StoreFailed) as raised:
            refused()
        assert str(raised.value).startswith(f"{address}: {told}")
        assert SECRET not in str(raised.value)


def test_an_empty_place_and_one_with_other_files_are_no_archives(root: str) -> None:
    with pytest.raises(NotAnArchive):
        table.load(root)
    with Place.of(root).create("thesis.txt") as file:
        file.write(b"mine")
    with pytest.raises(DirectoryNotEmpty, match=r"thesis\.txt"):
        ArchiveTable(root, SystemClock())


def test_a_store_that_lets_a_second_writer_win_gets_no_archive(
    spark: SparkSession,
    server: RestartableServer,
    topic: Topic,
    root: str,
    store_endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic.fill(1)
    use_store(store_endpoint, monkeypatch, "careless")
    careless = root.replace("bucket", "careless", 1)
    with pytest.raises(StoreFailed, match="lets a second writer replace a commit"):
        archive_topics(spark, server, careless, topic.name)
    assert Place.of(careless).files("") == []


def test_secrets_are_taken_from_the_environment_alone_and_never_shown(root: str) -> None:
    place = Place.of(root)
    assert place.options["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert repr(place) == f"Place(root={root!r})"
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
    ):
        with pytest.raises(InvalidOption, match=f"{name} is a secret: set it as an environment variable"):
            set_options({name: SECRET})
    with pytest.raises(InvalidOption, match="aws_region is not an option of a store"):
        set_options({"aws_region": "x"})
    with pytest.raises(InvalidOption, match="neither a directory nor an address that begins with s3://"):
        Place.of("ftp://bucket/archive")
