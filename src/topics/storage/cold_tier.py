"""Who owns a cold tier. One data directory does, and nobody else reads, writes or removes anything there.

    <data dir>/meta/cold             the id of its cold tier
    <cold dir>/OWNER                 the same id, and the last start that used it
    <cold dir>/topics/<id>/OWNER     the same id, for the segments beside it
    <cold dir>/LOCK                  held by the running server

Each but the lock is one line: the id as 32 hexadecimal digits, a start (or 0), and the XXH3-64 of both, with spaces
between them and a newline at the end. They are whole or not there; anything else is damage.

The id is made when a server first uses a cold directory, and it is in no backup: what is restored has none, gets
another one with a cold directory of its own, and can never take the cold tier of the server it was copied from.

`start` is the number of the last process that wrote there. A data directory that has seen fewer is an older copy, made
by other means than `topics backup`: what the newer one has put there it would take for orphans.

    meta/cold    OWNER      the cold directory has segments     a start
    none         none       no                                  makes an id; both are written
    none         none       yes                                 refuses if the data directory is new, else makes an id
    none         any                                            refuses
    X            X                                              goes on, unless OWNER has seen a later start
    X            Y                                              refuses
    X            none       no, or all are named X              writes OWNER again
    X            none       of nobody or of others              refuses

While the server runs OWNER is read again before anything is written or removed: the volume may be gone by then, and
what is below its mount point is not the cold tier.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from xxhash import xxh3_64_hexdigest

from topics.storage import paths
from topics.storage.errors import ColdTierNotOurs, CorruptFile, failing_as
from topics.storage.fs import Disk, replace_file

_LINE = re.compile(rb"(([0-9a-f]{32}) ([0-9]{1,20})) ([0-9a-f]{16})\n")


class Owner(NamedTuple):
    owner: str
    start: int


def encode_owner(owner: Owner) -> bytes:
    text = f"{owner.owner} {owner.start}"
    return f"{text} {xxh3_64_hexdigest(text.encode())}\n".encode()


def read_owner(disk: Disk, directory: str) -> Owner | None:
    """The owner of a cold directory, or of a topic's directory in it; None if it names nobody. Raises `CorruptFile`."""
    return _read(disk, paths.owner_path(directory))


def _read(disk: Disk, path: str) -> Owner | None:
    if not disk.exists(path):
        return None
    found = _LINE.fullmatch(disk.read(path))
    if found is None or xxh3_64_hexdigest(found[1]) != found[4].decode():
        raise CorruptFile(path, 0, "it does not say whose cold tier this is")
    return Owner(found[2].decode(), int(found[3]))


class ColdTier:
    """The cold directory of a data directory. `root` is empty when there is none: then nothing is ever refused."""

    __slots__ = ("_disk", "_hot_root", "_id", "root")

    def __init__(self, disk: Disk, hot_root: str, cold_root: str) -> None:
        self._disk = disk
        self._hot_root = hot_root
        self.root = cold_root
        self._id: str | None = None

    # Asking

    def check(self) -> None:
        """Raises `ColdTierNotOurs` if it is known to be another's. For readers, and before anything is changed."""
        if not self.root:
            return
        ours, owner = self._known_id(), read_owner(self._disk, self.root)
        if owner is None and ours is not None:
            raise ColdTierNotOurs(
                self.root, f"it has no {paths.OWNER}. If its volume is not mounted, mount it: nothing was changed there"
            )
        if owner is not None and owner.owner != ours:
            raise self._of_another(owner.owner)

    def check_topic(self, topic_id: int) -> None:
        """Raises `ColdTierNotOurs` if the segments of this topic there are another's."""
        if self.root:
            directory = paths.topic_dir(self.root, topic_id)
            owner = read_owner(self._disk, directory)
            if owner is not None and owner.owner != self._known_id():
                raise ColdTierNotOurs(
                    directory,
                    f"it belongs to another data directory than {self._hot_root} (its owner is {owner.owner}). "
                    "Put the segments of this one back from a backup",
                )

    def names_us(self, topic_id: int) -> bool:
        """Whether the segments of this topic there say that they are ours."""
        owner = read_owner(self._disk, paths.topic_dir(self.root, topic_id))
        return owner is not None and owner.owner == self._known_id()

    def check_start(self, start: int | None) -> None:
        """Raises `ColdTierNotOurs` if a server must not start with it. `start`: how many processes have written to the
        data directory; None while that is not known."""
        if not self.root:
            return
        ours, owner = self._known_id(), read_owner(self._disk, self.root)
        if owner is not None:
            self.check()
            if start is not None and owner.start > start:
                raise ColdTierNotOurs(
                    self.root,
                    f"a newer copy of {self._hot_root} has used it since (start {owner.start}, and this one has seen "
                    f"{start}). Start that copy; or name an empty TOPICS_COLD_DIR and restore a backup",
                )
            return
        found = [topic_id for topic_id in self._topic_ids() if not (ours and self.names_us(topic_id))]
        if found and (ours or self._data_directory_is_new() or any(map(self._names_anybody, found))):
            raise ColdTierNotOurs(
                self.root,
                f"it has segments that do not belong to {self._hot_root}. If the volume of the data directory is not "
                "mounted, mount it; for a new server name an empty TOPICS_COLD_DIR",
            )

    # Claiming

    def claim(self, start: int, new_id: Callable[[], str]) -> None:
        """Names the data directory the owner; durable when it returns. After `check_start`."""
        if not self.root:
            return
        path = paths.cold_id_path(self._hot_root)
        with failing_as(self.root, "claiming the cold tier"):
            if self._known_id() is None:
                self._id = new_id()
                self._disk.make_dir(paths.meta_dir(self._hot_root))
                replace_file(self._disk, path, encode_owner(Owner(self._id, 0)))
            self._name(self.root, start)

    def claim_topic(self, topic_id: int) -> str:
        """The directory for a topic's segments there, created if necessary, and marked as ours."""
        self.check()
        self.check_topic(topic_id)
        directory = paths.topic_dir(self.root, topic_id)
        if not self.names_us(topic_id):
            self._disk.make_dir(directory)
            self._name(directory, 0)
        return directory

    def _name(self, directory: str, start: int) -> None:
        owner = self._known_id()
        assert owner is not None, "claim it first"
        replace_file(self._disk, paths.owner_path(directory), encode_owner(Owner(owner, start)))

    def _known_id(self) -> str | None:
        if self._id is None:
            known = _read(self._disk, paths.cold_id_path(self._hot_root))
            self._id = None if known is None else known.owner
        return self._id

    def _topic_ids(self) -> list[int]:
        names = map(paths.parse_topic_name, self._disk.list_dir(paths.topics_dir(self.root)))
        return [topic_id for topic_id in names if topic_id is not None]

    def _names_anybody(self, topic_id: int) -> bool:
        return read_owner(self._disk, paths.topic_dir(self.root, topic_id)) is not None

    def _data_directory_is_new(self) -> bool:
        return not any(self._disk.list_dir(of(self._hot_root)) for of in (paths.meta_dir, paths.wal_dir))

    def _of_another(self, owner: str) -> ColdTierNotOurs:
        if self._data_directory_is_new():
            state = f"and {self._hot_root} is empty"
            advice = "If the volume of the data directory is not mounted, mount it; for a new server"
        else:
            state = f"and not to {self._hot_root}"
            advice = "If a setting is wrong, correct it; for a new or restored data directory"
        return ColdTierNotOurs(
            self.root,
            f"it belongs to another data directory (its owner is {owner}), {state}. {advice} name an empty "
            "TOPICS_COLD_DIR",
        )
