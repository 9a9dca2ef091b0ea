"""The id of a data directory: made once, when a server first opens it, and kept by its backups and what is restored.

`meta/id` is 32 hexadecimal digits and a newline, whole or not there. It tells the topics of one server from those of
another with the same names, epochs and seqs; nothing that is stored depends on it. A damaged one counts as missing.
"""

import re

from topics.storage import paths
from topics.storage.errors import failing_as
from topics.storage.fs import Disk, replace_file

_ID = re.compile(rb"([0-9a-f]{32})\n")


def read_id(disk: Disk, root: str) -> str | None:
    """None when there is none: nobody opened the directory yet, or only a version without ids did."""
    path = paths.id_path(root)
    if not disk.exists(path):
        return None
    found = _ID.fullmatch(disk.read(path))
    return None if found is None else found[1].decode()


def write_id(disk: Disk, root: str, server_id: str) -> None:
    """Durable when it returns."""
    path = paths.id_path(root)
    with failing_as(path, "writing the id"):
        disk.make_dir(paths.meta_dir(root))
        replace_file(disk, path, f"{server_id}\n".encode())
