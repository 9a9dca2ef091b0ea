"""The rules of the house hold in every file, and the rules themselves catch what they are for."""

from pathlib import Path

import pytest
from architecture_rules import LINES_MAX, violations

import topics

PACKAGE = Path(topics.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def test_the_files_are_found() -> None:
    assert {"clock.py", "engine/engine.py", "api/handlers/records.py"} <= set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_a_file_keeps_the_rules(file: str) -> None:
    assert list(violations(file, (PACKAGE / file).read_text())) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        # Against the arrows.
        ("model/record.py", "from topics.engine.engine import Engine"),
        ("model/record.py", "from topics.wire import requests"),
        ("engine/engine.py", "from topics.api.http import Request"),
        ("engine/engine.py", "import topics.storage.fs"),
        ("engine/engine.py", "from topics import storage"),
        ("engine/engine.py", "from topics.wire.requests import decode"),
        ("storage/fs.py", "from topics.engine.journal import Journal"),
        ("wire/requests.py", "from topics.engine.engine import Engine"),
        ("delivery/long_poll.py", "from topics.api.http import Request"),
        ("api/application.py", "from topics.server.settings import Settings"),
        ("api/application.py", "from topics.storage import fs"),
        ("server/assembly.py", "from topics.cli.main import main"),
        ("server/assembly.py", "from topics.testing.fake_clock import FakeClock"),
        ("client/http.py", "from topics.engine.engine import Engine"),
        ("bench/load.py", "from topics.server.lifecycle import serve"),
        ("testing/fake_clock.py", "from topics.server import settings"),
        ("testing/simulated_server.py", "from topics.api.http import Request"),
        ("storage/journal.py", "from topics.engine.journal import Commit"),
        ("delivery/hub.py", "from topics.storage.journal import DiskJournal"),
        ("model/image.py", "from topics.storage.state import State"),
        ("cli/main.py", "from topics.testing.fake_clock import FakeClock"),
        ("errors.py", "from topics.model.names import is_topic_name"),
        ("engine/engine.py", "from . import topic"),
        ("engine/engine.py", "def late() -> None:\n    from topics.api import http"),
        ("utilities/strings.py", ""),
        # Time.
        ("engine/engine.py", "import time"),
        ("engine/engine.py", "from time import perf_counter"),
        ("server/lifecycle.py", "from datetime import datetime"),
        ("api/connections.py", "now = loop.time()"),
        ("api/encoding.py", "from email.utils import formatdate\nformatdate(usegmt=True)"),
        ("cli/inspect.py", "from datetime import UTC, datetime\ndatetime.now(UTC)"),
        ("cli/inspect.py", "import time"),
        # Files.
        ("engine/engine.py", "open('x')"),
        ("storage/segment.py", "from pathlib import Path"),
        ("server/assembly.py", "import os\nos.makedirs('x')"),
        ("api/http.py", "from os import replace"),
        ("server/assembly.py", "import os.path"),
        # Sockets.
        ("engine/engine.py", "import socket"),
        ("api/application.py", "from asyncio import Protocol"),
        ("delivery/long_poll.py", "import asyncio\nasyncio.start_server(None)"),
        ("delivery/long_poll.py", "loop.create_connection(None)"),
        ("api/encoding.py", "import http.client"),
        ("api/encoding.py", "from http.client import HTTPConnection"),
        ("wire/render.py", "import urllib.request"),
        ("api/application.py", "import uvloop"),
        ("api/application.py", "from websockets.frames import Frame"),
        ("delivery/hub.py", "import websockets"),
        ("api/websocket.py", "from websockets.asyncio.server import serve"),
        ("api/websocket.py", "import websockets"),
        # The rest.
        ("server/lifecycle.py", "print('started')"),
        ("engine/engine.py", "\n" * (LINES_MAX + 1)),
    ],
)
def test_a_violation_is_caught(file: str, source: str) -> None:
    assert len(list(violations(file, source))) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("engine/engine.py", "from topics import limits\nfrom topics.clock import Clock\nimport topics.errors"),
        ("engine/engine.py", "from topics.model.config import merge\nfrom topics.engine.topic import Topic"),
        ("api/application.py", "from topics.engine.engine import Engine\nfrom topics.wire.responses import Health"),
        ("server/assembly.py", "from topics.api.http import Request\nimport topics.storage.fs"),
        ("cli/main.py", "from topics.server.lifecycle import serve\nprint('hello')\nopen('x')"),
        ("bench/empty_handler.py", "from topics.api.protocol import HttpProtocol\nimport time, socket"),
        ("clock.py", "import time\ntime.time_ns()"),
        ("cli/inspect.py", "from datetime import UTC, datetime\ndatetime.fromtimestamp(1, UTC)"),
        ("testing/simulated_server.py", "from topics.server.assembly import assemble_core"),
        ("api/websocket.py", "from websockets.frames import Frame\nfrom websockets.protocol import Protocol"),
        ("delivery/watch_stream.py", "from topics.wire.render import tombstone"),
        ("storage/fs.py", "import os\nos.open('x', 0)\nopen('x')"),
        ("server/settings.py", "import os\nos.environ\nos.cpu_count()"),
        ("api/protocol.py", "import asyncio, socket\nasyncio.Protocol"),
        ("delivery/long_poll.py", "import asyncio\nasyncio.Event()\nasyncio.sleep(0)"),
        ("wire/render.py", "from typing import Protocol\nfrom http import HTTPStatus\nfrom urllib.parse import quote"),
        ("api/encoding.py", "from email.utils import formatdate\nformatdate(7, usegmt=True)"),
        ("engine/engine.py", "x = 1\n" * LINES_MAX),
    ],
)
def test_what_is_allowed_is_left_alone(file: str, source: str) -> None:
    assert list(violations(file, source)) == []
