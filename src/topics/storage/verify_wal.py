"""Checks one shard of the WAL: every frame, mark, operation and batch, the numbering of its files, the order of seqs.

Reads all files, also those a snapshot has absorbed. A torn tail is a note: nobody was promised what it held.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from topics.storage.errors import CorruptFile, UnknownVersion
from topics.storage.findings import Findings
from topics.storage.frame import APPEND, BATCH_CONTINUES, CHECKPOINT_MARK
from topics.storage.fs import Disk
from topics.storage.operation_codec import decode_control
from topics.storage.wal_reader import EndReason, WalScan, scan
from topics.storage.wal_replay import ShardReplay
from topics.storage.wal_writer import WalFile, wal_files


@dataclass(slots=True)
class WalSummary:
    """What the shards hold beyond the snapshot."""

    frames: int = 0
    appended: Counter[int] = field(default_factory=Counter)
    """Records by topic id."""


class ShardCheck:
    """`from_lsn`: the first lsn that is not in the snapshot, None for a shard the snapshot does not know.
    `heads`: the last seq of each topic in the snapshot. `synced_lsn`: every frame below it was synced."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        from_lsn: int | None,
        heads: Mapping[int, int],
        findings: Findings,
        summary: WalSummary,
        advance: Callable[[int], None],
        synced_lsn: int = 0,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._from_lsn = from_lsn
        self._heads = heads
        self._findings = findings
        self._summary = summary
        self._advance = advance
        self._synced_lsn = synced_lsn
        self._last_seqs: dict[int, int] = {}

    def run(self) -> None:
        files = wal_files(self._disk, self._directory)
        if self._from_lsn is not None:
            try:
                ShardReplay(self._disk, self._directory, self._from_lsn)  # CURRENT, and whether the log reaches back
            except CorruptFile as error:
                self._findings.corrupt(error)
        due: int | None = None
        for position, file in enumerate(files):
            if due is not None and file.first_lsn != due:
                self._findings.problem(file.path, 0, f"it begins at lsn {file.first_lsn} where {due} is due")
            due = self._check_file(file, followed=position + 1 < len(files))
        known = max(self._synced_lsn, self._from_lsn or 0)
        if files and due is not None and due < known:
            self._findings.problem(
                files[-1].path, 0, f"the log ends before lsn {due}, and frames up to {known - 1} were synced"
            )

    def _check_file(self, file: WalFile, *, followed: bool) -> int | None:
        """The lsn after its last frame; None when that cannot be told."""
        buffer = self._disk.read(file.path)
        frames = scan(buffer, file.path, followed=followed)
        lsn = file.first_lsn
        try:
            lsn = self._check_frames(file, frames)
        except CorruptFile as error:
            self._findings.corrupt(error)
            return None
        except UnknownVersion as error:
            self._findings.unchecked(file.path, f"another version of topics wrote it: {error.version}")
            return None
        except msgspec.DecodeError as error:
            self._findings.unchecked(file.path, f"an operation that cannot be read: {error}")
            return None
        finally:
            self._advance(len(buffer))
        if frames.mark is not None and frames.mark.first_lsn != file.first_lsn:
            self._findings.problem(file.path, 0, f"its mark says it begins at lsn {frames.mark.first_lsn}")
        end = frames.end
        if end is not None and end.reason is EndReason.TORN:
            self._findings.note(file.path, end.offset, f"torn tail, to be cut at the next start: {end.detail}")
        return lsn

    def _check_frames(self, file: WalFile, frames: WalScan) -> int:
        """Hot: once per frame. Returns the lsn after the last one."""
        last_seqs, heads, summary = self._last_seqs, self._heads, self._summary
        lsn = file.first_lsn
        from_lsn = self._from_lsn
        offset = 0
        batch: tuple[int, int] | None = None  # the topic of an open batch and the seq it has to go on with
        for kind, flags, topic_id, seq, _, _, _, body, end in frames:
            if kind == APPEND:
                if batch is not None and batch != (topic_id, seq):
                    self._findings.problem(file.path, offset, f"seq {seq} in a batch that goes on with {batch[1]}")
                elif seq <= last_seqs.get(topic_id, 0):
                    self._findings.problem(file.path, offset, f"seq {seq} of topic {topic_id} was there before")
                last_seqs[topic_id] = seq
                batch = (topic_id, seq + 1) if flags & BATCH_CONTINUES else None
            elif kind != CHECKPOINT_MARK:
                decode_control(body)
            if kind != CHECKPOINT_MARK:
                if from_lsn is not None and lsn >= from_lsn:
                    summary.frames += 1
                    if kind == APPEND and seq > heads.get(topic_id, 0):
                        summary.appended[topic_id] += 1
                lsn += 1
            offset = end
        return lsn
