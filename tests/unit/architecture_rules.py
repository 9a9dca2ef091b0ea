"""The rules of the house, as functions over source text: who may import whom, and who may touch the outside.

The rooms and their arrows are those of the architecture document. Each rule yields sentences, one for each
violation, and never looks at more than one file.
"""

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

LINES_MAX = 600

LEAVES = {"errors", "limits", "clock", "version"}
# Who a room may import besides itself and the leaves. Nothing imports testing; only cli imports server.
ARROWS: dict[str, set[str]] = {
    "model": set(),
    "wire": {"model"},
    "engine": {"model"},
    "storage": {"model"},
    "delivery": {"engine", "wire", "model"},
    "api": {"delivery", "engine", "wire", "model"},
    "server": {"api", "delivery", "engine", "storage", "wire", "model", "console"},
    "client": {"wire", "model"},
    "console": set(),
    # Spark's reader of files replays a log as a start does: what caps and deletes leave is decided in one place.
    "spark": {"client", "engine", "storage", "wire", "model"},
    "bench": {"api", "client", "wire", "model"},
    "cli": {"server", "bench", "client", "storage", "spark", "model"},
    "testing": {"engine", "storage", "model"},
}
# Files that may import more than their room: a whole server, and live delivery without sockets.
ARROWS_OF_FILES: dict[str, set[str]] = {
    "testing/simulated_server.py": {"server"},
    "testing/live_stage.py": {"delivery"},
    "bench/spark_measurement.py": {"spark"},
}

MAY_READ_TIME = ("clock.py", "bench/")
# Turn a time they were given into another form, and do not ask what time it is.
MAY_SHOW_TIMES = ("cli/", "spark/pushdown.py")
MAY_OPEN_FILES = ("storage/fs.py", "server/port_file.py", "bench/", "cli/", "spark/")
MAY_USE_SOCKETS = ("api/protocol.py", "api/connections.py", "api/channel.py", "server/", "bench/", "client/")
MAY_SPEAK_WEBSOCKET = ("api/websocket.py", "api/handlers/websocket.py")
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


def violations(file: str, source: str) -> Iterator[str]:
    """Every rule broken by `source`, which is the file `file` of the package, such as "engine/topic.py"."""
    tree = ast.parse(source)
    yield from against_the_arrows(file, tree)
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


def against_the_arrows(file: str, tree: ast.AST) -> Iterator[str]:
    parts = PurePosixPath(file).parts
    room = parts[0].removesuffix(".py")
    if len(parts) == 1:
        allowed = LEAVES
    elif room in ARROWS:
        allowed = LEAVES | ARROWS[room] | ARROWS_OF_FILES.get(file, set()) | {room}
    else:
        yield f"{file}: {room} is a room no arrow leads to"
        return
    for module in imported(tree):
        if module.startswith("."):
            yield f"{file}: imports relatively"
        elif module.split(".")[0] == "topics":
            other = [*module.split("."), ""][1]
            if other not in allowed:
                yield f"{file}: {room} must not import {module}"


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
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield f"{'.' * node.level}{node.module or ''}.{alias.name}"


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def attributes(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Every `name.attribute`, with the line it is on; the name is empty where it is an expression."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.value.id if isinstance(node.value, ast.Name) else "", node.attr, node.lineno
