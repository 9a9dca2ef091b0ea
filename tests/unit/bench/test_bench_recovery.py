"""A server is killed only when what was written is durable: what a class may lose is no part of a start."""

from pathlib import Path

import pytest
from stub_checkout import make_checkout

from topics.bench.own_process import sources_in
from topics.bench.recovery_measurement import RecoveryMeasurement

# As much of a server as the measurement needs. Like class `disk` at its slowest, it keeps records in memory until
# something durable follows them: a change of their topic, or its own clean stop.
HANDLER = """
import json, os, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

kept = os.environ["TOPICS_DATA_DIR"]
topics = json.load(open(kept)) if os.path.exists(kept) else {}

def keep(*names):
    stored = json.load(open(kept)) if os.path.exists(kept) else {}
    stored.update({name: topics[name] for name in names})
    with open(kept, "w") as file:
        json.dump(stored, file)

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        name = urlsplit(self.path).path.rpartition("/")[2]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command == "PUT":
            topic = topics.setdefault(name, {"count": 0, "config": {}})
            if topic["config"] | json.loads(body) != topic["config"]:
                topic["config"] |= json.loads(body)
                keep(name)
        elif self.command == "POST":
            topics[name]["count"] += len(json.loads(body)["records"])
        reply = json.dumps(topics.get(name, {})).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_GET = do_PUT = do_POST = answer

def stop(*_):
    keep(*topics)
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
"""


@pytest.fixture
def slow_disk(tmp_path: Path) -> Path:
    return sources_in(make_checkout(tmp_path / "slow", HANDLER))


def test_what_was_written_is_durable_before_the_server_is_killed(slow_disk: Path) -> None:
    assert RecoveryMeasurement(20_000, "disk").start_after_kill(slow_disk, left_alone_s=0) > 0


def test_a_clean_stop_keeps_everything(slow_disk: Path) -> None:
    assert RecoveryMeasurement(20_000, "disk").start_after_stop(slow_disk) > 0
