"""What an audit found, as values; the command line makes a table of it, `audit_page` a page."""

from msgspec import Struct


class LostRange(Struct, frozen=True):
    gap_from: int
    gap_to: int
    reason: str


class TopicAudit(Struct, frozen=True, kw_only=True):
    """`read + deleted + lost = head_seq`, or `unaccounted` is not 0. Seqs up to `archived_to` are archived:
    `archive_matched` of them are live and identical, `archive_only` have been deleted or lost since."""

    topic: str
    epoch: int
    head_seq: int
    read: int
    deleted: int
    lost: int
    unaccounted: int
    lost_ranges: tuple[LostRange, ...] = ()
    archived_to: int | None = None
    archive_matched: int = 0
    archive_only: int = 0
    problems: tuple[str, ...] = ()


class AuditSummary(Struct, frozen=True, kw_only=True):
    data: str
    archive: str | None
    sound: bool
    topics: tuple[TopicAudit, ...]
    problems: tuple[str, ...]
    unchecked: tuple[str, ...]
    notes: tuple[str, ...]
    checked_bytes: int
    wal_frames: int
    records: int
    archived_records: int
    elapsed_ms: int
