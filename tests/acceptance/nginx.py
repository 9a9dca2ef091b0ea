"""nginx in front of a server, with the configuration of `deploy/` and a certificate of its own."""

import getpass
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from conformance.client import eventually

CONFIGURATION = Path(__file__).parents[2] / "deploy/nginx.conf"
NAME = "topics.example.com"
PROGRAM = shutil.which("nginx", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin"]))
STOP_S_MAX = 60.0
STARTS_MAX = 5
# What Debian's nginx.conf has around ours. Its worker stays who we are, to reach the directory of the test.
AROUND = """
daemon off; user {user}; worker_processes 1; pid {directory}/pid; error_log {directory}/error.log;
events {{ }}
http {{
    client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;
    include {directory}/topics.conf;
}}
"""


class Proxy(NamedTuple):
    url: str
    plain_port: int
    tls: ssl.SSLContext
    certificate: Path
    access_log: Path


@contextmanager
def nginx(directory: Path, server_port: int) -> Iterator[Proxy]:
    _certificate(directory)
    process, plain, tls = _started(directory, server_port)
    try:
        certificate = directory / "fullchain.pem"
        trust = ssl.create_default_context(cafile=str(certificate))
        yield Proxy(f"https://localhost:{tls}", plain, trust, certificate, directory / "topics.log")
    finally:
        process.terminate()
        process.wait(STOP_S_MAX)


def _started(directory: Path, server_port: int) -> tuple[subprocess.Popen[bytes], int, int]:
    """nginx takes no free port by itself. If somebody else is faster with one that was free, others are tried."""
    assert PROGRAM is not None
    output = directory / "output"
    for _ in range(STARTS_MAX):
        plain, tls = _free_ports(2)
        _configure(directory, server_port, {"80": plain, "443": tls})
        with output.open("wb") as said:
            process = subprocess.Popen(
                [PROGRAM, "-p", str(directory), "-c", str(directory / "nginx.conf")],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        eventually(lambda started=process: started.poll() is not None or _has_worker(started.pid))  # type: ignore[misc]
        if process.poll() is None:
            return process, plain, tls
        assert "Address already in use" in output.read_text(), output.read_text()
    raise AssertionError("no port stayed free")


def _has_worker(pid: int) -> bool:
    """It listens before it makes one."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip() != ""


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def _configure(directory: Path, server_port: int, ports: dict[str, int]) -> None:
    text = re.sub(r"^ *listen \[::\].*\n", "", CONFIGURATION.read_text(), flags=re.MULTILINE)
    text = re.sub(r"listen (80|443)", lambda found: f"listen 127.0.0.1:{ports[found[1]]}", text)
    text = text.replace("127.0.0.1:4000", f"127.0.0.1:{server_port}").replace(NAME, "localhost")
    text = text.replace("/etc/ssl/topics", str(directory)).replace("/var/log/nginx", str(directory))
    (directory / "topics.conf").write_text(text)
    (directory / "nginx.conf").write_text(AROUND.format(directory=directory, user=getpass.getuser()))


def _certificate(directory: Path) -> None:
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", directory / "privkey.pem")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2")
    command = ("openssl", "req", "-x509", *key, *subject, "-out", directory / "fullchain.pem")
    subprocess.run(command, check=True, capture_output=True)
