"""How far a roll-up got, for a run that finds nothing new: which groups are open, and up to when windows are closed.

Spark reports it with every batch, so a run without a batch has nothing to go by. It is therefore noted beside the
query's checkpoint, together with the batch it belongs to. A killed run leaves an older note, which is then ignored.
"""

import os

import msgspec
from msgspec import Struct

PLACE_FILE = "place.json"


class Place(Struct, frozen=True):
    """After batch `batch`, -1 before the first. None: not known."""

    batch: int
    open_groups: int | None
    watermark: str | None


def read_place(directory: str, query_directory: str) -> Place:
    """`query_directory` is Spark's own checkpoint, which has a file for each batch it has finished."""
    batch = _last_batch(query_directory)
    if batch == -1:
        return Place(-1, 0, None)
    path = os.path.join(directory, PLACE_FILE)
    if os.path.exists(path):
        with open(path, "rb") as file:
            noted = msgspec.json.decode(file.read(), type=Place)
        if noted.batch == batch:
            return noted
    return Place(batch, None, None)


def write_place(directory: str, place: Place) -> None:
    path = os.path.join(directory, PLACE_FILE)
    with open(f"{path}.partial", "wb") as file:
        file.write(msgspec.json.encode(place))
    os.replace(f"{path}.partial", path)


def _last_batch(query_directory: str) -> int:
    commits = os.path.join(query_directory, "commits")
    names = os.listdir(commits) if os.path.isdir(commits) else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)
