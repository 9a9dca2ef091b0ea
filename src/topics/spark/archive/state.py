"""What an archive holds, as values: its columns, its files, how far topics are archived, and what was lost before."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct


class ColumnKind(StrEnum):
    NONE = "none"
    STRUCT = "struct"
    VARIANT = "variant"


class ArchiveColumns(Struct, frozen=True):
    """The typed column `value` beside `data`. `schema` is Spark's JSON form. If it is `strict`, a record that does not
    fit is an error; otherwise its `value` is null."""

    kind: ColumnKind = ColumnKind.NONE
    schema: str = ""
    strict: bool = False


class ArchivedFile(Struct, frozen=True, kw_only=True):
    """Records [first_seq, last_seq] of a topic in the order of seqs, without the seqs that were already deleted or
    lost. `path` is relative to the archive."""

    path: str
    topic: str
    date: str
    first_seq: int
    last_seq: int
    first_ts: int
    last_ts: int
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished file that is not committed yet: where it is, its entry in the table, and the XOR of its rows'
    hashes."""

    staged_path: str
    file: ArchivedFile
    rows_xor: int


class ArchivedLoss(Struct, frozen=True):
    """Seqs that were lost before they could be archived, both ends inclusive."""

    topic: str
    gap_from: int
    gap_to: int
    reason: str


class Forgotten(Struct, frozen=True):
    """Records up to `to_seq` with a matching tag were removed for good, or are about to be."""

    topic: str
    match: str
    to_seq: int
    at_ms: int


class TopicCut(Struct, frozen=True, kw_only=True):
    """Seqs (from_seq, to_seq] of a topic; `records + lost + deleted` is their number. `rows_xor` is the XOR of the
    records' hashes, so it does not depend on how they are spread over files; empty if it was not computed."""

    topic: str
    epoch: int
    from_seq: int
    to_seq: int
    records: int
    lost: int
    deleted: int
    rows_xor: str = ""


@dataclass(slots=True)
class ArchiveState:
    """A version of an archive."""

    archive_id: str
    server_id: str
    columns: ArchiveColumns
    version: int
    topics: dict[str, TopicCut] = field(default_factory=dict)
    files: list[ArchivedFile] = field(default_factory=list)
    losses: list[ArchivedLoss] = field(default_factory=list)
    forgotten: list[Forgotten] = field(default_factory=list)

    def files_of(self, topic: str, first_seq: int = 1, last_seq: int | None = None) -> list[ArchivedFile]:
        """The topic's files with seqs in [first_seq, last_seq], in the order of seqs."""
        found = [
            file
            for file in self.files
            if file.topic == topic and file.last_seq >= first_seq and (last_seq is None or file.first_seq <= last_seq)
        ]
        return sorted(found, key=lambda file: file.first_seq)

    def losses_of(self, topic: str) -> list[ArchivedLoss]:
        return sorted((loss for loss in self.losses if loss.topic == topic), key=lambda loss: loss.gap_from)


def lost_seqs(losses: Iterable[ArchivedLoss]) -> int:
    return sum(loss.gap_to - loss.gap_from + 1 for loss in losses)


def merged_losses(losses: Sequence[ArchivedLoss]) -> list[ArchivedLoss]:
    """Joins adjacent losses: each task reports its part of a range that was cut."""
    merged: list[ArchivedLoss] = []
    for loss in sorted(losses, key=lambda loss: (loss.topic, loss.gap_from)):
        last = merged[-1] if merged else None
        if last and (last.topic, last.reason) == (loss.topic, loss.reason) and last.gap_to + 1 == loss.gap_from:
            merged[-1] = ArchivedLoss(loss.topic, last.gap_from, loss.gap_to, loss.reason)
        else:
            merged.append(loss)
    return merged
