"""`compact`: merges small files of an archive. The records, their order and their checksums stay what they were.

Files that follow each other in one topic and date are merged up to a size. What was merged is read back and compared
with what the manifest says of its parts before it takes their place (`archive_store`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from topics.clock import Clock, SystemClock
from topics.spark.errors import InvalidOption
from topics.spark.pipelines import archive_files, manifest
from topics.spark.pipelines.archive_store import ArchiveStore, StagedFile, open_archive
from topics.spark.pipelines.errors import ArchiveDiffers
from topics.spark.pipelines.manifest import ArchivedFile
from topics.spark.pipelines.progress import Progress, Silent

FILE_MB_DEFAULT = 128
GROUPS_PER_CORE = 4
FILES_PER_ROUND_MAX = 1000


@dataclass(frozen=True, slots=True)
class CompactSpec:
    """`file_mb`: megabytes of a merged file at most, as they are on disk."""

    directory: str
    file_mb: int = FILE_MB_DEFAULT


class CompactSummary(Struct, frozen=True):
    directory: str
    files_before: int
    files_after: int
    size_bytes_before: int
    size_bytes_after: int
    records: int
    """Of the files that were merged."""
    manifest_commits: int
    """Commits that one took the place of."""
    elapsed_ms: int


def compact(
    spark: SparkSession, spec: CompactSpec, progress: Progress | None = None, *, clock: Clock | None = None
) -> CompactSummary:
    """Raises `NotAnArchive`, `ArchiveInUse`, `ArchiveDiffers`, `TargetDiskFull`."""
    check_spec(spec)
    clock, progress = clock or SystemClock(), progress or Silent()
    began_ns = clock.monotonic_ns()
    session = archive_files.own_session(spark)
    with open_archive(spec.directory, clock) as store:
        store.require_files()
        before = list(store.state.files.values())
        groups = groups_of(before, spec.file_mb * 1_000_000)
        records = sum(file.count for group in groups for file in group)
        progress.begin("compacting", records)
        for some in _rounds(groups, GROUPS_PER_CORE * session.sparkContext.defaultParallelism):
            _merge(session, store, some)
            progress.advance(sum(file.count for group in some for file in group))
        progress.end()
        commits = store.fold_manifest() if len(manifest.commit_numbers_of(spec.directory)) > 1 else 0
        after = list(store.state.files.values())
    return CompactSummary(
        spec.directory,
        len(before),
        len(after),
        sum(file.size_bytes for file in before),
        sum(file.size_bytes for file in after),
        records,
        commits,
        (clock.monotonic_ns() - began_ns) // 1_000_000,
    )


def check_spec(spec: CompactSpec) -> None:
    """What can be told without Spark. Raises `NotAnArchive`, `ManifestDamaged`, `ArchiveInUse`, `InvalidOption`."""
    if spec.file_mb < 1:
        raise InvalidOption("file_mb", "must be at least 1")
    manifest.load(spec.directory)
    open_archive(spec.directory).close()


def groups_of(files: Sequence[ArchivedFile], size_bytes_max: int) -> list[list[ArchivedFile]]:
    """Files to merge: neighbours in one topic and date, together within the size, two at least."""
    groups: list[list[ArchivedFile]] = []
    group: list[ArchivedFile] = []
    for file in sorted(files, key=lambda file: (file.topic, file.first_seq)):
        fits = (
            group
            and (file.topic, file.date) == (group[0].topic, group[0].date)
            and sum(member.size_bytes for member in group) + file.size_bytes <= size_bytes_max
        )
        if fits:
            group.append(file)
        else:
            groups.append(group)
            group = [file]
    groups.append(group)
    return [group for group in groups if len(group) > 1]


def _rounds(groups: list[list[ArchivedFile]], groups_max: int) -> list[list[list[ArchivedFile]]]:
    """Groups for one commit each: few enough to plan, and to lose little when the job is killed."""
    rounds: list[list[list[ArchivedFile]]] = [[]]
    files = 0
    for group in groups:
        if rounds[-1] and (len(rounds[-1]) >= groups_max or files + len(group) > FILES_PER_ROUND_MAX):
            rounds.append([])
            files = 0
        rounds[-1].append(group)
        files += len(group)
    return [some for some in rounds if some]


def _merge(spark: SparkSession, store: ArchiveStore, groups: list[list[ArchivedFile]]) -> None:
    columns = store.state.columns
    parts: list[DataFrame] = [
        archive_files.read_files(spark, store.root, group, columns).withColumn("group", F.lit(number))
        for number, group in enumerate(groups)
    ]
    merged = (
        reduce(DataFrame.unionByName, parts)
        # A group is one task's, and so one file.
        .repartition(len(groups), "group")
        .sortWithinPartitions("group", "topic", "date", "seq")
    )
    with store.staging() as staging:
        archive_files.write_staged(
            merged, staging, ("group", "topic", "date") if len(groups) > 1 else ("topic", "date")
        )
        staged = archive_files.checked_files(spark, staging, columns, len(groups))
        for group in groups:
            _require_same(store.root, group, [entry for entry in staged if _is_of(entry, group)])
        store.compact(staged, [file for group in groups for file in group])


def _is_of(entry: StagedFile, group: Sequence[ArchivedFile]) -> bool:
    file = entry.file
    return file.topic == group[0].topic and group[0].first_seq <= file.first_seq <= group[-1].last_seq


def _require_same(root: str, group: Sequence[ArchivedFile], found: Sequence[StagedFile]) -> None:
    """Raises `ArchiveDiffers`: then a file of the group has other rows than it had when it was archived."""
    due = (sum(file.count for file in group), archive_files.xor_of(group), group[0].first_seq, group[-1].last_seq)
    if len(found) == 1:
        file = found[0].file
        if due == (file.count, file.rows_xor, file.first_seq, file.last_seq):
            return
    raise ArchiveDiffers(f"{root}/{group[0].path} or a file after it", "its rows are not those that were archived")
