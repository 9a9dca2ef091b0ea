"""The tables of an archive without Spark: what a commit makes true, what a crash leaves, and what is refused."""

import json
from pathlib import Path

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from xxhash import xxh3_64_hexdigest

from topics.clock import SystemClock
from topics.spark.archive import table
from topics.spark.archive.convert import convert
from topics.spark.archive.errors import (
    ArchiveDamaged,
    ArchiveDiffers,
    ArchiveInUse,
    DirectoryNotEmpty,
    NotAnArchive,
    OldArchive,
)
from topics.spark.archive.place import Place
from topics.spark.archive.rows import require_file, rows_of
from topics.spark.archive.state import ArchiveColumns, ArchivedFile, ArchivedLoss, ColumnKind, TopicCut, WrittenFile
from topics.spark.archive.table import ArchiveTable

TOPIC = "shop:eu"
DATE = "2026-11-16"
START_MS = 1794787200000
LOSS = ArchivedLoss(TOPIC, 3, 3, "cap")


def write_rows(path: Path, first: int, last: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    seqs = [seq for seq in range(first, last + 1) if seq != LOSS.gap_from]
    rows = pa.table(
        {
            "seq": pa.array(seqs, pa.int64()),
            "ts": pa.array([(START_MS + seq) * 1000 for seq in seqs], pa.timestamp("us", "UTC")),
            "node": pa.array([None] * len(seqs), pa.string()),
            "tag": pa.array([f"t{seq % 2}" for seq in seqs]),
            "meta": pa.array([[("n", str(seq))] for seq in seqs], pa.map_(pa.string(), pa.string())),
            "data": pa.array([f'{{"n":{seq}}}' for seq in seqs]),
        }
    )
    pq.write_table(rows, path, compression="zstd", write_page_checksum=True, row_group_size=4)


def file_of(root: str, path: Path, first: int, last: int) -> ArchivedFile:
    return ArchivedFile(
        path=str(path.relative_to(root)),
        topic=TOPIC,
        date=DATE,
        first_seq=first,
        last_seq=last,
        first_ts=START_MS + first,
        last_ts=START_MS + last,
        count=last - first + 1 - (first <= LOSS.gap_from <= last),
        size_bytes=path.stat().st_size,
    )


def written(root: str, first: int, last: int) -> ArchivedFile:
    path = Path(root) / table.records_path(TOPIC, DATE, first, last, table.new_round(0))
    write_rows(path, first, last)
    return file_of(root, path, first, last)


def append(store: ArchiveTable, first: int, last: int, *losses: ArchivedLoss, epoch: int = 7) -> None:
    file = written(store.root, first, last)
    cut = TopicCut(
        topic=TOPIC, epoch=epoch, from_seq=first - 1, to_seq=last, records=file.count, lost=len(losses), deleted=0
    )
    store.append([cut], [file], losses)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """An archive with two files, of the seqs 1 to 20 without 3."""
    store = ArchiveTable(str(tmp_path / "archive"), SystemClock())
    store.create(ArchiveColumns(), "server-1")
    append(store, 1, 10, LOSS)
    append(store, 11, 20)
    return str(tmp_path / "archive")


def test_what_was_committed_is_there_when_it_is_opened_again_and_other_readers_see_the_same(root: str) -> None:
    state = table.load(root)
    cut = state.topics[TOPIC]
    assert (cut.epoch, cut.to_seq, cut.records, cut.lost, cut.deleted) == (7, 20, 19, 1, 0)
    assert (state.server_id, state.losses_of(TOPIC)) == ("server-1", [LOSS])
    first, second = state.files_of(TOPIC)
    assert (first.first_seq, first.last_seq, first.last_ts, first.count) == (1, 10, START_MS + 10, 9)
    assert state.files_of(TOPIC, 11, 15) == [second]
    assert [
        row["seq"] for batch in rows_of(Place(root), require_file(Place(root), first)) for row in batch.to_pylist()
    ] == [seq for seq in range(1, 11) if seq != 3]
    rows = pl.read_delta(table.records_dir(root)).sort("seq")
    assert rows["seq"].to_list() == [seq for seq in range(1, 21) if seq != 3]
    assert set(rows["topic"]) == {TOPIC}
    assert pl.read_delta(table.losses_dir(root)).to_dicts() == [
        {"topic": TOPIC, "gap_from": 3, "gap_to": 3, "reason": "cap"}
    ]
    # As it was before, and what each commit added.
    assert pl.read_delta(table.records_dir(root), version=2).height == 9
    [newest] = DeltaTable(table.records_dir(root)).history(1)
    assert [(told["topic"], told["to_seq"], told["records"]) for told in json.loads(newest["topics"])] == [
        (TOPIC, 20, 10)
    ]


def test_who_read_an_archive_before_another_job_wrote_to_it_is_refused_and_adds_nothing(root: str) -> None:
    one, other = ArchiveTable(root, SystemClock()), ArchiveTable(root, SystemClock())
    append(one, 21, 30)
    with pytest.raises(ArchiveInUse, match="run again"):
        append(other, 21, 25)
    assert table.load(root).topics[TOPIC].to_seq == 30
    again = ArchiveTable(root, SystemClock())
    append(again, 31, 32)
    append(again, 33, 34)
    assert pl.read_delta(table.records_dir(root))["seq"].sort().to_list() == [n for n in range(1, 35) if n != 3]


def test_of_two_jobs_that_make_an_archive_at_once_one_is_refused(tmp_path: Path) -> None:
    one, other = (ArchiveTable(str(tmp_path / "a"), SystemClock()) for _ in range(2))
    one.create(ArchiveColumns(), "server-1")
    with pytest.raises(ArchiveInUse, match="run again"):
        other.create(ArchiveColumns(), "server-1")
    append(one, 1, 10)


def test_a_round_killed_before_its_commit_has_archived_nothing_and_its_losses_count_once(root: str) -> None:
    rubbish = written(root, 21, 30)
    lost = pa.Table.from_pylist([{"topic": TOPIC, "gap_from": 22, "gap_to": 23, "reason": "cap"}], table.LOSSES_SCHEMA)
    write_deltalake(table.losses_dir(root), lost, mode="append")
    state = table.load(root)
    assert (state.topics[TOPIC].to_seq, state.losses, len(state.files)) == (20, [LOSS], 2)
    store = ArchiveTable(root, SystemClock())
    append(store, 21, 25, ArchivedLoss(TOPIC, 22, 23, "cap"))
    assert store.state.losses_of(TOPIC) == [LOSS, ArchivedLoss(TOPIC, 22, 23, "cap")]
    assert store.vacuum(0) == 1
    assert not (Path(root) / rubbish.path).exists()


def test_merged_files_take_the_place_of_their_parts_and_old_versions_stay_until_they_are_vacuumed(root: str) -> None:
    store = ArchiveTable(root, SystemClock())
    before = store.state
    store.replace([written(root, 1, 20)], before.files, {"topics.job": "compact"})
    after = table.load(root)
    assert [(file.first_seq, file.last_seq) for file in after.files] == [(1, 20)]
    assert (after.topics, after.losses) == (before.topics, before.losses)
    assert pl.read_delta(table.records_dir(root)).height == 19
    assert pl.read_delta(table.records_dir(root), version=before.version).height == 19
    assert store.vacuum(168) == 0
    assert store.vacuum(0) == 2
    store.require_files()


def test_how_far_a_topic_is_archived_outlives_checkpoints_of_the_log(root: str) -> None:
    store = ArchiveTable(root, SystemClock())
    DeltaTable(table.records_dir(root)).create_checkpoint()
    append(store, 21, 22)
    state = table.load(root)
    assert (state.topics[TOPIC].to_seq, state.topics[TOPIC].epoch, len(state.files)) == (22, 7, 3)


def test_a_page_that_was_changed_is_found_when_it_is_read(root: str) -> None:
    [first, _] = table.load(root).files_of(TOPIC)
    path = Path(root, require_file(Place(root), first))
    content = path.read_bytes()
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    at = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 2
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(ArchiveDiffers, match="a page of it is not what was written"):
        list(rows_of(Place(root), first.path))
    path.write_bytes(content[:-1])
    with pytest.raises(ArchiveDiffers, match="bytes, expected"):
        require_file(Place(root), first)
    path.unlink()
    with pytest.raises(ArchiveDiffers, match="missing"):
        require_file(Place(root), first)


def test_rows_come_in_bounded_batches_and_only_those_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topics.limits.SPARK_BATCH_ROWS", 3)
    write_rows(tmp_path / "x.parquet", 1, 20)
    batches = list(rows_of(Place(str(tmp_path)), "x.parquet", 5, 12, ("seq", "data")))
    assert max(batch.num_rows for batch in batches) <= 3
    assert [seq for batch in batches for seq in batch.column("seq").to_pylist()] == list(range(5, 13))


@pytest.mark.parametrize("kind", [ColumnKind.VARIANT, ColumnKind.STRUCT])
def test_typed_columns_are_in_the_schema_of_the_table(tmp_path: Path, kind: ColumnKind) -> None:
    schema = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'
    columns = ArchiveColumns(kind, schema if kind is ColumnKind.STRUCT else "")
    store = ArchiveTable(str(tmp_path / "a"), SystemClock())
    store.create(columns)
    assert table.load(str(tmp_path / "a")).columns == columns
    names = [field.name for field in DeltaTable(table.records_dir(str(tmp_path / "a"))).schema().fields]
    assert names == ["seq", "ts", "node", "tag", "meta", "data", "value", "topic", "date"]


def test_files_of_a_round_that_was_refused_are_removed_and_those_of_one_that_was_committed_stay(root: str) -> None:
    one, other = ArchiveTable(root, SystemClock()), ArchiveTable(root, SystemClock())
    append(one, 21, 30)
    round_dir = Path(root) / table.new_round(0)
    write_rows(round_dir / "x.parquet", 21, 25)
    target = table.records_path(TOPIC, DATE, 21, 25, str(round_dir))
    file = msgspec.structs.replace(file_of(root, round_dir / "x.parquet", 21, 25), path=target)
    cut = TopicCut(topic=TOPIC, epoch=7, from_seq=20, to_seq=25, records=5, lost=0, deleted=0)
    with (
        pytest.raises(ArchiveInUse),
        other.placing([WrittenFile(str((round_dir / "x.parquet").relative_to(root)), file, 0)]) as placed,
    ):
        other.append([cut], placed, [])
    assert not (Path(root) / target).exists()
    one.require_files()


def test_what_is_no_archive_is_refused_and_left_alone(tmp_path: Path, root: str) -> None:
    with pytest.raises(NotAnArchive):
        table.load(str(tmp_path / "nowhere"))
    write_deltalake(tmp_path / "theirs" / "records", pa.table({"a": [1]}))
    with pytest.raises(NotAnArchive):
        table.load(str(tmp_path / "theirs"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.txt").write_text("mine")
    with pytest.raises(DirectoryNotEmpty, match=r"mine\.txt"):
        ArchiveTable(str(tmp_path / "mine"), SystemClock())
    log = Path(table.records_dir(root)) / "_delta_log" / f"{2:020d}.json"
    log.write_text("half a comm")
    with pytest.raises(ArchiveDamaged, match="restore it from a copy"):
        table.load(root)


def old_archive(directory: Path) -> None:
    """As version 1 wrote them: two files, one of them merged out of two, and a loss."""
    (directory / "manifest").mkdir(parents=True)
    parts = {}
    for first, last in ((1, 10), (11, 20)):
        path = directory / "records" / "topic=shop%3Aeu" / f"date={DATE}" / f"{first:020d}-{last:020d}.parquet"
        write_rows(path, first, last)
        told = {
            name: getattr(file_of(str(directory), path, first, last), name) for name in ArchivedFile.__struct_fields__
        }
        parts[first] = told | {"file_xxh3": "x", "rows_xor": "y"}
    (directory / "losses").mkdir()
    pq.write_table(pa.table({"topic": [TOPIC]}), directory / "losses" / f"{2:016d}.parquet")
    (directory / "LOCK").touch()
    common: dict[str, object] = {
        "format": 1,
        "archive_id": "abc",
        "at_ms": 1,
        "columns": {"kind": "none"},
        "server_id": "server-1",
    }
    cut = {"topic": TOPIC, "epoch": 7, "from_seq": 0, "records": 9, "lost": 1, "deleted": 0, "last": None}
    loss = {"topic": TOPIC, "gap_from": 3, "gap_to": 3, "reason": "cap"}
    commits: list[dict[str, object]] = [
        {"kind": "create"},
        {"kind": "append", "topics": [cut | {"to_seq": 10}], "added": [parts[1]], "losses": [loss]},
        {"kind": "append", "topics": [cut | {"from_seq": 10, "to_seq": 20}], "added": [parts[11]]},
    ]
    digest = ""
    for number, commit in enumerate(commits, start=1):
        content = json.dumps(common | {"number": number, "parent_xxh3": digest} | commit).encode()
        (directory / "manifest" / f"{number:016d}.json").write_bytes(content)
        digest = xxh3_64_hexdigest(content)


def test_an_old_archive_is_refused_with_the_command_that_converts_it_and_then_goes_on(tmp_path: Path) -> None:
    root = str(tmp_path / "old")
    old_archive(tmp_path / "old")
    for opened in (lambda: table.load(root), lambda: ArchiveTable(root, SystemClock())):
        with pytest.raises(OldArchive, match=f"topics pipeline convert {root}"):
            opened()
    # Killed after the table was made and before the manifest was put away, it begins again.
    table.create_tables(Place(root), ArchiveColumns(), "half", "", {})
    summary = convert(root, SystemClock())
    assert (summary.topics, summary.files, summary.records, summary.losses) == (1, 2, 19, 1)
    state = table.load(root)
    assert (state.archive_id, state.server_id, state.losses) == ("abc", "server-1", [LOSS])
    assert (state.topics[TOPIC].to_seq, state.topics[TOPIC].epoch, state.topics[TOPIC].records) == (20, 7, 19)
    assert sorted(path.name for path in (tmp_path / "old").iterdir()) == ["losses", "records"]
    store = ArchiveTable(root, SystemClock())
    store.require_files()
    append(store, 21, 30)
    assert pl.read_delta(table.records_dir(root)).height == 29
    with pytest.raises(NotAnArchive):
        convert(root)


def test_a_damaged_old_archive_is_not_converted(tmp_path: Path) -> None:
    old_archive(tmp_path / "old")
    second = tmp_path / "old" / "manifest" / f"{2:016d}.json"
    second.write_bytes(second.read_bytes().replace(b'"at_ms": 1', b'"at_ms": 2'))
    with pytest.raises(ArchiveDamaged, match="changed or replaced"):
        convert(str(tmp_path / "old"))
    assert not (tmp_path / "old" / "records" / "_delta_log").exists()
