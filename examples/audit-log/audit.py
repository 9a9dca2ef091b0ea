"""A log nobody can change unnoticed: audit.py record WHO WHAT | show [WHO] | seal | check FILE, see README.md."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from topics import Client, Gap

URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
TOPIC = "audit"


def prepare(client: Client) -> None:
    client.create(TOPIC, durability="fsync", cap_records=0, cap_bytes=0, ttl_ms=0)


def record(client: Client, who: str, what: str) -> int:
    """Returns the entry's seq once it is on disk."""
    return client.append(TOPIC, {"who": who, "what": what}, tag=f"who:{who}").first_seq


def entries(client: Client, through_seq: int | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Seq, time and exact bytes of every entry."""
    for each in client.export(TOPIC, to_seq=through_seq):
        yield each.seq, each.ts, bytes(each.data)


def seal(client: Client, through_seq: int | None = None) -> dict[str, object]:
    """A hash over the entries so far, and how far that is."""
    digest = hashlib.sha256()
    last_seq = count = 0
    for seq, ts, data in entries(client, through_seq):
        digest.update(b"%d %d %d " % (seq, ts, len(data)) + data)
        last_seq, count = seq, count + 1
    return {"through_seq": last_seq, "entries": count, "sha256": digest.hexdigest()}


def problems(client: Client, sealed: dict[str, object]) -> list[str]:
    """What is wrong with the entries the seal is about; nothing if they are as they were."""
    found = [
        f"entries {gap.first} to {gap.last} were lost ({gap.reason})"
        for gap in client.read(TOPIC, follow=False)
        if isinstance(gap, Gap)
    ]
    now = seal(client, int(str(sealed["through_seq"])))
    if now != sealed:
        found.append(f"{sealed['entries']} entries were sealed, and the {now['entries']} there now are not the same")
    return found


def main(command: str, *arguments: str) -> int:
    with Client(URL) as client:
        prepare(client)
        if command == "record":
            print(record(client, *arguments))
        elif command == "show":
            for seq, ts, data in entries(client):
                entry = json.loads(data)
                if not arguments or entry["who"] == arguments[0]:
                    print(seq, ts, entry["who"], entry["what"])
        elif command == "seal":
            print(json.dumps(seal(client)))
        elif command == "check":
            found = problems(client, json.loads(Path(arguments[0]).read_text()))
            print("\n".join(found) or "as it was sealed")
            return bool(found)
        else:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["help"])))
