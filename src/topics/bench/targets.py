"""What is measured: this server, any `/v0` URL, the bare protocol layer, Redis.

Each comes from a context manager that starts it where it must be started and stops it at the end.
All of them are reached over loopback TCP unless the user asked for a remote URL in so many words.
"""

import ipaddress
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

from topics.bench.child_process import environment_with, free_port, running, wait_for
from topics.bench.control import HttpControl, RedisControl
from topics.bench.errors import BenchError

LOOPBACK = "127.0.0.1"


class TargetKind(Enum):
    TOPICS = "topics"
    EMPTY_HANDLER = "empty"
    REDIS = "redis"


@dataclass(frozen=True, slots=True)
class Target:
    """An address and what answers there."""

    name: str
    kind: TargetKind
    host: str
    port: int
    api_key: str | None = None

    def http(self) -> HttpControl:
        return HttpControl(self.host, self.port, self.api_key)

    def redis(self) -> RedisControl:
        return RedisControl(self.host, self.port)


def target_at(url: str, *, allow_remote: bool, api_key: str | None) -> Target:
    """A server somebody else runs."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise BenchError(f"--url {url}: expected http://host:port")
    if not allow_remote and not _is_loopback(parts.hostname):
        raise BenchError(f"--url {url}: not a loopback address; --allow-remote puts load on it all the same")
    target = Target(parts.netloc, TargetKind.TOPICS, parts.hostname, parts.port or 80, api_key)
    if not _is_ready(target):
        raise BenchError(f"--url {url}: /v0/ready does not answer 200")
    return target


@contextmanager
def own_server() -> Iterator[Target]:
    """This project's server, fresh, on a free port with a data directory that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as directory:
        port_file = Path(directory, "port")
        environment = environment_with(
            TOPICS_PORT="0",
            TOPICS_PORT_FILE=str(port_file),
            TOPICS_DATA_DIR=str(Path(directory, "data")),
        )
        log = Path(directory, "server.log")
        with running([sys.executable, "-m", "topics.cli.main", "serve"], log, environment) as process:
            wait_for(process, "the server", port_file.exists, log)
            host, port = _address_in(port_file)
            target = Target("topics", TargetKind.TOPICS, host, port)
            wait_for(process, "the server", lambda: _is_ready(target), log)
            yield target


@contextmanager
def empty_handler() -> Iterator[Target]:
    """The protocol layer alone, answering every request with the same body: the ceiling for any handler."""
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as directory:
        port_file = Path(directory, "port")
        log = Path(directory, "empty-handler.log")
        arguments = [sys.executable, "-m", "topics.bench.empty_handler", str(port_file)]
        with running(arguments, log) as process:
            wait_for(process, "the empty handler", port_file.exists, log)
            host, port = _address_in(port_file)
            yield Target("empty handler", TargetKind.EMPTY_HANDLER, host, port)


def redis_binary() -> str | None:
    return shutil.which("redis-server")


@contextmanager
def redis(binary: str, *, sync_always: bool) -> Iterator[Target]:
    """Redis with its append-only file on, syncing as the compared durability class does."""
    sync = "always" if sync_always else "everysec"
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as directory:
        port = free_port()
        log = Path(directory, "redis.log")
        arguments = [binary, "--bind", LOOPBACK, "--port", str(port), "--dir", directory, "--save", ""]
        arguments += ["--appendonly", "yes", "--appendfsync", sync, "--auto-aof-rewrite-percentage", "0"]
        with running(arguments, log) as process:
            target = Target(f"redis ({sync})", TargetKind.REDIS, LOOPBACK, port)
            wait_for(process, "redis-server", lambda: _answers_ping(target), log)
            yield target


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address_in(port_file: Path) -> tuple[str, int]:
    host, _, port = port_file.read_text().strip().rpartition(":")
    return host.strip("[]"), int(port)


def _is_ready(target: Target) -> bool:
    with target.http() as control:
        return control.read_if_there("/v0/ready") is not None


def _answers_ping(target: Target) -> bool:
    try:
        with target.redis() as control:
            return control.call(b"PING") == b"+PONG\r\n"
    except BenchError:
        return False
