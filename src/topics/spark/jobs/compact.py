"""`compact`: merges small files of an archive. The records and their order stay the same.

It merges neighbouring files of one topic and date up to a size, reads the result back, compares it with the parts, and
only then commits it in their place. Our tasks merge, not `deltalake`, which would neither keep the order of seqs nor
write checksums into pages. Files no longer needed are removed once readers have had time to finish.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct
from pyspark.sql import SparkSession

from topics.clock import Clock, SystemClock
from topics.spark.archive import files as archive_files
from topics.spark.archive import table
from topics.spark.archive.errors import ArchiveDiffers
from topics.spark.archive.state import ArchivedFile
from topics.spark.archive.table import KEEP_HOURS_DEFAULT, ArchiveTable
from topics.spark.archive.writing import Rewritten
from topics.spark.errors import InvalidOption
from topics.spark.jobs.progress import Progress, Silent

FILE_MB_DEFAULT = 128
GROUPS_PER_CORE = 4
FILES_PER_ROUND_MAX = 1000


@dataclass(frozen=True, slots=True)
class CompactSpec:
    """`file_mb`: the most megabytes a merged file may have on disk. `keep_hours`: how long to keep files that only
    older versions of the table name, or none."""

    directory: str
    file_mb: int = FILE_MB_DEFAULT
    keep_hours: int = KEEP_HOURS_DEFAULT


class CompactSummary(Struct, frozen=True):
    directory: str
    files_before: int
    files_after: int
    size_bytes_before: int
    size_bytes_after: int
    records: int
    """In the files that were merged."""
    removed: int
    """Files removed because no version needs them any more."""
    elapsed_ms: int


def compact(
    spark: SparkSession, spec: CompactSpec, progress: Progress | None = None, *, clock: Clock | None = None
) -> CompactSummary:
    """Raises `NotAnArchive`, `ArchiveInUse`, `ArchiveDiffers`, `TargetDiskFull`."""
    check_spec(spec)
    clock, progress = clock or SystemClock(), progress or Silent()
    began_ns = clock.monotonic_ns()
    session = archive_files.own_session(spark)
    store = ArchiveTable(spec.directory, clock)
    store.require_files()
    before = list(store.state.files)
    groups = groups_of(before, spec.file_mb * 1_000_000)
    records = sum(file.count for group in groups for file in group)
    progress.begin("compacting", records)
    for some in _rounds(groups, GROUPS_PER_CORE * session.sparkContext.defaultParallelism):
        _merge(session, store, some)
        progress.advance(sum(file.count for group in some for file in group))
    progress.end()
    removed = store.vacuum(spec.keep_hours)
    after = store.state.files
    return CompactSummary(
        spec.directory,
        len(before),
        len(after),
        sum(file.size_bytes for file in before),
        sum(file.size_bytes for file in after),
        records,
        removed,
        (clock.monotonic_ns() - began_ns) // 1_000_000,
    )


def check_spec(spec: CompactSpec) -> None:
    """Checks what needs no Spark. Raises `NotAnArchive`, `OldArchive`, `ArchiveDamaged`, `InvalidOption`."""
    if spec.file_mb < 1:
        raise InvalidOption("file_mb", "must be at least 1")
    if spec.keep_hours < 0:
        raise InvalidOption("keep_hours", "must not be negative")
    table.load(spec.directory)


def groups_of(files: Sequence[ArchivedFile], size_bytes_max: int) -> list[list[ArchivedFile]]:
    """The groups of files to merge: two or more neighbours of one topic and date, within the size together."""
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
    """The groups of each commit: few enough to plan, and to lose little work if the job is killed."""
    rounds: list[list[list[ArchivedFile]]] = [[]]
    files = 0
    for group in groups:
        if rounds[-1] and (len(rounds[-1]) >= groups_max or files + len(group) > FILES_PER_ROUND_MAX):
            rounds.append([])
            files = 0
        rounds[-1].append(group)
        files += len(group)
    return [some for some in rounds if some]


def _merge(spark: SparkSession, store: ArchiveTable, groups: list[list[ArchivedFile]]) -> None:
    with store.writing() as round_dir:
        merged = archive_files.rewritten(spark, store, round_dir, groups)
        for group, entry in zip(groups, merged, strict=True):
            _require_same(store.root, group, entry)
        written = archive_files.written_files((entry.staged for entry in merged if entry.staged), round_dir)
        with store.placing(written) as placed:
            store.replace(placed, [file for group in groups for file in group], {"topics.job": "compact"})


def _require_same(root: str, group: Sequence[ArchivedFile], found: Rewritten) -> None:
    """Raises `ArchiveDiffers` if a file of a group no longer has the rows it had when it was archived."""
    due = (group[0].first_seq, group[-1].last_seq, sum(file.count for file in group))
    if due != (found.first_seq, found.last_seq, found.count):
        raise ArchiveDiffers(
            f"{root}/{group[0].path} or a file after it",
            f"{found.count} records of seqs {found.first_seq} to {found.last_seq}, expected {due[2]} of {due[0]} to "
            f"{due[1]}",
        )
