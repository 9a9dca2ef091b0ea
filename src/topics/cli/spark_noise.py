"""Drops what the JVM itself prints to stderr when Spark starts it, which cannot be switched off, and what Delta does.

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


def quiet_delta() -> None:
    """Imports Delta, which decides then whether it prints warnings: what they say is in its errors, too."""
    level = os.environ.get("RUST_LOG")
    os.environ["RUST_LOG"] = level or "error"
    import deltalake  # noqa: F401, PLC0415

    if level is None:
        del os.environ["RUST_LOG"]
