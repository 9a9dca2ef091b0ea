"""Workers that make pictures smaller: resize.py sample|add|work, see README.md."""

import os
import sys
from pathlib import Path

from topics import Client

URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
QUEUE = "resize"


def prepare(client: Client) -> None:
    client.create(QUEUE, type="queue", durability="fsync", max_deliveries=3, dead_letter=f"{QUEUE}.dead")


def add(client: Client, source: str, target: str, width: int) -> None:
    job = {"source": source, "target": target, "width": width}
    client.append(QUEUE, job, key=f"{source}>{target}@{width}")


def work(client: Client, **options: object) -> object:
    """Until SIGINT or SIGTERM; with `drain=True` until there is nothing left to do."""
    worker = client.worker(QUEUE, concurrency=4, **options)

    @worker
    def resize(job):
        target = Path(job.data["target"])
        unfinished = target.with_name(f"{target.name}.{job.seq}.tmp")
        unfinished.write_bytes(resized(Path(job.data["source"]).read_bytes(), job.data["width"]))
        unfinished.replace(target)

    return resize.run()


def resized(picture: bytes, width: int) -> bytes:
    """A PPM picture (P6, 8 bits) of this width; each pixel is the nearest of the original."""
    kind, size, depth, pixels = picture.split(b"\n", 3)
    if (kind, depth) != (b"P6", b"255"):
        raise ValueError("not a PPM picture (P6, 255)")
    old_width, old_height = map(int, size.split())
    height = max(1, old_height * width // old_width)
    rows = []
    for y in range(height):
        row = y * old_height // height * old_width
        columns = (row + x * old_width // width for x in range(width))
        rows.append(b"".join(pixels[3 * at : 3 * at + 3] for at in columns))
    return b"P6\n%d %d\n255\n%b" % (width, height, b"".join(rows))


def sample(width: int, height: int) -> bytes:
    pixels = bytes(
        part for y in range(height) for x in range(width) for part in (255 * x // width, 255 * y // height, 128)
    )
    return b"P6\n%d %d\n255\n%b" % (width, height, pixels)


def main(command: str, *arguments: str) -> None:
    if command == "sample":
        Path(arguments[0]).write_bytes(sample(320, 200))
        return
    with Client(URL) as client:
        prepare(client)
        if command == "add":
            source, target, width = arguments
            add(client, source, target, int(width))
        elif command == "work":
            print(work(client))
        else:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["help"]))
