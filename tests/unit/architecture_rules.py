"""The rules of the house, as functions over source text: who may import whom, and who may touch the outside.

Who may import whom is read from the table in the architecture document, and only there. Each rule yields sentences, one
for each violation, and never looks at more than one file.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from import_graph import PACKAGE, imported_names

LINES_MAX = 600

TABLE_HEADING = "| room | may import |"
TABLE_IN = "the table of docs/architecture.md"

MAY_READ_TIME = ("clock.py", "bench/")
# Turn a time they were given into another form, and do not ask what time it is.
MAY_SHOW_TIMES = ("cli/", "spark/pushdown.py", "spark/json_times.py", "spark/option_values.py")
MAY_OPEN_FILES = (
    "storage/fs.py",
    "server/port_file.py",
    "server/key_file.py",
    "bench/",
    "cli/",
    "spark/",
    "testing/running_server.py",
)
MAY_USE_SOCKETS = ("api/protocol.py", "api/connections.py", "api/channel.py", "server/", "bench/", "client/")
MAY_SPEAK_WEBSOCKET = ("api/websocket.py", "api/handlers/websocket.py")
FACE = "client"  # what the package offers under its own name: from topics import Client
MAY_PRINT = ("cli/", "bench/")

TIME_MODULES = {"time", "datetime"}
CLOCKS_OF_DATETIME = {"now", "utcnow", "today"}
FILE_MODULES = {"pathlib", "shutil", "tempfile", "io", "mmap", "fcntl", "glob"}
OS_FILE_FUNCTIONS = {
    "open", "fdopen", "read", "write", "pread", "pwrite", "writev", "fsync", "fdatasync", "ftruncate", "truncate",
    "replace", "rename", "remove", "unlink", "mkdir", "makedirs", "rmdir", "removedirs", "link", "symlink",
    "listdir", "scandir", "walk", "stat", "lstat", "chmod", "utime", "path",
}  # fmt: skip
SOCKET_MODULES = {"socket", "ssl", "selectors", "select", "socketserver", "http", "urllib.request", "uvloop"}
WEBSOCKETS_WITHOUT_IO = {"websockets.frames", "websockets.protocol", "websockets.utils"}
SOCKET_NAMES = {
    "Protocol", "BufferedProtocol", "Transport", "BaseTransport", "DatagramProtocol", "StreamReader", "StreamWriter",
    "create_server", "create_connection", "start_server", "open_connection", "create_unix_server",
}  # fmt: skip
NOT_SOCKETS = {"http.HTTPStatus"}  # a table of numbers


class Arrows(NamedTuple):
    """Who may import whom. A room is a folder of the package: "api", "api/handlers"; a leaf is a module at its top."""

    leaves: frozenset[str]
    rooms: Mapping[str, Mapping[str, frozenset[str]]]
    """By room, the rooms it may import, and the files that alone may; none are named where all may."""

    def room_of(self, module: str) -> str:
        """The room a module, or a name in one, is in; a leaf stands for itself, and so does what no row is about."""
        parts = module.split(".")[1:]
        for length in range(len(parts), 0, -1):
            room = "/".join(parts[:length])
            if room in self.rooms:
                return room
        return parts[0] if parts else ""


def arrows_of(document: str) -> Arrows:
    """The arrows of a document that has the table. Raises `ValueError` with what is wrong with it."""
    _, heading, behind = document.partition(f"\n{TABLE_HEADING}\n|---|---|\n")
    if not heading:
        raise ValueError(f"there is no table with the heading {TABLE_HEADING}")
    leaves: set[str] = set()
    rooms: dict[str, dict[str, frozenset[str]]] = {}
    for row in behind.partition("\n\n")[0].splitlines():
        named, _, allowed = row.strip("|").partition("|")
        for name in re.findall(r"`([^`]+)`", named):
            if name in rooms or name in leaves:
                raise ValueError(f"{name} has two rows")
            if name.endswith(".py"):
                leaves.add(name.removesuffix(".py"))
            else:
                rooms[name] = {
                    other: frozenset(re.findall(r"`([^`]+\.py)`", note))
                    for other, note in re.findall(r"`([^`]+)`(?: \(([^)]*)\))?", allowed)
                }
    for room, others in rooms.items():
        for other in others.keys() - rooms.keys():
            raise ValueError(f"{room} may import {other}, which has no row")
    return Arrows(frozenset(leaves), rooms)


def not_in_the_table(arrows: Arrows, files: Iterable[str]) -> Iterator[str]:
    """Rooms and leaves the table does not have, and those that only the table has."""
    homes = {_home(file) for file in files if file != "__init__.py"}
    told = set(arrows.rooms) | {f"{leaf}.py" for leaf in arrows.leaves}
    yield from (f"{home} has no row in {TABLE_IN}" for home in sorted(homes - told))
    yield from (f"{home} is in {TABLE_IN}, and nowhere else" for home in sorted(told - homes))


def _home(file: str) -> str:
    """The room a file is in; a file at the top of the package stands for itself."""
    parent = PurePosixPath(file).parent.as_posix()
    return file if parent == "." else parent


def violations(file: str, source: str, arrows: Arrows) -> Iterator[str]:
    """Every rule broken by `source`, which is the file `file` of the package, such as "engine/topic.py"."""
    tree = ast.parse(source)
    yield from against_the_arrows(file, tree, arrows)
    if not file.startswith(MAY_READ_TIME):
        yield from reads_time(file, tree)
    if not file.startswith(MAY_OPEN_FILES):
        yield from opens_files(file, tree)
    if not file.startswith(MAY_USE_SOCKETS):
        yield from uses_sockets(file, tree)
    if not file.startswith(MAY_PRINT):
        yield from prints(file, tree)
    lines = source.count("\n")
    if lines > LINES_MAX:
        yield f"{file}: {lines} lines; {LINES_MAX} is too long"


def against_the_arrows(file: str, tree: ast.AST, arrows: Arrows) -> Iterator[str]:
    home = _home(file)
    allowed = set(arrows.leaves)
    if home in arrows.rooms:
        name = PurePosixPath(file).name
        allowed |= {room for room, only in arrows.rooms[home].items() if not only or name in only} | {home}
    elif home == "__init__.py":
        allowed.add(FACE)
    elif home.removesuffix(".py") not in arrows.leaves:
        yield f"{file}: {home} has no row in {TABLE_IN}"
        return
    for found in imported_names(tree):
        if found.name.startswith("."):
            yield f"{file}:{found.line}: imports relatively"
        elif found.name.split(".")[0] == PACKAGE and arrows.room_of(found.name) not in allowed:
            yield f"{file}:{found.line}: must not import {found.name}"


def reads_time(file: str, tree: ast.AST) -> Iterator[str]:
    for module in imported(tree):
        package = module.split(".")[0]
        if package in TIME_MODULES and not (package == "datetime" and file.startswith(MAY_SHOW_TIMES)):
            yield f"{file}: imports {module}; only clock.py reads time"
    for call in calls(tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr in CLOCKS_OF_DATETIME:
            yield f"{file}:{call.lineno}: calls .{call.func.attr}(); only clock.py reads time"
        # loop.time(), formatdate() without a time: clocks in disguise.
        if isinstance(call.func, ast.Attribute) and call.func.attr == "time" and not call.args:
            yield f"{file}:{call.lineno}: calls .time(); only clock.py reads time"
        if isinstance(call.func, ast.Name) and call.func.id == "formatdate" and not call.args:
            yield f"{file}:{call.lineno}: calls formatdate() without a time; only clock.py reads time"


def opens_files(file: str, tree: ast.AST) -> Iterator[str]:
    for module in imported(tree):
        if module.split(".")[0] in FILE_MODULES:
            yield f"{file}: imports {module}; files are touched elsewhere"
        if module.startswith("os.") and module.split(".")[1] in OS_FILE_FUNCTIONS:
            yield f"{file}: imports {module}; files are touched elsewhere"
    for call in calls(tree):
        if isinstance(call.func, ast.Name) and call.func.id == "open":
            yield f"{file}:{call.lineno}: opens a file; files are touched elsewhere"
    for name, attribute, line in attributes(tree):
        if name == "os" and attribute in OS_FILE_FUNCTIONS:
            yield f"{file}:{line}: uses os.{attribute}; files are touched elsewhere"


def uses_sockets(file: str, tree: ast.AST) -> Iterator[str]:
    for module in imported(tree):
        packages = {module, module.split(".")[0], module.rpartition(".")[0]}
        if module not in NOT_SOCKETS and packages & SOCKET_MODULES and module != "urllib.parse":
            yield f"{file}: imports {module}; sockets are touched elsewhere"
        if module.split(".")[0] == "websockets" and not (
            file in MAY_SPEAK_WEBSOCKET and module.rpartition(".")[0] in WEBSOCKETS_WITHOUT_IO
        ):
            yield f"{file}: imports {module}; only the parts without I/O are used, and only where WebSocket is spoken"
        if module.startswith("asyncio.") and module.split(".")[1] in SOCKET_NAMES:
            yield f"{file}: imports {module}; sockets are touched elsewhere"
    for _, attribute, line in attributes(tree):
        if attribute in SOCKET_NAMES:
            yield f"{file}:{line}: uses {attribute}; sockets are touched elsewhere"


def prints(file: str, tree: ast.AST) -> Iterator[str]:
    for call in calls(tree):
        if isinstance(call.func, ast.Name) and call.func.id == "print":
            yield f"{file}:{call.lineno}: prints; only the command line does"


def imported(tree: ast.AST) -> Iterator[str]:
    """Every imported module, with the imported name where there is one: `from a.b import c` is a.b.c."""
    return (found.name for found in imported_names(tree))


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def attributes(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Every `name.attribute`, with the line it is on; the name is empty where it is an expression."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.value.id if isinstance(node.value, ast.Name) else "", node.attr, node.lineno
