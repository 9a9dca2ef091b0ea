"""The two Delta tables of an archive, through `deltalake`: what they hold, and every change to them.

<dir>/records/    one row for each record; files are `topic=…/date=…/<first seq>-<last seq>-<round>.parquet` below it
<dir>/losses/     topic, gap_from, gap_to, reason
<dir>/staging/    files being written, a directory for each round, with the time it began in its name
<dir>/replay-….lock    held by a replay

`<dir>` is a directory or an address in an object store (`place`).

Tasks write files; they become part of the archive when a commit of `records` names them. For each topic, a commit has
an application transaction with the last archived seq as its version; its metadata says under `topics` what it added.
The table's properties hold what does not change: the ids of the archive and the server, the columns, and every topic's
epoch.

The order of a round, and what a crash between two steps leaves:

1. files are written below `staging`      → rubbish, which `compact` removes once it is old
   and renamed into `records`             → files no commit names, which `compact` removes, too
2. their losses are committed to `losses` → losses after the last archived seq: nobody counts them, and the next round
                                            removes them
3. the round is committed to `records`    → the round is in the archive
"""

import errno
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, Transaction
from xxhash import xxh3_64_hexdigest

from topics.clock import Clock
from topics.spark.archive.columns import delta_schema
from topics.spark.archive.errors import (
    ArchiveDamaged,
    ArchiveInUse,
    DirectoryNotEmpty,
    NotAnArchive,
    OldArchive,
    StoreFailed,
    TargetDiskFull,
)
from topics.spark.archive.place import Place
from topics.spark.archive.rows import require_file
from topics.spark.archive.state import (
    ArchiveColumns,
    ArchivedFile,
    ArchivedLoss,
    ArchiveState,
    Forgotten,
    TopicCut,
    WrittenFile,
    lost_seqs,
)
from topics.spark.errors import InvalidOption

RECORDS, LOSSES, STAGING = "records", "losses", "staging"
OLD_MANIFEST = "manifest"
PARTITIONS = ["topic", "date"]
ARCHIVE_ID, SERVER_ID, COLUMNS, EPOCH = "topics.archive_id", "topics.server_id", "topics.columns", "topics.epoch."
FORGOTTEN = "topics.forgotten."
LOSSES_SCHEMA = pa.schema(
    [("topic", pa.string()), ("gap_from", pa.int64()), ("gap_to", pa.int64()), ("reason", pa.string())]
)
NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
MADE_MEANWHILE = "table already exists"
KEEP_HOURS_DEFAULT = 168
MS_PER_HOUR = 3_600_000
PROBE_WRITERS = 4
MOVES_AT_ONCE = 8
"""In a store, moving a file is a copy, and the driver only waits for it."""


def records_dir(root: str) -> str:
    return os.path.join(root, RECORDS)


def losses_dir(root: str) -> str:
    return os.path.join(root, LOSSES)


def new_round(now_ms: int) -> str:
    """The directory for the files of one commit while they are written, relative to the archive."""
    return f"{STAGING}/{uuid4().hex}-{now_ms}"


def records_path(topic: str, date: str, first_seq: int, last_seq: int, round_dir: str) -> str:
    """Where a file of a round goes, relative to the archive. No two rounds use the same name."""
    # Escaped as Spark does it, so that its partition discovery finds the same name.
    name = f"{first_seq:020d}-{last_seq:020d}-{os.path.basename(round_dir)[:12]}.parquet"
    return f"{RECORDS}/topic={quote(topic, safe='._-')}/date={date}/{name}"


def replay_lock_path(root: str, topic: str, into: str) -> str:
    """For an archive in a store, it is on this machine: a store has no locks."""
    name = f"replay-{quote(topic, safe='._-')}-{quote(into, safe='._-')}.lock"
    if Place.of(root).is_local:
        return os.path.join(root, name)
    return os.path.join(tempfile.gettempdir(), f"topics-{xxh3_64_hexdigest(root.encode())}-{name}"[:255])


def load(root: str) -> ArchiveState:
    """Raises `NotAnArchive`, `OldArchive`, `ArchiveDamaged`, `StoreFailed`."""
    place = Place.of(root)
    with place.reaching():
        return _state(place, _open(place))


def is_archive(place: Place) -> bool:
    with place.reaching():
        return _has_table(place, RECORDS) or _is_old(place)


class ArchiveTable:
    """An archive to write to: as it was when it was opened, plus this process's own changes. If somebody else commits
    in between, the next commit here fails."""

    def __init__(self, root: str, clock: Clock) -> None:
        self.root = root
        self.place = Place.of(root)
        self._clock = clock
        self._table: DeltaTable | None = None
        self._state: ArchiveState | None = None
        if is_archive(self.place):
            self._reload()
        elif foreign := sorted(set(self.place.names()) - {RECORDS, LOSSES, STAGING}):
            raise DirectoryNotEmpty(root, foreign[0])

    @property
    def exists(self) -> bool:
        return self._state is not None

    @property
    def state(self) -> ArchiveState:
        assert self._state is not None, "the archive is created first"
        return self._state

    def create(self, columns: ArchiveColumns, server_id: str = "") -> None:
        """Makes the directory an archive."""
        create_tables(self.place, columns, uuid4().hex, server_id, {})
        self._reload()

    def note(self, server_id: str, epochs: Mapping[str, int]) -> None:
        """Notes whose topics these are: the server's id, if none was noted before, and the epochs of topics archived
        for the first time."""
        known = self.state.topics
        properties = {f"{EPOCH}{topic}": str(epoch) for topic, epoch in epochs.items() if topic not in known}
        if server_id and not self.state.server_id:
            properties[SERVER_ID] = server_id
        configured = self._delta.metadata().configuration
        if missing := {name: value for name, value in properties.items() if configured.get(name) != value}:
            self._set(missing)

    def note_forgotten(self, entry: Forgotten) -> None:
        """Always commits, so that a job that read the archive earlier cannot add what is to be forgotten."""
        name = xxh3_64_hexdigest(f"{entry.topic}\0{entry.match}".encode())
        self._set({f"{FORGOTTEN}{name}": msgspec.json.encode(entry).decode()})

    def append(self, cuts: Sequence[TopicCut], files: Sequence[ArchivedFile], losses: Sequence[ArchivedLoss]) -> None:
        self.note(self.state.server_id, {cut.topic: cut.epoch for cut in cuts})
        self._write_losses(cuts, losses)
        # The last archived seq never goes back, so it refuses a stale writer, too.
        transactions = [Transaction(cut.topic, cut.to_seq) for cut in cuts]
        self._commit([self._added(file, True) for file in files], {"topics": to_text(cuts)}, transactions)

    def replace(
        self,
        added: Sequence[ArchivedFile],
        removed: Sequence[ArchivedFile],
        metadata: Mapping[str, str],
        *,
        data_change: bool = False,
    ) -> None:
        """Replaces files by others that have the same records, unless `data_change`."""
        now_ms = self._clock.now_ms()
        gone = [
            RemoveAction(
                _in_table(file),
                data_change,
                now_ms,
                size=file.size_bytes,
                partition_values={"topic": file.topic, "date": file.date},
            )
            for file in removed
        ]
        self._commit([*(self._added(file, data_change) for file in added), *gone], metadata)

    def vacuum(self, keep_hours: int, *, full: bool = True) -> int:
        """Removes files that no version of the last `keep_hours` names, and returns how many. `full`: also those of
        killed jobs, which no version ever named."""
        with self._committing():
            gone = self._delta.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False, full=full)
        self._reload()
        if not full:
            return len(gone)
        for name in self.place.names(STAGING):
            began_ms = name.rpartition("-")[2]
            if not began_ms.isdecimal() or int(began_ms) <= self._clock.now_ms() - keep_hours * MS_PER_HOUR:
                self.place.remove_all(f"{STAGING}/{name}")
        return len(gone)

    @contextmanager
    def writing(self) -> Iterator[str]:
        """A directory for the files of one commit; gone when the block ends. Raises `TargetDiskFull`."""
        path = new_round(self._clock.now_ms())
        try:
            with room(self.place):
                yield path
        finally:
            # Tasks of an interrupted job may still be writing; `vacuum` removes what they leave.
            with suppress(OSError, StoreFailed):
                self.place.remove_all(path)

    @contextmanager
    def placing(self, written: Sequence[WrittenFile]) -> Iterator[list[ArchivedFile]]:
        """Moves the files of a round into place for the block that commits them. The tasks have synced their content;
        this syncs their names. If the block fails, what it did not commit is removed again."""
        try:
            with room(self.place), ThreadPoolExecutor(MOVES_AT_ONCE) as moving:
                moved = moving.map(lambda entry: self.place.move(entry.staged_path, entry.file.path), written)
                list(moved)  # raises what a move raised
                for directory in {os.path.dirname(entry.file.path) for entry in written}:
                    self.place.sync(directory)
            yield [entry.file for entry in written]
        except Exception:  # after Ctrl-C, as after a kill, `vacuum` removes what is left
            committed = {file.path for file in load(self.root).files}
            for entry in written:
                if entry.file.path not in committed:
                    self.place.remove(entry.file.path)
            raise

    def unnamed_files(self) -> list[str]:
        """Files the table does not name: those of jobs that are running or were killed."""
        named = {file.path for file in self.state.files}
        found = [path for top in (RECORDS, STAGING) for path in self.place.files(top) if path.endswith(".parquet")]
        return sorted(path for path in found if path not in named and "_delta_log" not in path)

    def require_files(self) -> None:
        """Checks that every file is there and has its length. Raises `ArchiveDiffers`. The bytes are left to
        `audit`."""
        for file in self.state.files:
            require_file(self.place, file)

    @property
    def _delta(self) -> DeltaTable:
        assert self._table is not None, "the archive is created first"
        return self._table

    def _set(self, properties: dict[str, str]) -> None:
        with self._committing():
            self._delta.alter.set_table_properties(
                properties, raise_if_not_exists=False, commit_properties=CommitProperties(max_commit_retries=0)
            )
        self._committed()

    def _committed(self) -> None:
        """Keeps this process at its own commit, even if others have committed after it."""
        with self.place.reaching():
            self._delta.load_as_version(self.state.version + 1)
            self._state = _state(self.place, self._delta)

    def _reload(self) -> None:
        with self.place.reaching():
            self._table = _open(self.place)
            self._state = _state(self.place, self._table)

    def _added(self, file: ArchivedFile, data_change: bool) -> AddAction:
        return add_action(file, self._clock.now_ms(), data_change)

    def _commit(
        self,
        actions: Sequence[AddAction | RemoveAction],
        metadata: Mapping[str, str],
        transactions: Sequence[Transaction] = (),
    ) -> None:
        properties = CommitProperties(dict(metadata), 0, list(transactions))
        with self._committing():
            _commit(self._delta, actions, PARTITIONS, properties)
            sync_log(self.place, RECORDS)
        self._committed()

    def _write_losses(self, cuts: Sequence[TopicCut], losses: Sequence[ArchivedLoss]) -> None:
        with self._committing():
            table = open_table(self.place, LOSSES)
            known = _losses(table)
            for cut in cuts:
                # A round that was cut off before its commit to `records` left these.
                if any(loss.topic == cut.topic and loss.gap_from > cut.from_seq for loss in known):
                    table.delete(f"topic = '{cut.topic}' and gap_from > {cut.from_seq}")
            if losses:
                rows = [{name: getattr(loss, name) for name in LOSSES_SCHEMA.names} for loss in losses]
                write_deltalake(table, pa.Table.from_pylist(rows, LOSSES_SCHEMA), mode="append")
                sync_log(self.place, LOSSES)

    @contextmanager
    def _committing(self) -> Iterator[None]:
        with room(self.place), self.place.reaching(), _first(self.place):
            yield


@contextmanager
def _first(place: Place) -> Iterator[None]:
    """Turns the refusal of a commit, or of a table, that somebody else has made into `ArchiveInUse`."""
    try:
        yield
    except DeltaError as error:
        refused = isinstance(error, CommitFailedError) or MADE_MEANWHILE in str(error)
        if not refused or NO_SPACE.search(str(error)):
            raise
        raise ArchiveInUse(place.root) from error


@contextmanager
def room(place: Place) -> Iterator[None]:
    """Turns every error that means a full disk into `TargetDiskFull`."""
    try:
        yield
    except Exception as error:  # Spark, Delta and Arrow each raise a different one
        full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
        if full or NO_SPACE.search(str(error)):
            raise TargetDiskFull(place.root) from error
        raise


def create_tables(
    place: Place, columns: ArchiveColumns, archive_id: str, server_id: str, epochs: Mapping[str, int]
) -> DeltaTable:
    """Creates both tables, empty. `records` comes last: once it exists, the directory is an archive."""
    configuration = {ARCHIVE_ID: archive_id, COLUMNS: msgspec.json.encode(columns).decode()}
    if server_id:
        configuration[SERVER_ID] = server_id
    configuration |= {f"{EPOCH}{topic}": str(epoch) for topic, epoch in epochs.items()}
    try:
        schema = Schema.from_json(delta_schema(columns))
    except (DeltaError, ValueError) as error:
        raise InvalidOption("schema", f"a Delta table has no such type ({error}); name another one") from None
    with room(place), place.reaching(), _first(place):
        if place.is_local:
            os.makedirs(place.root, exist_ok=True)
        else:
            _require_one_winner(place)
        if not _has_table(place, LOSSES):
            DeltaTable.create(place.at(LOSSES), Schema.from_arrow(LOSSES_SCHEMA), storage_options=_options(place))
            sync_log(place, LOSSES)
        table = DeltaTable.create(
            place.at(RECORDS),
            schema,
            partition_by=PARTITIONS,
            configuration=configuration,
            storage_options=_options(place),
            raise_if_key_not_exists=False,
        )
        sync_log(place, RECORDS)
    return table


def _require_one_winner(place: Place) -> None:
    """Lets some writers make the same commit at once. Raises `StoreFailed` if the store takes more than one: Delta
    looks for a newer version before it writes one, and between two that looked, only the store can decide."""
    probe = f"{STAGING}/probe-{uuid4().hex}"

    def commits(writer: DeltaTable) -> bool:
        try:
            _commit(writer, [AddAction(uuid4().hex, 0, {}, 0, True, "{}")], [], CommitProperties({}, 0, []))
        except CommitFailedError:
            return False
        return True

    try:
        DeltaTable.create(place.at(probe), Schema.from_arrow(LOSSES_SCHEMA), storage_options=_options(place))
        writers = [open_table(place, probe) for _ in range(PROBE_WRITERS)]
        with ThreadPoolExecutor(PROBE_WRITERS) as at_once:
            winners = sum(at_once.map(commits, writers))
    finally:
        place.remove_all(probe)
    if winners > 1:
        raise StoreFailed(
            place.root,
            "it lets a second writer replace a commit, because it ignores If-None-Match, so no archive there would be "
            "safe: use another store, or a directory",
        )


def add_action(file: ArchivedFile, now_ms: int, data_change: bool) -> AddAction:
    stats = {
        "numRecords": file.count,
        "minValues": {"seq": file.first_seq, "ts": _time(file.first_ts)},
        "maxValues": {"seq": file.last_seq, "ts": _time(file.last_ts)},
        "nullCount": {"seq": 0, "ts": 0},
    }
    values = {"topic": file.topic, "date": file.date}
    text = msgspec.json.encode(stats).decode()
    return AddAction(_in_table(file), file.size_bytes, values, now_ms, data_change, text)


def sync_log(place: Place, table: str) -> None:
    """Makes the newest commit of a table durable. In a store, it is."""
    if not place.is_local:
        return
    log = f"{table}/_delta_log"
    newest = max(name for name in place.names(log) if name.endswith(".json"))
    place.sync(f"{log}/{newest}")
    place.sync(log)


def to_text(cuts: Iterable[TopicCut]) -> str:
    return msgspec.json.encode(list(cuts)).decode()


def _in_table(file: ArchivedFile) -> str:
    return file.path.removeprefix(f"{RECORDS}/")


def _time(ts: int) -> str:
    return pa.scalar(ts, pa.timestamp("ms")).cast(pa.string()).as_py().replace(" ", "T") + "Z"  # type: ignore[no-any-return]


def open_table(place: Place, name: str) -> DeltaTable:
    return DeltaTable(place.at(name), storage_options=_options(place))


def _options(place: Place) -> dict[str, str]:
    return dict(place.options)


def _has_table(place: Place, name: str) -> bool:
    return DeltaTable.is_deltatable(place.at(name), _options(place))


def _is_old(place: Place) -> bool:
    """Old archives were directories."""
    return place.is_local and os.path.isdir(place.at(OLD_MANIFEST))


def _commit(
    table: DeltaTable,
    actions: Sequence[AddAction | RemoveAction],
    partitions: list[str],
    properties: CommitProperties,
) -> None:
    table.create_write_transaction(list(actions), "append", table.schema(), partitions, commit_properties=properties)


def _open(place: Place) -> DeltaTable:
    if _is_old(place):
        raise OldArchive(place.root)
    if not _has_table(place, RECORDS):
        raise NotAnArchive(place.root)
    try:
        with place.reaching():
            table = open_table(place, RECORDS)
        if ARCHIVE_ID not in table.metadata().configuration:
            raise NotAnArchive(place.root)
        return table
    except DeltaError as error:
        raise ArchiveDamaged(place.at(RECORDS), f"its log cannot be read ({error})") from None


def _state(place: Place, table: DeltaTable) -> ArchiveState:
    configured = table.metadata().configuration
    columns = msgspec.json.decode(configured[COLUMNS], type=ArchiveColumns)
    state = ArchiveState(configured[ARCHIVE_ID], configured.get(SERVER_ID, ""), columns, table.version())
    added: Any = pa.table(table.get_add_actions(flatten=True))
    state.files = [_file(row) for row in added.to_pylist()]
    try:
        losses = _losses(open_table(place, LOSSES))
    except DeltaError as error:
        raise ArchiveDamaged(place.at(LOSSES), f"its log cannot be read ({error})") from None
    state.forgotten = [
        msgspec.json.decode(value, type=Forgotten) for name, value in configured.items() if name.startswith(FORGOTTEN)
    ]
    for name, value in configured.items():
        topic = name.removeprefix(EPOCH)
        to_seq = table.transaction_version(topic) if name.startswith(EPOCH) else None
        if to_seq is None:
            continue
        of_topic = [loss for loss in losses if loss.topic == topic and loss.gap_to <= to_seq]
        state.losses += of_topic
        records, lost = sum(file.count for file in state.files if file.topic == topic), lost_seqs(of_topic)
        state.topics[topic] = TopicCut(
            topic=topic,
            epoch=int(value),
            from_seq=0,
            to_seq=to_seq,
            records=records,
            lost=lost,
            deleted=to_seq - records - lost,
        )
    return state


def _losses(table: DeltaTable) -> list[ArchivedLoss]:
    return [ArchivedLoss(**row) for row in table.to_pyarrow_table().to_pylist()]


def _file(row: Mapping[str, Any]) -> ArchivedFile:
    first, last = (pa.scalar(row[f"{side}.ts"], pa.timestamp("ms", "UTC")).value for side in ("min", "max"))
    return ArchivedFile(
        path=f"{RECORDS}/{unquote(row['path'])}",
        topic=row["partition.topic"],
        date=row["partition.date"].isoformat(),
        first_seq=row["min.seq"],
        last_seq=row["max.seq"],
        first_ts=first,
        last_ts=last,
        count=row["num_records"],
        size_bytes=row["size_bytes"],
    )
