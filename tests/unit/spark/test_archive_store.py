"""What a crash between any two steps of a change leaves, and that the next job puts it right."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from topics.spark.pipelines import archive_layout as layout
from topics.spark.pipelines import manifest
from topics.spark.pipelines.archive_store import ArchiveStore, StagedFile, open_archive
from topics.spark.pipelines.errors import ArchiveInUse, DirectoryNotEmpty, ManifestDamaged, NotAnArchive
from topics.spark.pipelines.manifest import ArchiveColumns, ArchivedFile, ArchivedLoss, TopicCut

DATE = "2026-11-16"


def staged(staging: str, first: int, last: int) -> StagedFile:
    path = Path(staging) / f"{first}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"seq": list(range(first, last + 1))}), path)
    file = ArchivedFile(
        path=layout.records_path("a:b", DATE, first, last),
        topic="a:b",
        date=DATE,
        first_seq=first,
        last_seq=last,
        first_ts=1,
        last_ts=2,
        count=last - first + 1,
        size_bytes=path.stat().st_size,
        file_xxh3="",
        rows_xor=f"{first:016x}",
    )
    return StagedFile(str(path), file)


def cut(first: int, last: int) -> TopicCut:
    return TopicCut(topic="a:b", epoch=1, from_seq=first - 1, to_seq=last, records=last - first + 1, lost=0, deleted=0)


def append(store: ArchiveStore, first: int, last: int, *losses: ArchivedLoss) -> None:
    with store.staging() as staging:
        store.append([cut(first, last)], [staged(staging, first, last)], losses)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """An archive with two files of ten records."""
    with open_archive(str(tmp_path / "archive")) as store:
        store.create(ArchiveColumns())
        append(store, 1, 10, ArchivedLoss("a:b", 3, 3, "cap"))
        append(store, 11, 20)
    return str(tmp_path / "archive")


def files(root: str) -> set[str]:
    return {str(path.relative_to(root)) for path in Path(root).rglob("*.parquet") if "losses" not in path.parts}


def test_what_was_committed_is_there_when_it_is_opened_again(root: str) -> None:
    state = manifest.load(root)
    assert (state.topics["a:b"].from_seq, state.topics["a:b"].to_seq, state.topics["a:b"].records) == (0, 20, 20)
    assert [file.first_seq for file in state.files_of("a:b")] == [1, 11]
    assert [file.first_seq for file in state.files_of("a:b", 11, 15)] == [11]
    assert state.losses_of("a:b") == [ArchivedLoss("a:b", 3, 3, "cap")]
    assert files(root) == state.files.keys()
    assert pq.read_table(Path(root) / layout.losses_path(2)).to_pylist() == [
        {"topic": "a:b", "gap_from": 3, "gap_to": 3, "reason": "cap"}
    ]


def test_a_job_killed_while_it_stages_leaves_rubbish_that_the_next_one_removes(root: str) -> None:
    staged(f"{layout.staging_dir(root)}/killed", 21, 30)
    open_archive(root).close()
    assert not Path(layout.staging_dir(root)).exists()


def test_a_job_killed_before_its_commit_has_archived_nothing(root: str) -> None:
    entry = staged(f"{layout.staging_dir(root)}/killed", 21, 30)
    Path(entry.path).rename(Path(root) / entry.file.path)
    Path(f"{layout.commit_path(root, 4)}.tmp").write_text("half a comm")
    (Path(root) / layout.losses_path(4)).write_text("losses of a commit that never was")
    with open_archive(root) as store:
        assert store.state.topics["a:b"].to_seq == 20
        assert files(root) == store.state.files.keys()
        assert not (Path(root) / layout.losses_path(4)).exists()
        append(store, 21, 30)
    assert manifest.load(root).topics["a:b"].to_seq == 30


def test_a_compaction_killed_after_its_commit_has_its_old_files_removed_by_the_next_job(root: str) -> None:
    old = {path: (Path(root) / path).read_bytes() for path in files(root)}
    with open_archive(root) as store:
        before = list(store.state.files.values())
        with store.staging() as staging:
            store.compact([staged(staging, 1, 20)], before)
    assert files(root) == manifest.load(root).files.keys() == {layout.records_path("a:b", DATE, 1, 20)}
    for path, content in old.items():
        (Path(root) / path).write_bytes(content)
    open_archive(root).close()
    assert files(root) == {layout.records_path("a:b", DATE, 1, 20)}


def test_a_folded_manifest_says_the_same_also_when_old_commits_were_not_removed(root: str) -> None:
    before = manifest.load(root)
    old = {path: path.read_bytes() for path in Path(layout.manifest_dir(root)).iterdir()}
    with open_archive(root) as store:
        assert store.fold_manifest() == 3
        append(store, 21, 30)
    for path in list(old)[:2]:
        path.write_bytes(old[path])
    state = manifest.load(root)
    assert state.topics["a:b"].to_seq == 30
    assert state.files.keys() > before.files.keys()
    assert (state.archive_id, state.losses) == (before.archive_id, before.losses)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_commit_that_is_missing_changed_or_unreadable_is_refused(root: str, number: int) -> None:
    path = Path(layout.commit_path(root, number))
    content = path.read_bytes()
    path.write_bytes(content[:-9])
    with pytest.raises(ManifestDamaged, match=str(path)):
        manifest.load(root)
    if number < 3:
        path.unlink()
        with pytest.raises(ManifestDamaged):
            manifest.load(root)
        path.write_bytes(content.replace(b'"at_ms": ', b'"at_ms": 9'))
        with pytest.raises(ManifestDamaged, match="changed or replaced"):
            manifest.load(root)
    document = json.loads(content) | {"format": 99}
    path.write_text(json.dumps(document))
    with pytest.raises(ManifestDamaged, match="another version"):
        manifest.load(root)


def test_only_one_job_writes(root: str) -> None:
    with open_archive(root), pytest.raises(ArchiveInUse):
        open_archive(root)
    open_archive(root).close()


def test_what_is_no_archive_is_refused_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive):
        manifest.load(str(tmp_path))
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DirectoryNotEmpty, match=r"mine\.txt"):
        open_archive(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_losses_that_follow_each_other_are_one() -> None:
    cuts = [ArchivedLoss("a", 4, 6, "cap"), ArchivedLoss("a", 1, 3, "cap"), ArchivedLoss("a", 7, 7, "ttl")]
    assert manifest.merged_losses(cuts) == [ArchivedLoss("a", 1, 6, "cap"), ArchivedLoss("a", 7, 7, "ttl")]


def test_names_of_topics_survive_the_path() -> None:
    assert layout.topic_name("a:b") == "topic=a%3Ab"
    assert layout.parse_partition("topic=a%3Ab", "topic") == "a:b"
    assert layout.parse_partition("date=x", "topic") is None
