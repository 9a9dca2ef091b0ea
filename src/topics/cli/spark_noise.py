"""Drops what the JVM itself prints to stderr when Spark starts it: it cannot be switched off.

Java prints a line to say that it uses a module Spark asked for. While Spark starts, stderr of this process is a pipe,
which the JVM inherits and keeps; a thread passes on everything else.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NOISE = (b"WARNING: Using incubator modules:",)
STDERR = 2


@contextmanager
def quiet_start() -> Iterator[None]:
    """For the block that starts the JVM."""
    reader, writer = os.pipe()
    before = os.dup(STDERR)
    threading.Thread(target=_pass_on, args=(reader, before), daemon=True).start()
    os.dup2(writer, STDERR)
    try:
        yield
    finally:
        os.dup2(before, STDERR)
        os.close(writer)


def _pass_on(reader: int, target: int) -> None:
    with open(reader, "rb") as lines, open(target, "wb", buffering=0) as out:
        for line in lines:
            if not line.startswith(NOISE):
                out.write(line)
