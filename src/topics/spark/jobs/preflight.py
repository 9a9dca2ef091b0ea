"""Checks made before Spark starts: Spark would take seconds and a hundred lines to say no."""

import os
import re
import tempfile
from collections.abc import Iterable

from topics.client.retries import RetryPolicy
from topics.client.sync_client import Client
from topics.errors import TopicNotFound
from topics.model.names import is_topic_name
from topics.spark.errors import InvalidOption
from topics.spark.options import Server, server_of

# One quick try: if the server is just starting, run the job again.
QUICK = RetryPolicy(attempts_max=2, total_ms_max=2000)
TYPES = frozenset((
    "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double",
    "decimal", "dec", "numeric", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "string", "char",
    "character", "varchar", "binary", "interval", "variant", "void", "array", "map", "struct", "geometry", "geography",
))  # fmt: skip
_COLUMN = re.compile(r"(?P<name>`(?:[^`]|``)+`|[^\s:`]+)\s*(?::\s*|\s+)(?P<type>[A-Za-z_]+)")


def reachable_server(url: str, api_key: str | None) -> Server:
    """Raises `InvalidOption` for a malformed address, `ServerUnreachable`, or the server's refusal of the key."""
    server = server_of(url, api_key)
    with _client(server) as client:
        next(client.topics(), None)
    return server


def require_writable(path: str, option: str) -> None:
    """Raises `InvalidOption` if no directory can be made at `path`, or no file in it. It tries, because permissions say
    nothing about read-only mounts and special file systems. Leaves nothing behind."""
    parent = os.path.abspath(path)
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".topics-", dir=parent))
    except OSError as error:
        raise InvalidOption(option, f"{path}: nothing can be written in {parent} ({error.strerror})") from None


def require_topics(server: Server, topics: Iterable[str]) -> None:
    """Raises `InvalidOption` for an invalid name, and `TopicNotFound`."""
    with _client(server) as client:
        for topic in topics:
            if not is_topic_name(topic):
                raise InvalidOption("topic", f"{topic[:80]!r} is not a topic name")
            client.topic(topic)


def topics_with_prefix(server: Server, prefix: str) -> list[str]:
    """Raises `TopicNotFound` if no topic has this prefix."""
    with _client(server) as client:
        names = [listed.topic for listed in client.topics(prefix)]
    if not names:
        raise TopicNotFound(f"{prefix}*")
    return names


def _client(server: Server) -> Client:
    key = None if server.api_key is None else server.api_key.reveal()
    return Client(server.url, key, policy=QUICK)


def require_types(schema: str) -> None:
    """Checks columns as in SQL, such as `sku string, total decimal(9,2)`. Raises `InvalidOption` for a column without a
    type or with an unknown one. Spark has the last word: anything doubtful passes."""
    for column in _columns(schema):
        found = _COLUMN.match(column)
        if found is None or found["type"].lower() not in TYPES:
            raise InvalidOption(
                "schema",
                f"{schema!r} is not a schema: {column!r} is not a column with its type; "
                "give columns such as 'sku string, total bigint'",
            )


def _columns(schema: str) -> list[str]:
    """Splits at commas outside brackets and quotes."""
    columns, depth, quote, begin = [], 0, "", 0
    for at, char in enumerate(schema):
        if quote:
            quote = "" if char == quote else quote
        elif char in "`'\"":
            quote = char
        elif char in "<(":
            depth += 1
        elif char in ">)":
            depth -= 1
        elif char == "," and depth == 0:
            columns.append(schema[begin:at].strip())
            begin = at + 1
    return [*columns, schema[begin:].strip()]
