"""What is checked before Spark starts."""

from pathlib import Path

import pytest

from topics.spark.errors import InvalidOption
from topics.spark.jobs.preflight import require_writable


def test_a_directory_that_can_be_made_is_not_made(tmp_path: Path) -> None:
    require_writable(str(tmp_path / "a" / "b"), "to")
    require_writable(str(tmp_path), "to")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for path in (tmp_path / "file", tmp_path / "file" / "a", tmp_path / "nowhere" / "a", Path("/proc/nope")):
        with pytest.raises(InvalidOption, match=f"option to: {path}: nothing can be written in "):
            require_writable(str(path), "to")
