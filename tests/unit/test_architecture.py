"""The rules of the house hold in every file, and the rules themselves catch what they are for."""

import re
from pathlib import Path

import pytest
from architecture_rules import LINES_MAX, arrows_of, not_in_the_table, violations
from class_sizes import METHODS_MAX, method_counts, too_large
from import_graph import ImportGraph

import topics

PACKAGE = Path(topics.__file__).parent
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
ARROWS = arrows_of((Path(__file__).parents[2] / "docs/architecture.md").read_text())
GRAPH = ImportGraph(SOURCES)
TESTS = Path(__file__).parents[1]

# The lists of what breaks a rule today may only shrink: what is mended has to leave its list in the same change.

CYCLES: list[list[str]] = []
# Cycles that are closed only by imports under TYPE_CHECKING.
CYCLES_OF_TYPES: list[list[str]] = []
# Classes with more than METHODS_MAX methods, those of their bases included.
LARGE_CLASSES: dict[str, int] = {}


def test_the_files_are_found() -> None:
    assert {"clock.py", "engine/engine.py", "api/handlers/records.py"} <= set(SOURCES)


@pytest.mark.parametrize("file", SOURCES)
def test_a_file_keeps_the_rules(file: str) -> None:
    assert list(violations(file, SOURCES[file], ARROWS)) == []


def test_the_table_has_every_room_and_no_other() -> None:
    assert list(not_in_the_table(ARROWS, SOURCES)) == []


def test_no_import_leads_back() -> None:
    found = GRAPH.cycles(with_types=False)
    assert found == CYCLES, [GRAPH.within(group) for group in found if group not in CYCLES]


def test_no_import_for_types_leads_back() -> None:
    found = [group for group in GRAPH.cycles(with_types=True) if group not in CYCLES]
    assert found == CYCLES_OF_TYPES, [GRAPH.within(group) for group in found if group not in CYCLES_OF_TYPES]


def test_no_file_of_tests_is_too_long() -> None:
    lengths = {path.relative_to(TESTS): path.read_text().count("\n") for path in TESTS.rglob("*.py")}
    assert [path for path, lines in lengths.items() if lines > LINES_MAX] == []


def test_no_class_is_too_large() -> None:
    assert list(too_large(method_counts(SOURCES), LARGE_CLASSES)) == []


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
        ("engine/engine.py", "if TYPE_CHECKING:\n    from topics.api.http import Request"),
        ("utilities/strings.py", ""),
        ("utilities.py", ""),
        ("api/handlers/archived/records.py", ""),
        ("api/application.py", "from topics.api.handlers.records import RecordHandlers"),
        ("api/handlers/records.py", "from topics.server.settings import Settings"),
        ("spark/options.py", "from topics.spark.jobs import archive"),
        ("spark/options.py", "import topics.spark.jobs.archive"),
        ("spark/jobs/archive.py", "from topics.engine.engine import Engine"),
        ("bench/load.py", "from topics.spark.options import Filters"),
        ("cli/main.py", "from importlib import import_module\nimport_module('topics.testing.fake_disk')"),
        ("engine/engine.py", "import topics"),
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
    assert len(list(violations(file, source, ARROWS))) == 1


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
        ("api/routes.py", "from topics.api.handlers.records import RecordHandlers"),
        ("api/handlers/records.py", "from topics.api.call import Call\nfrom topics.api.handlers import topics"),
        ("spark/jobs/archive.py", "from topics.spark.options import Server"),
        ("cli/main.py", "from importlib import import_module\nimport_module('topics.bench.command')"),
        ("bench/targets.py", "command = ['-m', 'topics.cli.main']"),
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
    assert list(violations(file, source, ARROWS)) == []


TABLE = """
| room | may import |
|---|---|
| `errors.py`, `clock.py` | each other |
| `model` | – |
| `wire` | `model` |
| `wire/old` | `wire` (`old.py`, `oldest.py` only: they translate), `model` (for now) |

More text | with a line.
"""


def test_arrows_are_read_from_the_table() -> None:
    arrows = arrows_of(TABLE)
    assert arrows.leaves == {"errors", "clock"}
    assert arrows.rooms == {
        "model": {},
        "wire": {"model": frozenset()},
        "wire/old": {"wire": {"old.py", "oldest.py"}, "model": frozenset()},
    }


@pytest.mark.parametrize(
    ("written", "instead", "wrong"),
    [
        ("| room | may import |", "| room | imports |", "there is no table with the heading | room | may import |"),
        ("| `model` | – |", "", "wire may import model, which has no row"),
        ("| `model` | – |", "| `wire` | – |", "wire has two rows"),
        ("| `wire` | `model` |", "| `wire` | `models` |", "wire may import models, which has no row"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(written: str, instead: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(wrong)}$"):
        arrows_of(TABLE.replace(f"{written}\n", f"{instead}\n" if instead else ""))


def test_a_room_that_is_missing_in_the_table_is_named() -> None:
    files = ["__init__.py", "errors.py", "clock.py", "model/__init__.py", "wire/render.py", "wire/old/old.py"]
    assert list(not_in_the_table(arrows_of(TABLE), files)) == []
    assert list(not_in_the_table(arrows_of(TABLE), [*files, "wire/new/new.py", "limits.py"])) == [
        "limits.py has no row in the table of docs/architecture.md",
        "wire/new has no row in the table of docs/architecture.md",
    ]
    assert list(not_in_the_table(arrows_of(TABLE), files[:-1])) == [
        "wire/old is in the table of docs/architecture.md, and nowhere else"
    ]


@pytest.mark.parametrize(
    "back",
    [
        "import topics.model.a",
        "from topics.model import a",
        "from topics.model.a import A",
        "def late() -> None:\n    from topics.model.a import A",
        "from importlib import import_module\nimport_module('topics.model.a')",
    ],
)
def test_a_cycle_is_found(back: str) -> None:
    graph = ImportGraph(
        {
            "model/__init__.py": "",
            "model/a.py": "from topics.model.b import B",
            "model/b.py": "import os\nfrom topics.model import c",
            "model/c.py": back,
            "model/d.py": "from topics.model.a import A\nfrom topics.errors import TopicsError",
        }
    )
    assert graph.cycles(with_types=False) == [["topics.model.a", "topics.model.b", "topics.model.c"]]
    assert graph.cycles(with_types=False) == graph.cycles(with_types=True)


@pytest.mark.parametrize("condition", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_a_cycle_that_only_types_close_is_told_apart(condition: str) -> None:
    graph = ImportGraph(
        {
            "model/a.py": "from topics.model.b import B",
            "model/b.py": f"if {condition}:\n    from topics.model.a import A\nelse:\n    from topics.model.c import C",
            "model/c.py": "",
        }
    )
    assert graph.cycles(with_types=False) == []
    assert graph.cycles(with_types=True) == [["topics.model.a", "topics.model.b"]]
    assert graph.within(["topics.model.a", "topics.model.b"]) == [
        "topics.model.a, line 1, imports topics.model.b",
        "topics.model.b, line 2, imports topics.model.a",
    ]


def test_two_cycles_are_two_and_a_package_may_be_in_one() -> None:
    graph = ImportGraph(
        {
            "model/a.py": "import topics.model.b",
            "model/b.py": "import topics.model.a",
            "wire/__init__.py": "from topics.wire.c import C",
            "wire/c.py": "from topics.wire import something",
        }
    )
    assert graph.cycles(with_types=False) == [["topics.model.a", "topics.model.b"], ["topics.wire", "topics.wire.c"]]


def test_methods_are_counted_over_bases() -> None:
    counts = method_counts(
        {
            "model/a.py": "class A:\n"
            "    size: int\n"
            "    def __init__(self): ...\n"
            "    def __len__(self): ...\n"
            "    def one(self): ...\n"
            "    async def two(self): ...\n"
            "    @property\n    def three(self): ...\n"
            "    @three.setter\n    def three(self, value): ...\n"
            "    @staticmethod\n    def _four(): ...\n",
            "model/b.py": "from topics.model.a import A as Parent\n"
            "class B(Parent, Protocol):\n    def one(self): ...\n    def five(self): ...\n",
            "model/c.py": "from topics.model import b\nimport topics.model.a\n"
            "class C(b.B[int]):\n    def six(self): ...\n"
            "class D(topics.model.a.A, C, Exception): ...\n",
        }
    )
    assert counts == {"topics.model.a.A": 5, "topics.model.b.B": 6, "topics.model.c.C": 7, "topics.model.c.D": 7}


@pytest.mark.parametrize(
    ("count", "known", "sentence"),
    [
        (METHODS_MAX + 1, {}, "C has 26 methods; 25 are enough"),
        (METHODS_MAX + 3, {"C": METHODS_MAX + 2}, "C has grown from 27 to 28 methods; it should shrink"),
        (METHODS_MAX + 1, {"C": METHODS_MAX + 2}, "C has shrunk from 27 to 26 methods: write that in the list"),
        (METHODS_MAX, {"C": METHODS_MAX + 2}, "C has 25 methods: take it off the list"),
    ],
)
def test_a_class_that_is_too_large_is_told(count: int, known: dict[str, int], sentence: str) -> None:
    assert list(too_large({"C": count}, known)) == [sentence]


def test_a_class_that_is_gone_leaves_the_list() -> None:
    assert list(too_large({}, {"C": METHODS_MAX + 2})) == ["C has 0 methods: take it off the list"]


def test_a_class_of_the_largest_size_and_a_known_one_are_left_alone() -> None:
    assert list(too_large({"C": METHODS_MAX, "D": METHODS_MAX + 1}, {"D": METHODS_MAX + 1})) == []
