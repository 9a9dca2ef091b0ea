"""Checks that a topic is the one in the archive. Its name proves little: another server may use the same one.

The id of its data directory identifies a server, if both sides have one. On one server, the epoch tells a topic from a
later one of the same name. There may be no ids, or one backup may have been restored twice: so the last archived record
is looked up, too, and if it is still in the topic, it must be the same.
"""

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_hexdigest

from topics.spark.archive.errors import ArchiveOfAnotherServer
from topics.spark.archive.place import Place
from topics.spark.archive.rows import require_file, rows_of
from topics.spark.archive.state import ArchiveState
from topics.spark.log import Log
from topics.spark.offsets import Gap, Position, SeqRange


def require_same_server(root: str, state: ArchiveState, log: Log) -> None:
    """Raises `ArchiveOfAnotherServer` if both sides have an id and they differ."""
    if not state.server_id:
        return
    here = log.server_id()
    if here and here != state.server_id:
        raise ArchiveOfAnotherServer(root, "another server", f"its id is {state.server_id}, but this one's is {here}")


def require_same_topic(root: str, state: ArchiveState, log: Log, topic: str, head: Position) -> None:
    """Raises `ArchiveOfAnotherServer` if the archive has another topic of this name."""
    cut = state.topics.get(topic)
    if cut is None:
        return
    name = f'another topic "{topic}", of another server, or deleted and recreated'
    if cut.epoch != head.epoch:
        raise ArchiveOfAnotherServer(root, name, f"epoch {cut.epoch}, and this one has {head.epoch}")
    if cut.to_seq > head.seq:
        raise ArchiveOfAnotherServer(root, name, f"archived up to seq {cut.to_seq}, and this one ends at {head.seq}")
    files = state.files_of(topic)
    if not files:
        return
    place, last = Place.of(root), files[-1].last_seq
    wanted = SeqRange(topic, head.epoch, last - 1, last)
    for share in log.plan([wanted], 1, None):
        for found in log.read(share):
            if isinstance(found, Gap):
                continue
            for seq, ts, _, _, data, _ in found.rows():
                archived = _record_at(place, require_file(place, files[-1]), last)
                if seq == last and (ts, xxh3_64_hexdigest(data.encode())) != archived:
                    raise ArchiveOfAnotherServer(root, name, f"seq {seq} is another record")


@lru_cache(maxsize=1024)
def _record_at(place: Place, path: str, seq: int) -> tuple[int, str]:
    """Time and digest of a record. Files never change, so the answer can be cached forever."""
    [batch] = rows_of(place, path, seq, seq, ("seq", "ts", "data"))
    ts = pc.cast(pc.cast(batch.column("ts"), pa.timestamp("ms", "UTC")), pa.int64())[0].as_py()
    return ts, xxh3_64_hexdigest(batch.column("data")[0].as_py().encode())
