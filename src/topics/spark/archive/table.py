"""The two Delta tables of an archive, through `deltalake`: what they hold, and every change to them.

<dir>/records/    one row for each record; files are `topic=…/date=…/<first seq>-<last seq>-<round>.parquet` below it
<dir>/losses/     topic, gap_from, gap_to, reason
<dir>/staging/    files being written, a directory for each round
<dir>/replay-….lock    held by a replay

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
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    ArchiveNotLocal,
    DirectoryNotEmpty,
    NotAnArchive,
    OldArchive,
    TargetDiskFull,
)
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
KEEP_HOURS_DEFAULT = 168
MS_PER_HOUR = 3_600_000


def records_dir(root: str) -> str:
    return os.path.join(root, RECORDS)


def losses_dir(root: str) -> str:
    return os.path.join(root, LOSSES)


def new_round(root: str) -> str:
    """The name of a directory for the files of one commit while they are written."""
    return os.path.join(root, STAGING, uuid4().hex)


def records_path(topic: str, date: str, first_seq: int, last_seq: int, round_dir: str) -> str:
    """Where a file of a round goes, relative to the archive. No two rounds use the same name."""
    # Escaped as Spark does it, so that its partition discovery finds the same name.
    name = f"{first_seq:020d}-{last_seq:020d}-{os.path.basename(round_dir)[:12]}.parquet"
    return f"{RECORDS}/topic={quote(topic, safe='._-')}/date={date}/{name}"


def replay_lock_path(root: str, topic: str, into: str) -> str:
    return os.path.join(root, f"replay-{quote(topic, safe='._-')}-{quote(into, safe='._-')}.lock")


def load(root: str) -> ArchiveState:
    """Raises `NotAnArchive`, `OldArchive`, `ArchiveDamaged`."""
    return _state(root, _open(root))


def require_local(root: str) -> None:
    """Raises `ArchiveNotLocal`. Runs before anything of `deltalake`, which would take an address and look for cloud
    credentials on this machine and around it."""
    if "://" in root:
        raise ArchiveNotLocal(root)


def is_archive(root: str) -> bool:
    require_local(root)
    return DeltaTable.is_deltatable(records_dir(root)) or os.path.isdir(os.path.join(root, OLD_MANIFEST))


class ArchiveTable:
    """An archive to write to: as it was when it was opened, plus this process's own changes. If somebody else commits
    in between, the next commit here fails."""

    def __init__(self, root: str, clock: Clock) -> None:
        self.root = root
        self._clock = clock
        self._table: DeltaTable | None = None
        self._state: ArchiveState | None = None
        if is_archive(root):
            self._table = _open(root)
            self._state = _state(root, self._table)
        elif os.path.isdir(root) and (foreign := sorted(set(os.listdir(root)) - {RECORDS, LOSSES, STAGING})):
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
        create_tables(self.root, columns, uuid4().hex, server_id, {})
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
        for name in os.listdir(staging) if os.path.isdir(staging := os.path.join(self.root, STAGING)) else ():
            path = os.path.join(staging, name)
            if os.path.getmtime(path) * 1000 <= self._clock.now_ms() - keep_hours * MS_PER_HOUR:
                shutil.rmtree(path, ignore_errors=True)
        return len(gone)

    @contextmanager
    def placing(self, written: Sequence[WrittenFile]) -> Iterator[list[ArchivedFile]]:
        """Moves the files of a round into place for the block that commits them. `checked_files` has synced their
        content; this syncs their names. If the block fails, what it did not commit is removed again."""
        try:
            with room(self.root):
                directories = {os.path.dirname(os.path.join(self.root, entry.file.path)) for entry in written}
                for directory in directories:
                    os.makedirs(directory, exist_ok=True)
                for entry in written:
                    os.rename(entry.staged_path, os.path.join(self.root, entry.file.path))
                for directory in directories:
                    _sync(directory)
            yield [entry.file for entry in written]
        except Exception:  # after Ctrl-C, as after a kill, `vacuum` removes what is left
            committed = {file.path for file in load(self.root).files}
            for entry in written:
                if entry.file.path not in committed:
                    with suppress(FileNotFoundError):
                        os.remove(os.path.join(self.root, entry.file.path))
            raise

    def unnamed_files(self) -> list[str]:
        """Files the table does not name: those of jobs that are running or were killed."""
        named = {file.path for file in self.state.files}
        found = []
        for top in (RECORDS, STAGING):
            for parent, _, names in os.walk(os.path.join(self.root, top)):
                paths = [os.path.relpath(os.path.join(parent, name), self.root) for name in names]
                found += [path for path in paths if path.endswith(".parquet") and path not in named]
        return sorted(path for path in found if "_delta_log" not in path)

    def require_files(self) -> None:
        """Checks that every file is there and has its length. Raises `ArchiveDiffers`. The bytes are left to
        `audit`."""
        for file in self.state.files:
            require_file(self.root, file)

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
        self._delta.load_as_version(self.state.version + 1)
        self._state = _state(self.root, self._delta)

    def _reload(self) -> None:
        self._table = _open(self.root)
        self._state = _state(self.root, self._table)

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
            self._delta.create_write_transaction(
                list(actions), "append", self._delta.schema(), PARTITIONS, commit_properties=properties
            )
            sync_log(records_dir(self.root))
        self._committed()

    def _write_losses(self, cuts: Sequence[TopicCut], losses: Sequence[ArchivedLoss]) -> None:
        with self._committing():
            table = DeltaTable(losses_dir(self.root))
            known = _losses(table)
            for cut in cuts:
                # A round that was cut off before its commit to `records` left these.
                if any(loss.topic == cut.topic and loss.gap_from > cut.from_seq for loss in known):
                    table.delete(f"topic = '{cut.topic}' and gap_from > {cut.from_seq}")
            if losses:
                rows = [{name: getattr(loss, name) for name in LOSSES_SCHEMA.names} for loss in losses]
                write_deltalake(table, pa.Table.from_pylist(rows, LOSSES_SCHEMA), mode="append")
                sync_log(losses_dir(self.root))

    @contextmanager
    def _committing(self) -> Iterator[None]:
        with room(self.root):
            try:
                yield
            except CommitFailedError as error:
                if NO_SPACE.search(str(error)):
                    raise
                raise ArchiveInUse(self.root) from error


@contextmanager
def room(root: str) -> Iterator[None]:
    """Turns every error that means a full disk into `TargetDiskFull`."""
    try:
        yield
    except Exception as error:  # Spark, Delta and Arrow each raise a different one
        full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
        if full or NO_SPACE.search(str(error)):
            raise TargetDiskFull(root) from error
        raise


def create_tables(
    root: str, columns: ArchiveColumns, archive_id: str, server_id: str, epochs: Mapping[str, int]
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
    with room(root):
        os.makedirs(root, exist_ok=True)
        if not DeltaTable.is_deltatable(losses_dir(root)):
            DeltaTable.create(losses_dir(root), Schema.from_arrow(LOSSES_SCHEMA))
            sync_log(losses_dir(root))
        table = DeltaTable.create(
            records_dir(root),
            schema,
            partition_by=PARTITIONS,
            configuration=configuration,
            raise_if_key_not_exists=False,
        )
        sync_log(records_dir(root))
    return table


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


def sync_log(path: str) -> None:
    """Makes the newest commit of a table durable."""
    log = os.path.join(path, "_delta_log")
    newest = max(name for name in os.listdir(log) if name.endswith(".json"))
    for name in (os.path.join(log, newest), log):
        _sync(name)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def to_text(cuts: Iterable[TopicCut]) -> str:
    return msgspec.json.encode(list(cuts)).decode()


def _in_table(file: ArchivedFile) -> str:
    return file.path.removeprefix(f"{RECORDS}/")


def _time(ts: int) -> str:
    return pa.scalar(ts, pa.timestamp("ms")).cast(pa.string()).as_py().replace(" ", "T") + "Z"  # type: ignore[no-any-return]


def _open(root: str) -> DeltaTable:
    require_local(root)
    path = records_dir(root)
    if os.path.isdir(os.path.join(root, OLD_MANIFEST)):
        raise OldArchive(root)
    if not DeltaTable.is_deltatable(path):
        raise NotAnArchive(root)
    try:
        table = DeltaTable(path)
        if ARCHIVE_ID not in table.metadata().configuration:
            raise NotAnArchive(root)
        return table
    except DeltaError as error:
        raise ArchiveDamaged(path, f"its log cannot be read ({error})") from None


def _state(root: str, table: DeltaTable) -> ArchiveState:
    configured = table.metadata().configuration
    columns = msgspec.json.decode(configured[COLUMNS], type=ArchiveColumns)
    state = ArchiveState(configured[ARCHIVE_ID], configured.get(SERVER_ID, ""), columns, table.version())
    added: Any = pa.table(table.get_add_actions(flatten=True))
    state.files = [_file(row) for row in added.to_pylist()]
    try:
        losses = _losses(DeltaTable(losses_dir(root)))
    except DeltaError as error:
        raise ArchiveDamaged(losses_dir(root), f"its log cannot be read ({error})") from None
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
