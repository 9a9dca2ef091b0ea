"""A checkout of which only as much is there as a server's start needs."""

from pathlib import Path

# Says where it listens, as a server does.
LISTENING = """
server = HTTPServer(("127.0.0.1", 0), Handler)
with open(os.environ["TOPICS_PORT_FILE"] + ".new", "w") as file:
    file.write("127.0.0.1:%d" % server.server_port)
os.rename(file.name, os.environ["TOPICS_PORT_FILE"])
server.serve_forever()
"""


def make_checkout(root: Path, handler: str) -> Path:
    """`handler` is the source of a module with the class `Handler`."""
    package = root / "src" / "topics" / "cli"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "main.py").write_text(handler + LISTENING)
    return root
