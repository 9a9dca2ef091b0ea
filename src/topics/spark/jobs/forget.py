"""`forget`: deletes the records with a tag from a topic and from its archive: the right to be forgotten.

The steps, and what a killed run leaves for the same command to finish:

1. deletes the records up to the present head from the topic  → they are still in the archive
2. notes in the archive what is to be forgotten               → an audit finds what is left of it
3. rewrites files that have such records, without them        → some are done; the next run finds the others
4. removes files that no version may name any more

A job that read the records before step 1 cannot commit them after step 2, because its version is no longer the newest.
The summary lists what this job cannot reach.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct
from pyspark.sql import SparkSession

from topics.clock import Clock, SystemClock
from topics.model.names import is_topic_name
from topics.model.tag_match import parse_match
from topics.spark.archive import files as archive_files
from topics.spark.archive import table
from topics.spark.archive.errors import ArchiveDiffers, ArchiveOfAnotherServer, TopicNotArchived
from topics.spark.archive.state import ArchivedFile, Forgotten
from topics.spark.archive.table import ArchiveTable
from topics.spark.errors import InvalidOption
from topics.spark.jobs.progress import Progress, Silent
from topics.spark.options import Server

FILES_PER_CORE = 4
LEFT_OVER_HOURS = 1
"""A file that no commit names may belong to a job about to commit it; an older one is from a job that was killed."""


@dataclass(frozen=True, slots=True)
class ForgetSpec:
    """`match`: a tag, or the beginning of tags followed by `*`."""

    server: Server
    topic: str
    match: str
    archive: str | None = None


class ForgetSummary(Struct, frozen=True, kw_only=True):
    """What one run did, up to `head_seq`: it removed `deleted` records from the topic and `forgotten` ones from the
    archive. The next run finds none. `still_on_disk` and `untouched` are texts for people."""

    topic: str
    match: str
    url: str
    head_seq: int
    deleted: int
    archive: str | None
    archived_to: int | None
    forgotten: int
    files_rewritten: int
    still_on_disk: tuple[str, ...]
    untouched: tuple[str, ...]
    elapsed_ms: int


def check_spec(spec: ForgetSpec) -> None:
    """Checks what needs no Spark. Raises `InvalidOption`, `TopicNotFound`, `TopicNotArchived`, `NotAnArchive` and
    `ArchiveOfAnotherServer`."""
    if not is_topic_name(spec.topic):
        raise InvalidOption("topic", f"{spec.topic[:80]!r} is not a topic name")
    match = parse_match(spec.match)
    if match.is_prefix and not match.text:
        raise InvalidOption("match", "would match every tag; delete the topic, or the archive, instead")
    with spec.server.client() as client:
        client.topic(spec.topic)
        server_id = client.ready().server_id
    if spec.archive is not None:
        state = table.load(spec.archive)
        if state.server_id and server_id and state.server_id != server_id:
            reason = f"its id is {state.server_id}, but this one's is {server_id}"
            raise ArchiveOfAnotherServer(spec.archive, "another server", reason)
        if spec.topic not in state.topics:
            raise TopicNotArchived(spec.archive, spec.topic, sorted(state.topics))


def forget(
    spark: SparkSession, spec: ForgetSpec, progress: Progress | None = None, *, clock: Clock | None = None
) -> ForgetSummary:
    """Raises what `check_spec` raises, `ArchiveInUse`, `ArchiveDiffers` and `TargetDiskFull`."""
    check_spec(spec)
    clock, progress = clock or SystemClock(), progress or Silent()
    began_ns = clock.monotonic_ns()
    with spec.server.client() as client:
        head_seq = client.topic(spec.topic).head_seq
        # Bounded: records written from now on are not affected.
        deleted = client.delete(spec.topic, before_seq=head_seq + 1, match=spec.match).deleted
        dead_letter = client.topic(spec.topic).config.dead_letter
        dests = [router.dest for router in client.routers(source=spec.topic)]
    still = [f"{deleted:,} deleted records in segments of the server, until those segments go"] if deleted else []
    found = _Found(None, 0, 0, ())
    if spec.archive is not None:
        entry = Forgotten(spec.topic, spec.match, head_seq, clock.now_ms())
        found = _forget_archive(spark, spec.archive, entry, progress, clock)
    return ForgetSummary(
        topic=spec.topic,
        match=spec.match,
        url=spec.server.url,
        head_seq=head_seq,
        deleted=deleted,
        archive=spec.archive,
        archived_to=found.archived_to,
        forgotten=found.records,
        files_rewritten=found.files,
        still_on_disk=(*still, *found.still),
        untouched=_untouched(spec, dests, dead_letter),
        elapsed_ms=(clock.monotonic_ns() - began_ns) // 1_000_000,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    archived_to: int | None
    records: int
    files: int
    still: tuple[str, ...]


def _forget_archive(spark: SparkSession, root: str, entry: Forgotten, progress: Progress, clock: Clock) -> _Found:
    store = ArchiveTable(root, clock)
    store.note_forgotten(entry)
    candidates = store.state.files_of(entry.topic, 1, entry.to_seq)
    matched = archive_files.forgotten_counts(spark, store.place, candidates, entry)
    affected = [file for file in candidates if file.path in matched]
    progress.begin("forgetting", sum(file.count for file in affected))
    step = FILES_PER_CORE * spark.sparkContext.defaultParallelism
    for start in range(0, len(affected), step):
        some = affected[start : start + step]
        _rewrite(spark, store, some, matched, entry)
        progress.advance(sum(file.count for file in some))
    progress.end()
    store.vacuum(0, full=False)
    store.vacuum(LEFT_OVER_HOURS)
    still = [file.path for file in affected if store.place.size(file.path) is not None]
    still += store.unnamed_files()
    return _Found(store.state.topics[entry.topic].to_seq, sum(matched.values()), len(affected), tuple(still))


def _rewrite(
    spark: SparkSession, store: ArchiveTable, some: Sequence[ArchivedFile], matched: Mapping[str, int], entry: Forgotten
) -> None:
    with store.writing() as round_dir:
        rewritten = archive_files.rewritten(spark, store, round_dir, [[file] for file in some], entry)
        for file, found in zip(some, rewritten, strict=True):
            if (found.count, found.gone) != (file.count, matched[file.path]):
                raise ArchiveDiffers(store.place.at(file.path), f"{found.count} records, expected {file.count}")
        written = archive_files.written_files((found.staged for found in rewritten if found.staged), round_dir)
        with store.placing(written) as placed:
            store.replace(placed, some, {"topics.job": "forget"}, data_change=True)


def _untouched(spec: ForgetSpec, dests: Sequence[str], dead_letter: str | None) -> tuple[str, ...]:
    """Places that were not looked at and may have copies."""
    places = [f"copies by routers, in {dest}" for dest in sorted(set(dests))]
    places += [] if dead_letter is None else [f"dead letters, in {dead_letter}"]
    places += [] if spec.archive is not None else ["archives of the topic (--archive names one)"]
    return (*places, "backups, exports, replays into other topics, and what consumers kept")
