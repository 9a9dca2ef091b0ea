"""Turns archives of version 1 (Parquet files and a chain of JSON commits) into Delta tables. The files stay as they
are.

<dir>/manifest/0000000000000007.json    commits, numbered from 1, each with the checksum of the one before it
<dir>/records/topic=…/date=…/….parquet  files the commits name
<dir>/losses/0000000000000007.parquet   the losses again, as a table

Until `manifest` is renamed, the archive counts as an old one, so a conversion that was killed starts over.
"""

import os
import re
import shutil
from contextlib import suppress

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, write_deltalake
from deltalake.transaction import Transaction
from msgspec import Struct
from xxhash import xxh3_64_hexdigest

from topics.clock import Clock, SystemClock
from topics.spark.archive import table
from topics.spark.archive.errors import ArchiveDamaged, NotAnArchive
from topics.spark.archive.place import Place
from topics.spark.archive.rows import require_file
from topics.spark.archive.state import ArchiveColumns, ArchivedFile, ArchivedLoss
from topics.spark.errors import InvalidOption

FORMAT = 1
MANIFEST_DONE = "manifest.converted"
_COMMIT = re.compile(r"([0-9]{16})\.json")
_LOSSES = re.compile(r"[0-9]{16}\.parquet")


class ConvertSummary(Struct, frozen=True):
    directory: str
    topics: int
    files: int
    records: int
    losses: int


class _Cut(Struct):
    topic: str
    epoch: int
    to_seq: int


class _Commit(Struct):
    format: int
    number: int
    parent_xxh3: str
    kind: str
    archive_id: str
    columns: ArchiveColumns
    topics: tuple[_Cut, ...] = ()
    added: tuple[ArchivedFile, ...] = ()
    removed: tuple[str, ...] = ()
    losses: tuple[ArchivedLoss, ...] = ()
    server_id: str = ""


class _Old(Struct):
    """What all commits of the chain add up to."""

    archive_id: str
    columns: ArchiveColumns
    server_id: str
    cuts: dict[str, _Cut]
    files: dict[str, ArchivedFile]
    losses: list[ArchivedLoss]


def check_old(root: str) -> None:
    """Raises `NotAnArchive` where there is nothing to convert, `InvalidOption` for an address, and `ArchiveDamaged`."""
    if not Place.of(root).is_local:
        raise InvalidOption("directory", f"{root} is in a store: convert the archive in a directory, and copy it there")
    _load(root)


def convert(root: str, clock: Clock | None = None) -> ConvertSummary:
    """Raises `NotAnArchive`, `ArchiveDamaged`, `ArchiveDiffers`, `TargetDiskFull`."""
    clock = clock or SystemClock()
    old = _load(root)
    place = Place(root)
    # An earlier attempt may have left these.
    for path in (table.records_dir(root), table.losses_dir(root)):
        shutil.rmtree(os.path.join(path, "_delta_log"), ignore_errors=True)
    files = list(old.files.values())
    for file in files:
        require_file(place, file)
    epochs = {cut.topic: cut.epoch for cut in old.cuts.values()}
    records = table.create_tables(place, old.columns, old.archive_id, old.server_id, epochs)
    with table.room(place):
        rows = [{name: getattr(loss, name) for name in table.LOSSES_SCHEMA.names} for loss in old.losses]
        if rows:
            losses = pa.Table.from_pylist(rows, table.LOSSES_SCHEMA)
            write_deltalake(table.open_table(place, table.LOSSES), losses, mode="append")
            table.sync_log(place, table.LOSSES)
        transactions = [Transaction(cut.topic, cut.to_seq) for cut in old.cuts.values()]
        records.create_write_transaction(
            [table.add_action(file, clock.now_ms(), True) for file in files],
            "append",
            records.schema(),
            table.PARTITIONS,
            commit_properties=CommitProperties({"topics.job": "convert"}, 0, transactions),
        )
        table.sync_log(place, table.RECORDS)
    os.rename(os.path.join(root, table.OLD_MANIFEST), os.path.join(root, MANIFEST_DONE))
    _remove_old(root)
    return ConvertSummary(root, len(old.cuts), len(files), sum(file.count for file in files), len(old.losses))


def _remove_old(root: str) -> None:
    shutil.rmtree(os.path.join(root, MANIFEST_DONE), ignore_errors=True)
    shutil.rmtree(os.path.join(root, "staging"), ignore_errors=True)
    for name in os.listdir(table.losses_dir(root)):
        if _LOSSES.fullmatch(name):
            os.remove(os.path.join(table.losses_dir(root), name))
    with suppress(FileNotFoundError):
        os.remove(os.path.join(root, "LOCK"))


def _load(root: str) -> _Old:
    directory = os.path.join(root, table.OLD_MANIFEST)
    names = sorted(filter(_COMMIT.fullmatch, os.listdir(directory))) if os.path.isdir(directory) else []
    if not names:
        raise NotAnArchive(root)
    old: _Old | None = None
    before = ("", 0)
    for name in names:
        path = os.path.join(directory, name)
        with open(path, "rb") as file:
            content = file.read()
        try:
            commit = msgspec.json.decode(content, type=_Commit)
        except msgspec.DecodeError as error:
            raise ArchiveDamaged(path, f"it cannot be read ({error})") from None
        if commit.format != FORMAT:
            raise ArchiveDamaged(path, f"its format is {commit.format}, of another version of this program")
        if commit.kind in {"create", "snapshot"}:
            old = _Old(commit.archive_id, commit.columns, commit.server_id, {}, {}, [])
        elif old is None or (commit.parent_xxh3, commit.number) != (before[0], before[1] + 1):
            raise ArchiveDamaged(path, "the commit before it is missing, or was changed or replaced")
        _apply(old, commit)
        before = (xxh3_64_hexdigest(content), commit.number)
    assert old is not None
    return old


def _apply(old: _Old, commit: _Commit) -> None:
    old.server_id = commit.server_id or old.server_id
    old.cuts |= {cut.topic: cut for cut in commit.topics}
    for path in commit.removed:
        old.files.pop(path, None)
    old.files |= {file.path: file for file in commit.added}
    old.losses += commit.losses
