"""The targets: this server, the server of another checkout, any `/v0` URL, the bare protocol layer, Redis, NATS.

Each comes from a context manager that starts it if necessary and stops it at the end. All are reached over loopback
TCP, unless the user explicitly asked for a remote URL.
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

from topics.bench.child_process import LOOPBACK, address_in, free_port, running, wait_for
from topics.bench.control import HttpControl, NatsControl, RedisControl
from topics.bench.errors import BenchError
from topics.bench.own_process import OWN_SOURCES, OwnProcess, server_on, sources_in


class TargetKind(Enum):
    TOPICS = "topics"
    EMPTY_HANDLER = "empty"
    REDIS = "redis"
    NATS = "nats"


@dataclass(frozen=True, slots=True)
class Target:
    """An address and what answers there."""

    name: str
    kind: TargetKind
    host: str
    port: int
    api_key: str | None = None
    process_id: int | None = None  # if the benchmark started it
    older: bool = False  # the server of another checkout: marks compare this one with it
    sync_always: bool = False  # a peer that syncs before it answers, to compare with the `fsync` class

    def http(self) -> HttpControl:
        return HttpControl(self.host, self.port, self.api_key)

    def redis(self) -> RedisControl:
        return RedisControl(self.host, self.port)

    def nats(self) -> NatsControl:
        return NatsControl(self.host, self.port)


def target_at(url: str, *, allow_remote: bool, api_key: str | None) -> Target:
    """A server that somebody else runs."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise BenchError(f"--url {url}: expected http://host:port")
    if not allow_remote and not _is_loopback(parts.hostname):
        raise BenchError(f"--url {url}: not a loopback address; add --allow-remote to put load on it anyway")
    target = Target(parts.netloc, TargetKind.TOPICS, parts.hostname, parts.port or 80, api_key)
    with target.http() as control:
        if not control.is_there("/v0/ready"):
            raise BenchError(f"--url {url}: /v0/ready does not answer 200")
    return target


def target_of(server: OwnProcess, name: str = "topics", *, older: bool = False) -> Target:
    """A server that the benchmark started."""
    return Target(name, TargetKind.TOPICS, LOOPBACK, server.port, process_id=server.process.pid, older=older)


@contextmanager
def own_server(checkout: Path | None = None) -> Iterator[Target]:
    """Starts this server, or that of another checkout, on a new data directory that is removed afterwards."""
    name, sources = "topics", OWN_SOURCES
    if checkout is not None:
        name, sources = f"checkout {checkout.resolve().name}", sources_in(checkout)
    with (
        tempfile.TemporaryDirectory(prefix="topics-bench-") as directory,
        server_on(Path(directory), sources=sources) as server,
    ):
        yield target_of(server, name, older=checkout is not None)


@contextmanager
def empty_handler() -> Iterator[Target]:
    """The protocol layer alone, answering every request with the same body: the ceiling for any handler."""
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as directory:
        port_file = Path(directory, "port")
        log = Path(directory, "empty-handler.log")
        arguments = [sys.executable, "-m", "topics.bench.empty_handler", str(port_file)]
        with running(arguments, log) as process:
            wait_for(process, "the empty handler", port_file.exists, log)
            host, port = address_in(port_file)
            yield Target("empty handler", TargetKind.EMPTY_HANDLER, host, port, process_id=process.pid)


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
            target = Target(
                f"redis ({sync})", TargetKind.REDIS, LOOPBACK, port, process_id=process.pid, sync_always=sync_always
            )
            wait_for(process, "redis-server", lambda: _answers_ping(target), log)
            yield target


def nats_binary() -> str | None:
    return shutil.which("nats-server")


@contextmanager
def nats(binary: str) -> Iterator[Target]:
    """NATS with JetStream on a directory. It writes files and syncs them now and then, like the `disk` class."""
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as directory:
        port = free_port()
        log = Path(directory, "nats.log")
        arguments = [binary, "--addr", LOOPBACK, "--port", str(port), "--jetstream", "--store_dir", directory]
        with running(arguments, log) as process:
            target = Target("nats (jetstream)", TargetKind.NATS, LOOPBACK, port, process_id=process.pid)
            wait_for(process, "nats-server", lambda: _has_jetstream(target), log)
            yield target


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _answers_ping(target: Target) -> bool:
    try:
        with target.redis() as control:
            return control.call(b"PING") == b"+PONG\r\n"
    except BenchError:
        return False


def _has_jetstream(target: Target) -> bool:
    try:
        with target.nats() as control:
            return b'"streams"' in control.request(b"$JS.API.INFO", b"")
    except BenchError:
        return False
