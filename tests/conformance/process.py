"""Starts and stops a server of this project as a child process, with its data in a directory of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from conformance.client import Api, eventually

STOP_TIMEOUT_S = 60.0
REFUSAL_TIMEOUT_S = 60.0


def command_environment(directory: Path, settings: dict[str, str]) -> dict[str, str]:
    """The caller's environment without its own TOPICS_* settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    own = {
        "TOPICS_PORT": "0",
        "TOPICS_PORT_FILE": str(directory / "address"),
        "TOPICS_DATA_DIR": str(directory / "data"),
    }
    return inherited | own | settings


class ServerProcess:
    """A running server. `api` talks to it without a key."""

    running: ClassVar[list["ServerProcess"]] = []
    program: tuple[str, ...] = ("-m", "topics.cli.main")
    stdin = subprocess.DEVNULL

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.log_path = directory / "log"
        self._address_file = directory / "address"
        self._address_file.unlink(missing_ok=True)  # of a server that was killed
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self.program, "serve"],
                env=command_environment(directory, settings),
                stdin=self.stdin,
                stdout=log,
                stderr=log,
            )
        try:
            eventually(self._has_address)
            host, _, port = self._address_file.read_text().strip().rpartition(":")
            self.api = Api("127.0.0.1" if host == "0.0.0.0" else host, int(port))
            eventually(lambda: self.api.get("/v0/ready").status in {200, 401})
        except BaseException:
            self.kill()
            raise
        self.running.append(self)

    def _has_address(self) -> bool:
        assert self._process.poll() is None, self.log()
        return self._address_file.exists()

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """Asks it to stop and checks that it did so in order."""
        self._process.send_signal(signal.SIGTERM)
        try:
            exit_code = self._process.wait(STOP_TIMEOUT_S)
        finally:
            self.kill()
        assert exit_code == 0, (exit_code, self.log())

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._process.kill()
        self._process.wait()
        if self in self.running:
            self.running.remove(self)


def output_of_refused_start(directory: Path, settings: dict[str, str]) -> str:
    """Runs a server that must refuse its settings; returns what it said."""
    finished = subprocess.run(
        [sys.executable, "-m", "topics.cli.main", "serve"],
        env=command_environment(directory, settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=REFUSAL_TIMEOUT_S,
        check=False,
        text=True,
    )
    assert finished.returncode != 0, finished.stdout
    assert not (directory / "address").exists(), "it listened before it refused"
    return finished.stdout
