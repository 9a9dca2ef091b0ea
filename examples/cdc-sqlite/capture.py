"""Changes of a SQLite table into a topic: capture.py setup|once|run DATABASE TABLE, see README.md."""

import contextlib
import json
import os
import sqlite3
import sys
import time

from topics import Client

URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
BATCH = 1000
PAUSE_S = 0.5


def setup(database: sqlite3.Connection, table: str) -> None:
    """The first column is the key. May be run again."""
    columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
    if not columns:
        sys.exit(f"there is no table {table}")

    def row(which: str) -> str:
        pairs = (f"'{column}', {which}.\"{column}\"" for column in columns)
        return f"json_object({', '.join(pairs)})"

    changes = f'"{table}_changes"'
    database.execute(f"CREATE TABLE IF NOT EXISTS {changes} (id INTEGER PRIMARY KEY AUTOINCREMENT, op, key, row)")
    for op, which in (("insert", "new"), ("update", "new"), ("delete", "old")):
        database.execute(
            f'CREATE TRIGGER IF NOT EXISTS "{table}_{op}" AFTER {op} ON "{table}" BEGIN '
            f"INSERT INTO {changes} (op, key, row) VALUES ('{op}', {which}.\"{columns[0]}\", {row(which)}); END"
        )
    database.commit()


def capture(database: sqlite3.Connection, client: Client, table: str) -> int:
    """Captures what is new; returns how much that was."""
    topic, name = f"cdc.{table}", f"sqlite:{table}"
    client.create(topic, durability="fsync")
    captured = 0
    with client.producer(topic, name) as producer:
        while True:
            known = client.producer_state(topic, name).next_sequence
            rows = database.execute(
                f'SELECT op, key, row FROM "{table}_changes" ORDER BY id LIMIT ? OFFSET ?', (BATCH, known)
            ).fetchall()
            if not rows:
                return captured
            for op, key, row in rows:
                producer.append({"op": op, "row": json.loads(row)}, tag=str(key))
            producer.flush()
            captured += len(rows)


def main(command: str, path: str, table: str) -> None:
    database = sqlite3.connect(path)
    if command == "setup":
        setup(database, table)
        return
    with Client(URL) as client:
        print(capture(database, client, table), "changes")
        while command == "run":
            time.sleep(PAUSE_S)
            capture(database, client, table)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in {"setup", "once", "run"}:
        sys.exit(__doc__)
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
