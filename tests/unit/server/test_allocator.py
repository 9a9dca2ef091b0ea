"""Memory that is free goes back to the system, in a process of its own: what this one has freed is anybody's guess."""

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
from pathlib import Path
from topics.server.allocator import give_back_memory, share_pools

def used_bytes():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024

share_pools()
pieces = [bytes(60_000) for _ in range(2000)]
pieces = pieces[-1:]  # nothing below it can go back by itself
before = used_bytes()
give_back_memory()
print(before - used_bytes())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library keeps no such memory")
def test_what_is_free_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) > 50 * 2**20
