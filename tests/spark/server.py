"""A server process that keeps its port and its data when it is started again."""

from pathlib import Path

from conformance.client import Topic
from conformance.process import ServerProcess
from topics.client.sync_client import Client


class RestartableServer:
    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self._settings = settings or {}
        self._process = ServerProcess(directory, self._settings)
        self.api = self._process.api
        self.url = f"http://127.0.0.1:{self.api.port}"

    @property
    def data_path(self) -> str:
        return str(self.directory / "data")

    def topic(self, name: str) -> Topic:
        return Topic(self.api, name)

    def client(self) -> Client:
        return Client(self.url)

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        """The power goes."""
        self._process.kill()

    def start(self) -> None:
        (self.directory / "address").unlink(missing_ok=True)
        self._process = ServerProcess(self.directory, self._settings | {"TOPICS_PORT": str(self.api.port)})
