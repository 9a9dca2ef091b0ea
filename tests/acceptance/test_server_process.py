"""The server as a process: how it starts, refuses to start, and stops."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conformance.client import Api, eventually
from conformance.process import command_environment
from topics.version import VERSION

TIMEOUT_S = 15.0


class Command:
    """A started `topics …`; ended with the test whatever happens."""

    def __init__(self, directory: Path, *arguments: str, **settings: str) -> None:
        directory.mkdir(exist_ok=True)
        self.address_file = directory / "address"
        self._log_path = directory / "log"
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "topics.cli.main", *arguments],
                env=command_environment(directory, settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    def exit_code(self) -> int:
        return self.process.wait(TIMEOUT_S)

    def listening(self) -> Api:
        """The server it runs, once it is ready."""
        eventually(self._has_address)
        host, _, port = self.address_file.read_text().rpartition(":")
        api = Api(host, int(port))
        eventually(lambda: api.get("/v0/ready").status == 200)
        return api

    def _has_address(self) -> bool:
        assert self.process.poll() is None, self.log
        return self.address_file.exists()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Commands:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[Command] = []

    def serve(self, *arguments: str, **settings: str) -> Command:
        command = Command(self._directory / str(len(self._started)), "serve", *arguments, **settings)
        self._started.append(command)
        return command

    def end(self) -> None:
        for command in self._started:
            command.end()


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path)
    yield commands
    commands.end()


# Stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_stops_at_once_when_asked(commands: Commands, number: signal.Signals) -> None:
    server = commands.serve()
    server.listening()
    server.process.send_signal(number)
    assert server.exit_code() == 0
    assert "Traceback" not in server.log


def test_a_long_poll_in_flight_gets_its_answer_before_the_server_stops(commands: Commands) -> None:
    server = commands.serve(TOPICS_LOG="debug")
    api = server.listening()
    assert api.put("/v0/topics/t").status == 201
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(api.post, "/v0/topics/t/diff", {"wait_ms": 30_000})
        # A read makes the topic hot the moment the poll arrives: from then on it waits.
        eventually(lambda: api.get("/v0/topics/t?touch=false").json["last_read_ts"] is not None)
        server.process.send_signal(signal.SIGTERM)
        reply = poll.result(TIMEOUT_S)
    assert (reply.status, reply.json["records"], reply.json["caught_up"]) == (200, [], True)
    assert server.exit_code() == 0
    assert "Traceback" not in server.log


def test_an_idle_connection_does_not_hold_a_stopping_server(commands: Commands) -> None:
    server = commands.serve()
    api = server.listening()
    with api.connection() as connection:
        connection.send(connection.head("GET /v0/health"))
        assert connection.reply().status == 200
        server.process.send_signal(signal.SIGTERM)
        assert connection.is_closed_by_server()
    assert server.exit_code() == 0


def test_a_stopped_server_frees_its_port(commands: Commands) -> None:
    first = commands.serve()
    port = str(first.listening().port)
    first.process.send_signal(signal.SIGTERM)
    assert first.exit_code() == 0
    assert commands.serve(TOPICS_PORT=port).listening().port == int(port)


# Starting


def test_the_port_file_appears_whole(commands: Commands) -> None:
    """Read as often as possible while the server starts: it is absent, or it is a complete address."""
    server = commands.serve()

    def address() -> str:
        assert server.process.poll() is None, server.log
        try:
            return server.address_file.read_text()
        except FileNotFoundError:
            return ""

    seen: list[str] = []

    def has_appeared() -> bool:
        seen.append(address())
        return seen[-1] != ""

    eventually(has_appeared)
    assert re.fullmatch(r"127\.0\.0\.1:[1-9][0-9]*", seen[-1])
    assert Api.at(f"http://{seen[-1]}").get("/v0/health").status == 200
    assert sorted(path.name for path in server.address_file.parent.iterdir() if "address" in path.name) == ["address"]


def test_options_win_over_the_environment(commands: Commands) -> None:
    server = commands.serve("--port", "0", TOPICS_PORT="1", TOPICS_HOST="127.0.0.1:1")
    assert server.listening().port > 1


def test_a_service_named_topics_in_kubernetes_does_not_stop_a_start(commands: Commands) -> None:
    server = commands.serve(TOPICS_HOST="127.0.0.1:0", TOPICS_PORT="tcp://10.96.7.3:4000")
    server.listening()
    assert "WARNING" in server.log
    assert "TOPICS_PORT=tcp://10.96.7.3:4000 is not a setting" in server.log


def test_a_server_that_asks_for_no_keys_says_so_loudly(commands: Commands) -> None:
    server = commands.serve()
    server.listening()
    warnings = [line for line in server.log.splitlines() if " WARNING " in line]
    assert any("TOPICS_API_KEYS" in line for line in warnings), server.log


# Refusing to start


def test_a_port_that_is_taken_is_refused_with_what_to_do(commands: Commands) -> None:
    first = commands.serve()
    port = first.listening().port
    second = commands.serve(TOPICS_PORT=str(port))
    assert second.exit_code() == 2
    assert f"127.0.0.1:{port}" in second.log
    assert "TOPICS_PORT" in second.log
    assert "Traceback" not in second.log
    assert not second.address_file.exists()


def test_a_port_that_is_taken_leaves_no_data_directory_behind(commands: Commands, tmp_path: Path) -> None:
    port = commands.serve().listening().port
    second = commands.serve("--port", str(port), "--data-dir", str(tmp_path / "never"))
    assert second.exit_code() == 2
    assert "--port" in second.log
    assert "TOPICS_PORT" not in second.log.replace("TOPICS_PORT_FILE", "")
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port", "many"], "topics: --port 'many': use a whole number"),
        (["--port", "65536"], "topics: --port 65536: use a number from 0 to 65535"),
        (["--host", "nohost.invalid"], "topics: --host nohost.invalid: there is no such host"),
        (["--data-dir", "/dev/null/data"], "topics: --data-dir /dev/null/data cannot be used"),
    ],
)
def test_an_option_it_cannot_use_is_called_by_its_name(commands: Commands, options: list[str], said: str) -> None:
    server = commands.serve(*options)
    assert server.exit_code() == 2
    assert [line for line in server.log.splitlines() if line.startswith(said)], server.log


def test_a_variable_that_is_no_setting_is_a_warning_and_strict_refuses_it(commands: Commands) -> None:
    server = commands.serve(TOPICS_DATADIR="x", TOPICS_URL="http://elsewhere")
    server.listening()
    said = "TOPICS_DATADIR is not a setting: it does nothing. Did you mean TOPICS_DATA_DIR?"
    assert [line for line in server.log.splitlines() if " WARNING " in line and line.endswith(said)], server.log
    assert "TOPICS_URL" not in server.log
    strict = commands.serve("--strict", TOPICS_DATADIR="x")
    assert strict.exit_code() == 2
    assert f"topics: {said}" in strict.log.splitlines()


def test_a_start_says_what_it_has_recovered(commands: Commands, tmp_path: Path) -> None:
    first = commands.serve(TOPICS_DATA_DIR=str(tmp_path / "data"))
    api = first.listening()
    assert "the data directory is new" in first.log
    assert api.post("/v0/topics/t", {"records": [{"data": 1}] * 3, "config": {"durable": True}}).status == 201
    first.process.kill()
    first.process.wait()
    second = commands.serve(TOPICS_DATA_DIR=str(tmp_path / "data"))
    second.listening()
    assert re.search(r"recovered 1 topics with 3 records in [0-9.]+ s; the last stop was not clean", second.log), (
        second.log
    )


def test_a_data_directory_another_server_has_is_refused_in_one_line(commands: Commands, tmp_path: Path) -> None:
    commands.serve(TOPICS_DATA_DIR=str(tmp_path / "data")).listening()
    second = commands.serve(TOPICS_DATA_DIR=str(tmp_path / "data"))
    assert second.exit_code() == 2
    assert [line for line in second.log.splitlines() if line.startswith("topics: ") and "in use" in line], second.log
    assert "Traceback" not in second.log
    assert not second.address_file.exists()


def test_a_data_directory_of_an_earlier_version_is_refused_in_one_line_that_says_what_to_do(
    commands: Commands, tmp_path: Path
) -> None:
    meta = tmp_path / "data" / "meta"
    meta.mkdir(parents=True)
    (meta / "snapshot.0001.bin").write_bytes(b"topicsnp\x01\0\0\0" + bytes(28))
    server = commands.serve(TOPICS_DATA_DIR=str(tmp_path / "data"))
    assert server.exit_code() == 2
    assert [line for line in server.log.splitlines() if line.startswith("topics: ")] == [
        f"topics: {meta}/snapshot.0001.bin was written by an earlier version of topics, and this one does not read its "
        "format (snapshot format 1): start that version on the directory and export your topics, "
        "then start this one on an empty directory"
    ]
    assert "Traceback" not in server.log
    assert sorted(path.name for path in meta.iterdir()) == ["snapshot.0001.bin"]


@pytest.mark.parametrize(
    ("settings", "mentions"),
    [
        ({"TOPICS_HOST": "0.0.0.0"}, ["TOPICS_HOST", "TOPICS_API_KEYS", "TOPICS_ALLOW_INSECURE_NO_AUTH"]),
        ({"TOPICS_HOST": "::"}, ["TOPICS_HOST", "TOPICS_ALLOW_INSECURE_NO_AUTH"]),
        ({"TOPICS_API_KEYS": "fine,top-secret:reed"}, ["TOPICS_API_KEYS", "entry 2", "scope"]),
        ({"TOPICS_MAX_TOPICS": "many"}, ["TOPICS_MAX_TOPICS", "many"]),
        ({"TOPICS_PORT": "65536"}, ["TOPICS_PORT", "65536"]),
        ({"TOPICS_PROBE_AUTH": "maybe"}, ["TOPICS_PROBE_AUTH", "maybe"]),
        ({"TOPICS_LOG": "loud"}, ["TOPICS_LOG", "loud"]),
        ({"TOPICS_HOST": "no.such.host.invalid", "TOPICS_API_KEYS": "k"}, ["no.such.host.invalid", "no such host"]),
        ({"TOPICS_HOST": "no.such.host.invalid"}, ["no.such.host.invalid", "no such host"]),
        ({"TOPICS_PORT_FILE": "/no/such/directory/address"}, ["TOPICS_PORT_FILE", "/no/such/directory/address"]),
        ({"TOPICS_DATA_DIR": "/dev/null/data"}, ["TOPICS_DATA_DIR", "/dev/null/data"]),
        ({"TOPICS_COLD_DIR": "/dev/null/cold"}, ["TOPICS_COLD_DIR", "/dev/null/cold"]),
    ],
)
def test_a_setting_it_cannot_use_is_refused_in_one_line(
    commands: Commands, settings: dict[str, str], mentions: list[str]
) -> None:
    server = commands.serve(**settings)
    assert server.exit_code() == 2, server.log
    refusal = [line for line in server.log.splitlines() if line.startswith("topics: ")]
    assert len(refusal) == 1, server.log
    assert all(mention in refusal[0] for mention in mentions), refusal
    assert "top-secret" not in server.log
    assert "Traceback" not in server.log


def test_an_open_address_is_allowed_when_insisted_on(commands: Commands) -> None:
    server = commands.serve(TOPICS_HOST="0.0.0.0", TOPICS_ALLOW_INSECURE_NO_AUTH="1")
    assert server.listening().get("/v0/topics").status == 200


# Secrets


def test_keys_never_reach_the_log(commands: Commands) -> None:
    server = commands.serve(TOPICS_LOG="debug", TOPICS_API_KEYS="known-secret:read,other-secret")
    api = server.listening()
    known = api.with_key("known-secret")
    assert known.get("/v0/topics").status == 200
    assert known.put("/v0/topics/t").status == 403
    assert api.with_key("unknown-secret").get("/v0/topics").status == 401
    assert known.get("/v0/topics?token=query-secret").status == 200
    assert (
        known.request("POST", "/v0/topics/t", body=b"{", headers={"Authorization": "Basic basic-secret"}).status == 401
    )
    server.process.send_signal(signal.SIGTERM)
    assert server.exit_code() == 0
    assert "GET /v0/topics" in server.log, "requests are logged, or this proves nothing"
    assert "secret" not in server.log


# The command line


def test_the_version_is_printed(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "topics.cli.main", "--version"],
        env=command_environment(tmp_path, {}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert (finished.stdout, finished.stderr) == (f"topics {VERSION}\n", "")


def test_the_version_of_the_server_is_that_of_the_command(commands: Commands) -> None:
    assert json.loads(commands.serve().listening().get("/v0/health").body)["version"] == VERSION


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["serve", "--nonsense"]])
def test_a_command_that_does_not_exist_is_explained(tmp_path: Path, arguments: list[str]) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "topics.cli.main", *arguments],
        env=command_environment(tmp_path, {}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert finished.returncode == 2
    assert finished.stderr.startswith("topics" if arguments else "usage: topics")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_process_that_encodes_segments_ends_with_the_server(commands: Commands, number: signal.Signals) -> None:
    server = commands.serve(TOPICS_SEGMENT_MAX_EVENTS="3000")
    api = server.listening()
    assert not _children_of(server.process.pid)
    api.post("/v0/topics/jobs", {"records": [{"data": each} for each in range(3001)]})
    eventually(lambda: len(_children_of(server.process.pid)) == 1)
    (child,) = _children_of(server.process.pid)
    server.process.send_signal(number)
    server.exit_code()
    eventually(lambda: _has_ended(child))


def _children_of(process_id: int) -> list[int]:
    threads = Path(f"/proc/{process_id}/task").glob("*/children")
    return [int(child) for children in threads for child in children.read_text().split()]


def _has_ended(process_id: int) -> bool:
    """It may wait for somebody to ask how it ended."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"
