"""What an archive holds: a chain of commits, each with exact seq ranges, counts and checksums.

A commit is one JSON file, made whole or not at all, and names the checksum of the one before it. What the chain adds
up to is the archive; a file no commit names is not part of it. A commit of kind `snapshot` stands for all before it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec
from msgspec import Struct
from xxhash import xxh3_64_hexdigest

from topics.spark.pipelines import archive_layout as layout
from topics.spark.pipelines.errors import ManifestDamaged, NotAnArchive
from topics.storage.fs import Disk, RealDisk

FORMAT = 1


class CommitKind(StrEnum):
    CREATE = "create"
    APPEND = "append"
    COMPACT = "compact"
    SNAPSHOT = "snapshot"


class ColumnKind(StrEnum):
    NONE = "none"
    STRUCT = "struct"
    VARIANT = "variant"


class ArchiveColumns(Struct, frozen=True):
    """The typed column `value` beside `data`. `schema` is Spark's JSON form. `strict`: a record that does not fit
    is an error; otherwise its `value` is null."""

    kind: ColumnKind = ColumnKind.NONE
    schema: str = ""
    strict: bool = False


class ArchivedFile(Struct, frozen=True, kw_only=True):
    """Records [first_seq, last_seq] of a topic, but for those deleted or lost before. `path` is relative to the
    archive. `file_xxh3` is of its bytes; `rows_xor` combines a hash of every row, so it does not depend on how rows
    are spread over files."""

    path: str
    topic: str
    date: str
    first_seq: int
    last_seq: int
    first_ts: int
    last_ts: int
    count: int
    size_bytes: int
    file_xxh3: str
    rows_xor: str


class ArchivedLoss(Struct, frozen=True):
    """Seqs that were lost before they could be archived, both ends inclusive."""

    topic: str
    gap_from: int
    gap_to: int
    reason: str


class LastRecord(Struct, frozen=True):
    """Tells a server's topic from another server's: the same seq has to be the same record."""

    seq: int
    ts: int
    data_xxh3: str


class TopicCut(Struct, frozen=True, kw_only=True):
    """What a commit covers of a topic: seqs (from_seq, to_seq]. `records + lost + deleted` is their number."""

    topic: str
    epoch: int
    from_seq: int
    to_seq: int
    records: int
    lost: int
    deleted: int
    last: LastRecord | None = None


class Commit(Struct, frozen=True, kw_only=True):
    """`server_id`: whose topics these are; empty when the server, or who archived them, knew of no ids."""

    format: int
    number: int
    parent_xxh3: str
    kind: CommitKind
    archive_id: str
    at_ms: int
    columns: ArchiveColumns
    topics: tuple[TopicCut, ...] = ()
    added: tuple[ArchivedFile, ...] = ()
    removed: tuple[str, ...] = ()
    losses: tuple[ArchivedLoss, ...] = ()
    server_id: str = ""


@dataclass(slots=True)
class ArchiveState:
    """The chain of commits, added up."""

    archive_id: str
    columns: ArchiveColumns
    number: int
    digest: str
    topics: dict[str, TopicCut] = field(default_factory=dict)
    files: dict[str, ArchivedFile] = field(default_factory=dict)
    losses: list[ArchivedLoss] = field(default_factory=list)
    server_id: str = ""

    def apply(self, commit: Commit, digest: str) -> None:
        self.number, self.digest = commit.number, digest
        self.server_id = commit.server_id or self.server_id
        for cut in commit.topics:
            self.topics[cut.topic] = _joined(self.topics.get(cut.topic), cut)
        for path in commit.removed:
            self.files.pop(path, None)
        for file in commit.added:
            self.files[file.path] = file
        self.losses += commit.losses

    def files_of(self, topic: str, first_seq: int = 1, last_seq: int | None = None) -> list[ArchivedFile]:
        """Those with seqs in [first_seq, last_seq], in the order of seqs."""
        found = [
            file
            for file in self.files.values()
            if file.topic == topic and file.last_seq >= first_seq and (last_seq is None or file.first_seq <= last_seq)
        ]
        return sorted(found, key=lambda file: file.first_seq)

    def losses_of(self, topic: str) -> list[ArchivedLoss]:
        return sorted((loss for loss in self.losses if loss.topic == topic), key=lambda loss: loss.gap_from)


def load(root: str, disk: Disk | None = None) -> ArchiveState:
    """Raises `NotAnArchive` and `ManifestDamaged`."""
    disk = disk or RealDisk()
    numbers = commit_numbers(disk, root)
    if not numbers:
        raise NotAnArchive(root)
    contents = []
    for number in reversed(numbers):
        contents.append(_read(disk, root, number))
        if contents[-1][0].kind in {CommitKind.SNAPSHOT, CommitKind.CREATE}:
            break
    contents.reverse()
    first, digest = contents[0]
    state = ArchiveState(first.archive_id, first.columns, first.number, digest)
    state.apply(first, digest)
    if first.kind not in {CommitKind.SNAPSHOT, CommitKind.CREATE}:
        raise ManifestDamaged(layout.commit_path(root, first.number), "the commits before it are missing")
    for commit, digest in contents[1:]:
        path = layout.commit_path(root, commit.number)
        if commit.number != state.number + 1:
            raise ManifestDamaged(path, f"commit {state.number + 1} before it is missing")
        if commit.parent_xxh3 != state.digest or commit.archive_id != state.archive_id:
            raise ManifestDamaged(path, "it does not follow the commit before it, which was changed or replaced")
        state.apply(commit, digest)
    return state


def commit_numbers(disk: Disk, root: str) -> list[int]:
    names = map(layout.parse_commit_name, disk.list_dir(layout.manifest_dir(root)))
    return sorted(number for number in names if number is not None)


def commit_numbers_of(root: str) -> list[int]:
    return commit_numbers(RealDisk(), root)


def encode(commit: Commit) -> bytes:
    return msgspec.json.format(msgspec.json.encode(commit), indent=1)


def digest_of(content: bytes) -> str:
    return xxh3_64_hexdigest(content)


def lost_seqs(losses: Iterable[ArchivedLoss]) -> int:
    return sum(loss.gap_to - loss.gap_from + 1 for loss in losses)


def snapshot_topics(state: ArchiveState) -> tuple[TopicCut, ...]:
    return tuple(state.topics[name] for name in sorted(state.topics))


def merged_losses(losses: Sequence[ArchivedLoss]) -> list[ArchivedLoss]:
    """One entry for losses that follow each other: a range cut for several tasks has one in each."""
    merged: list[ArchivedLoss] = []
    for loss in sorted(losses, key=lambda loss: (loss.topic, loss.gap_from)):
        last = merged[-1] if merged else None
        if last and (last.topic, last.reason) == (loss.topic, loss.reason) and last.gap_to + 1 == loss.gap_from:
            merged[-1] = ArchivedLoss(loss.topic, last.gap_from, loss.gap_to, loss.reason)
        else:
            merged.append(loss)
    return merged


def _read(disk: Disk, root: str, number: int) -> tuple[Commit, str]:
    path = layout.commit_path(root, number)
    content = disk.read(path)
    try:
        commit = msgspec.json.decode(content, type=Commit)
    except msgspec.DecodeError as error:
        raise ManifestDamaged(path, f"it cannot be read ({error})") from None
    if commit.format != FORMAT:
        raise ManifestDamaged(path, f"its format {commit.format} is of another version of this program")
    if commit.number != number:
        raise ManifestDamaged(path, f"it is commit {commit.number}")
    return commit, digest_of(content)


def _joined(before: TopicCut | None, cut: TopicCut) -> TopicCut:
    if before is None:
        return cut
    return TopicCut(
        topic=cut.topic,
        epoch=cut.epoch,
        from_seq=before.from_seq,
        to_seq=cut.to_seq,
        records=before.records + cut.records,
        lost=before.lost + cut.lost,
        deleted=before.deleted + cut.deleted,
        last=cut.last or before.last,
    )
