"""Every name in an archive, and its parser. No other module builds or takes apart a path in it.

<dir>/LOCK                                                    held by the job that writes
<dir>/manifest/0000000000000007.json                          commits, numbered from 1
<dir>/records/topic=orders/date=2026-11-16/<first>-<last>.parquet    named by the seqs they span, 20 digits each
<dir>/losses/0000000000000007.parquet                         the losses a commit found
<dir>/staging/…                                               being written; worthless after a crash
<dir>/replay-….lock                                           held by a replay
"""

import os
import re
from urllib.parse import quote, unquote

LOCK = "LOCK"
MANIFEST = "manifest"
RECORDS = "records"
LOSSES = "losses"
STAGING = "staging"

_COMMIT = re.compile(r"([0-9]{16})\.json")
_RECORDS_FILE = re.compile(r"[0-9]{20}-[0-9]{20}\.parquet")
_LOSSES_FILE = re.compile(r"[0-9]{16}\.parquet")


def lock_path(root: str) -> str:
    return os.path.join(root, LOCK)


def manifest_dir(root: str) -> str:
    return os.path.join(root, MANIFEST)


def records_dir(root: str) -> str:
    return os.path.join(root, RECORDS)


def losses_dir(root: str) -> str:
    return os.path.join(root, LOSSES)


def staging_dir(root: str) -> str:
    return os.path.join(root, STAGING)


def commit_path(root: str, number: int) -> str:
    return os.path.join(manifest_dir(root), f"{number:016d}.json")


def parse_commit_name(name: str) -> int | None:
    match = _COMMIT.fullmatch(name)
    return None if match is None else int(match[1])


def records_path(topic: str, date: str, first_seq: int, last_seq: int) -> str:
    """Relative to the archive."""
    return f"{RECORDS}/{topic_name(topic)}/date={date}/{first_seq:020d}-{last_seq:020d}.parquet"


def losses_path(number: int) -> str:
    """Relative to the archive."""
    return f"{LOSSES}/{number:016d}.parquet"


def topic_name(topic: str) -> str:
    # As Spark does it, so that its partition discovery finds the same name.
    return f"topic={quote(topic, safe='._-')}"


def parse_partition(name: str, column: str) -> str | None:
    """The value in `column=value`."""
    key, equals, value = name.partition("=")
    return unquote(value) if equals and key == column else None


def is_records_file(name: str) -> bool:
    return _RECORDS_FILE.fullmatch(name) is not None


def is_losses_file(name: str) -> bool:
    return _LOSSES_FILE.fullmatch(name) is not None


def replay_lock_path(root: str, topic: str, into: str) -> str:
    return os.path.join(root, f"replay-{quote(topic, safe='._-')}-{quote(into, safe='._-')}.lock")
