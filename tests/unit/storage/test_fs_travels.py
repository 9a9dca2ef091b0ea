"""A disk is sent along with what is to be checked in other processes."""

import pickle
from pathlib import Path

from topics.storage.fs import RealDisk


def test_a_disk_works_after_it_was_sent_to_another_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    disk = pickle.loads(pickle.dumps(RealDisk()))
    assert disk.read(str(tmp_path / "file")) == b"content"
