"""Reads an archive and the log after it as one log.

Seqs up to the last archived one come from the archive, the rest from the log, so nothing is read twice or left out.
Both must belong to one server, which is checked first (`archive.identity`). Records that were archived and then deleted
from the log are still read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topics.spark.archive.errors import ArchiveDiffers
from topics.spark.archive.identity import require_same_server, require_same_topic
from topics.spark.archive.place import Place
from topics.spark.archive.rows import require_file, rows_of
from topics.spark.archive.state import ArchivedFile, ArchiveState
from topics.spark.columns import RECORD_FIELDS, Columns, filtered
from topics.spark.log import Log, Planned
from topics.spark.offsets import Gap, Offsets, Position, SeqRange, TopicRange
from topics.spark.options import Filters


@dataclass(frozen=True, slots=True)
class ArchiveShare:
    """One task's share of an archive: records [start, end] of a file, and the losses among them."""

    topic: str
    place: Place
    start: int
    end: int
    file: ArchivedFile | None
    gaps: tuple[Gap, ...]

    @property
    def size(self) -> int:
        return self.end - self.start + 1


class StitchedLog:
    """An archive before a log. Only ranges and plans need the archive's table; tasks do not read it."""

    def __init__(self, log: Log, root: str, filters: Filters) -> None:
        self._log = log
        self._place = Place.of(root)
        self._filters = filters

    def _state(self) -> ArchiveState:
        from topics.spark.archive import table  # noqa: PLC0415 (slow to import, and only the planner needs it)

        return table.load(self._place.root)

    def server_id(self) -> str:
        return self._log.server_id()

    def require_reachable(self) -> None:
        self._log.require_reachable()

    def ranges(self) -> dict[str, TopicRange]:
        state = self._state()
        require_same_server(self._place.root, state, self._log)
        ranges = {}
        for topic, found in self._log.ranges().items():
            require_same_topic(self._place.root, state, self._log, topic, Position(found.epoch, found.head_seq))
            files = state.files_of(topic)
            earliest = min(found.earliest_seq, files[0].first_seq) if files else found.earliest_seq
            ranges[topic] = found._replace(earliest_seq=earliest)
        return ranges

    def seq_at(self, topic: str, ts: int, *, behind_losses: bool = False) -> int | None:
        state = self._state()
        for file in state.files_of(topic):
            if file.last_ts >= ts:
                seq = _seq_at(self._place, require_file(self._place, file), ts)
                lost = [loss.gap_from for loss in state.losses_of(topic) if loss.gap_to == seq - 1]
                return lost[0] if lost and not behind_losses else seq
        return self._log.seq_at(topic, ts, behind_losses=behind_losses)

    def plan(self, ranges: Sequence[SeqRange], pieces_min: int, records_max: int | None) -> Sequence[Planned]:
        state = self._state()
        total = sum(wanted.size for wanted in ranges)
        most = records_max or max(total, 1)
        if pieces_min > 1 and total:
            most = min(most, -(-total // pieces_min))
        shares: list[Planned] = []
        for wanted in ranges:
            cut = state.topics.get(wanted.topic)
            boundary = wanted.start
            if cut is not None and cut.epoch == wanted.epoch and wanted.lost_from is None:
                boundary = min(max(cut.to_seq, wanted.start), wanted.end)
                shares += _archive_shares(self._place, state, wanted._replace(end=boundary), most)
            rest = wanted._replace(start=boundary)
            if rest.size or rest.lost_from is not None:
                pieces = -(-pieces_min * rest.size // total) if total else 1
                shares += self._log.plan([rest], max(pieces, 1), records_max)
        return shares

    def read(self, planned: Planned) -> Iterator[Columns | Gap]:
        if not isinstance(planned, ArchiveShare):
            yield from self._log.read(planned)
            return
        gaps = list(planned.gaps)
        for columns in _archived(planned):
            # A loss is reported where its records would have been read.
            while gaps and gaps[0].gap_from <= columns.seq[-1].as_py():
                at = int(np.searchsorted(columns.seq.to_numpy(), gaps[0].gap_from))
                if at:
                    yield from self._wanted(_sliced(columns, 0, at))
                    columns = _sliced(columns, at, len(columns))  # noqa: PLW2901
                yield gaps.pop(0)
            yield from self._wanted(columns)
        yield from gaps

    def read_all(self, shares: Sequence[Planned]) -> Iterator[tuple[str, Columns | Gap]]:
        archived = [share for share in shares if isinstance(share, ArchiveShare)]
        for share in archived:
            for item in self.read(share):
                yield share.topic, item
        rest = [share for share in shares if not isinstance(share, ArchiveShare)]
        if rest:
            yield from self._log.read_all(rest)

    def store_cursor(self, name: str, offsets: Offsets) -> None:
        self._log.store_cursor(name, offsets)

    def close(self) -> None:
        self._log.close()

    def __enter__(self) -> "StitchedLog":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _wanted(self, columns: Columns) -> Iterator[Columns]:
        kept = filtered(columns, self._filters)
        if len(kept):
            yield kept


def _archive_shares(place: Place, state: ArchiveState, wanted: SeqRange, records_max: int) -> Iterator[ArchiveShare]:
    """Puts every seq of the range in exactly one share; a file's share begins where the one before it ended."""
    if not wanted.size:
        return
    losses = state.losses_of(wanted.topic)
    at = wanted.start + 1
    files = state.files_of(wanted.topic, at, wanted.end)
    spans: list[ArchivedFile | None] = [*files] or [None]
    for file in spans:
        last = wanted.end if file is None or file is files[-1] else file.last_seq
        while at <= last:
            end = min(last, at + records_max - 1)
            gaps = tuple(
                Gap(max(loss.gap_from, at), min(loss.gap_to, end), loss.reason)
                for loss in losses
                if loss.gap_from <= end and loss.gap_to >= at
            )
            yield ArchiveShare(wanted.topic, place, at, end, file, gaps)
            at = end + 1


def _archived(share: ArchiveShare) -> Iterator[Columns]:
    file = share.file
    if file is None or file.first_seq > share.end:
        return
    whole = share.start <= file.first_seq and share.end >= file.last_seq
    found = 0
    for rows in rows_of(share.place, require_file(share.place, file), share.start, share.end):
        found += rows.num_rows
        yield Columns(
            seq=rows.column("seq"),
            ts=_milliseconds(rows.column("ts")),
            node=rows.column("node"),
            tag=rows.column("tag"),
            data=rows.column("data"),
            meta=_meta_texts(rows.column("meta")),
        )
    if whole and found != file.count:
        raise ArchiveDiffers(file.path, f"{found} records, expected {file.count}")


def _seq_at(place: Place, path: str, ts: int) -> int:
    """The first seq of a file that has one of this time or later."""
    for rows in rows_of(place, path, columns=("seq", "ts")):
        times = _milliseconds(rows.column("ts")).to_numpy()
        if times[-1] >= ts:
            return int(rows.column("seq")[int(np.searchsorted(times, ts))].as_py())
    raise ArchiveDiffers(place.at(path), f"it has no record of {ts} or later")


def _milliseconds(ts: pa.Array) -> pa.Array:
    return pc.cast(pc.cast(ts, pa.timestamp("ms", "UTC")), pa.int64())


def _meta_texts(meta: pa.Array) -> pa.Array:
    """`meta` as JSON text, also where the archive keeps it as a map."""
    if not pa.types.is_map(meta.type):
        return meta.cast(pa.string())
    return pa.array(
        [None if pairs is None else msgspec.json.encode(dict(pairs)) for pairs in meta.to_pylist()], pa.string()
    )


def _sliced(columns: Columns, start: int, stop: int) -> Columns:
    return Columns(*(getattr(columns, name).slice(start, stop - start) for name in RECORD_FIELDS))
