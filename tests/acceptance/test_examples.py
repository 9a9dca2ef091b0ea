"""The examples without Spark, run as their READMEs say; those in a browser and on Spark are tested there."""

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from conformance.client import eventually
from topics.testing.running_server import RunningServer, server

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningServer]:
    with server() as running:
        yield running


def started(running: RunningServer, script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / script), *arguments],
        env={**os.environ, "TOPICS_URL": running.url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(running: RunningServer, script: str, *arguments: str, code: int = 0) -> str:
    process = started(running, script, *arguments)
    out, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code, errors
    return out


def commands_of_the_readme(running: RunningServer, folder: str) -> str:
    """What the `topics` commands of a README print, run as they are there, in order."""
    lines = (EXAMPLES / folder / "README.md").read_text().splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("topics ")]
    assert commands
    printed = ""
    for words in commands:
        done = subprocess.run(
            [sys.executable, "-m", "topics.cli.main", *words],
            env={**os.environ, "TOPICS_URL": running.url},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, (words, done.stderr)
        printed += done.stdout
    return printed


def test_every_example_is_a_folder_with_a_readme_in_the_list() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    folders = [path for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert len(folders) == 6
    assert [path.name for path in folders if f"[{path.name}]({path.name})" not in listed] == []
    assert [path.name for path in folders if not (path / "README.md").exists()] == []


def test_pictures_are_resized_once_each_and_what_is_none_is_a_dead_letter(
    running: RunningServer, tmp_path: Path
) -> None:
    script = "image-resizing/resize.py"
    picture, small, broken = (str(tmp_path / name) for name in ("in.ppm", "out.ppm", "broken.ppm"))
    ran(running, script, "sample", picture)
    Path(broken).write_bytes(b"nothing to see")
    for _ in range(2):
        ran(running, script, "add", picture, small, "80")
    ran(running, script, "add", broken, str(tmp_path / "never.ppm"), "80")
    worker = started(running, script, "work")
    try:
        with running.client() as client:
            eventually(lambda: client.topic("resize").count == 0)
            assert [json.loads(bytes(each.data))["source"] for each in client.export("resize.dead")] == [broken]
    finally:
        worker.terminate()
        out, errors = worker.communicate(timeout=TIMEOUT_S)
    assert worker.returncode == 0, errors
    assert "acked=1" in out
    assert broken in commands_of_the_readme(running, "image-resizing")
    assert Path(small).read_bytes().startswith(b"P6\n80 50\n255\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.ppm", "in.ppm", "out.ppm"]


class Receiver(BaseHTTPRequestHandler):
    """Somebody else's server: fails twice, then takes it; `/gone` is gone."""

    seen: ClassVar[list[tuple[str, str, object]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append((self.path, self.headers["Webhook-Id"], body))
        tries = sum(path == self.path for path, _, _ in self.seen)
        self.send_response(410 if self.path == "/gone" else 503 if tries < 3 else 204)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def test_webhooks_are_tried_again_until_they_are_taken_and_given_up_in_the_end(running: RunningServer) -> None:
    script = "webhooks/webhooks.py"
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{receiver.server_port}"
    with running.client() as client:
        client.create("webhooks", type="queue", max_deliveries=4)  # `prepare` asks for more, later
        ran(running, script, "send", f"{address}/hook", '{"order": 7}')
        ran(running, script, "send", f"{address}/gone", '{"order": 8}')
        worker = started(running, script, "work")
        try:
            eventually(lambda: client.topic("webhooks").count == 0)
        finally:
            worker.terminate()
            worker.communicate(timeout=TIMEOUT_S)
            receiver.shutdown()
            thread.join()
            receiver.server_close()
        # Nobody listens there any more: after the last try the delivery is kept.
        ran(running, script, "send", f"{address}/hook", '{"order": 9}')
        client.configure("webhooks", max_deliveries=1)
        giving_up = subprocess.run(
            [sys.executable, "-c", GIVE_UP, str(EXAMPLES / "webhooks"), running.url],
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert giving_up.returncode == 0, giving_up.stderr
        assert [json.loads(bytes(each.data))["event"] for each in client.export("webhooks.dead")] == [{"order": 9}]
        assert "moved 1 job from webhooks.dead back to webhooks" in commands_of_the_readme(running, "webhooks")
    hooks = [(identifier, body) for path, identifier, body in Receiver.seen if path == "/hook"]
    assert hooks == [("webhooks-1", {"order": 7})] * 3
    assert [body for path, _, body in Receiver.seen if path == "/gone"] == [{"order": 8}]


GIVE_UP = """
import sys
sys.path.insert(0, sys.argv[1])
import webhooks
from topics import Client
with Client(sys.argv[2]) as client:
    webhooks.deliverer(client, drain=True).run()
"""


def test_an_audit_log_shows_a_change(running: RunningServer, tmp_path: Path) -> None:
    script = "audit-log/audit.py"
    assert ran(running, script, "record", "alice", "deleted invoice 17") == "1\n"
    assert ran(running, script, "record", "bob", "paid invoice 18") == "2\n"
    assert "alice deleted invoice 17" in ran(running, script, "show", "alice")
    assert "alice" not in ran(running, script, "show", "bob")
    sealed = tmp_path / "seal.json"
    sealed.write_text(ran(running, script, "seal"))
    ran(running, script, "record", "carol", "came later")
    assert ran(running, script, "check", str(sealed)) == "as it was sealed\n"
    with running.client() as client:
        client.delete("audit", match=("tag", "Eq", "who:bob"))
    assert "2 entries were sealed, and the 1 there now" in ran(running, script, "check", str(sealed), code=1)
