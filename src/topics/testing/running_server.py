"""A real server in a process of its own, for tests: it can be stopped, killed and started again on the same data."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from topics import limits
from topics.client.async_client import AsyncClient
from topics.client.sync_client import Client
from topics.errors import TopicsError, Unauthorized


class ServerDied(TopicsError):
    """The server of a test did not start, or did not stop in order. The message has the end of its log."""


class RunningServer:
    """`url` stays the same over restarts. `directory` holds its data and its log."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.directory = directory
        self._settings = settings
        self._port = settings.get("TOPICS_PORT", "0")
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.start()

    def __repr__(self) -> str:
        return f"RunningServer({self.url!r})"

    def client(self, api_key: str | None = None, **options: Any) -> Client:
        """A new client of this server; close it, or use it in a `with`. Options are those of `Client`."""
        return Client(self.url, api_key, **options)

    def async_client(self, api_key: str | None = None, **options: Any) -> AsyncClient:
        return AsyncClient(self.url, api_key, **options)

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def start(self) -> None:
        """Returns when it is ready. Called by the constructor, and after `stop` or `kill`."""
        address = self.directory / "address"
        address.unlink(missing_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        own = {"TOPICS_DATA_DIR": str(self.data_directory), "TOPICS_PORT_FILE": str(address)}
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "topics.cli.main", "serve"],
                env=inherited | own | self._settings | {"TOPICS_PORT": self._port},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._await_address(address)
            with (
                contextlib.suppress(Unauthorized),  # probes behind a key: it answers, which is all one can ask
                Client(self.url, "none", timeout_s=limits.TESTING_START_S) as client,
            ):
                client.ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """SIGTERM: it finishes in order."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(limits.TESTING_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServerDied(f"the server does not stop:\n{self.log()[-2000:]}") from None
        if code != 0:
            raise ServerDied(f"the server stopped with status {code}:\n{self.log()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL: nothing of it gets to finish, as in a crash."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def _await_address(self, file: Path) -> None:
        waiting = threading.Event()
        for _ in range(int(limits.TESTING_START_S / limits.TESTING_POLL_S)):
            assert self._process is not None
            if self._process.poll() is not None:
                raise ServerDied(f"the server did not start:\n{self.log()[-2000:]}")
            if file.exists():
                host, _, self._port = file.read_text().strip().rpartition(":")
                self.url = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{self._port}"
                return
            waiting.wait(limits.TESTING_POLL_S)
        raise ServerDied(f"the server did not start within {limits.TESTING_START_S} s:\n{self.log()[-2000:]}")


@contextlib.contextmanager
def server(directory: str | os.PathLike[str] | None = None, **settings: object) -> Iterator[RunningServer]:
    """A server on a free port, until the block ends. Its data is in `directory`, or in a temporary one.

    Settings are the server's, without `TOPICS_` and in lower case: `server(max_topics=10, api_keys="s3cret")`.
    """
    variables = {f"TOPICS_{name.upper()}": str(value) for name, value in settings.items()}
    with contextlib.ExitStack() as stack:
        place = directory or stack.enter_context(tempfile.TemporaryDirectory(prefix="topics-"))
        running = RunningServer(Path(place), variables)
        try:
            yield running
        except BaseException:
            running.kill()  # what the test says matters more than what its server does now
            raise
        running.stop()
