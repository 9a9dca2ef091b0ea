"""`topics` as people meet it: run in a pseudo-terminal, typed to, and what it shows as text that can be compared.

Colours come out as words in angle brackets; times, lease ids and addresses, which differ from run to run, are masked.
"""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from types import TracebackType

from conformance.client import eventually

# Kept for the run of the tests: who compiles everything anew for each of a hundred commands measures nothing else.
BYTECODE = tempfile.TemporaryDirectory(prefix="topics-bytecode-")
OTHERS = {"NO_COLOR", "PYTHONDONTWRITEBYTECODE"}
COLUMNS, LINES = 100, 30
STOP_S = 20.0
STYLES = {"1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "36": "cyan", "0": "/"}
# Makes stdin the terminal whose Ctrl-C the process hears, and becomes the command.
AS_ITS_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
MASKS = (
    (re.compile(r"http://127\.0\.0\.1:\d+"), "http://SERVER"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"), "DATE"),
    (re.compile(r"\d\d:\d\d:\d\d\.\d{3}"), "TIME"),
    (re.compile(r"lease_[0-9a-f]+"), "LEASE"),
)


def environment(url: str | None = None, **more: str) -> dict[str, str]:
    """The caller's, without settings of its own, in a terminal that has colours."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_") and name not in OTHERS}
    fixed = {"TERM": "xterm-256color", "TZ": "UTC", "PYTHONPYCACHEPREFIX": BYTECODE.name}
    return ours | fixed | ({"TOPICS_URL": url} if url else {}) | more


def masked(text: str) -> str:
    for pattern, instead in MASKS:
        text = pattern.sub(instead, text)
    return text


def readable(raw: str) -> str:
    """What is left on the terminal: overwritten lines gone, colours named."""
    text = raw.replace("\r\n", "\n")
    lines = [line.rpartition("\r\x1b[K")[2] for line in text.split("\n")]
    named = re.sub(r"\x1b\[(\d+)m", lambda code: f"<{STYLES[code[1]]}>", "\n".join(lines))
    return masked(named)


class Terminal:
    """One command in a terminal of its own."""

    def __init__(self, *words: str, url: str | None = None, **variables: str) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._descriptor = ours
        self._output = bytearray()
        self._process = subprocess.Popen(
            [sys.executable, "-c", AS_ITS_TERMINAL, sys.executable, "-m", "topics.cli.main", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(url, **variables),
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(STOP_S)  # longer only if something it started still holds the terminal
        os.close(self._descriptor)

    @property
    def raw(self) -> str:
        return bytes(self._output).decode("utf-8", "replace")

    @property
    def text(self) -> str:
        return readable(self.raw)

    def expect(self, text: str) -> None:
        """Waits until it was shown."""
        eventually(lambda: text in self.text or self._process.poll() is not None)
        assert text in self.text, self.text

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C, as the keyboard sends it."""
        self.type("\x03")

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def status(self) -> int:
        """Waits for the end."""
        self._process.wait(STOP_S)
        self._reader.join(STOP_S)
        return self._process.returncode

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._descriptor, 65536)
            except OSError:  # the other side is closed
                return
            if not data:
                return
            self._output += data


def shown(*words: str, url: str | None = None, **variables: str) -> str:
    """What a command that ends by itself leaves on the terminal."""
    with Terminal(*words, url=url, **variables) as terminal:
        terminal.status()
        return terminal.text
