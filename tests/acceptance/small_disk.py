"""A disk that is soon full."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted_disk(directory: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of its own, in memory."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"mounting a small disk is not possible: {mounted.stderr.strip()}")
    yield directory
    # Lazily: a process that is about to end may still have a file open.
    subprocess.run(["umount", "--lazy", str(directory)], check=True)
