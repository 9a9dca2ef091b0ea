"""Whether a topic is the one an archive has. A name says little: another server has the same names.

A server is known by the id of its data directory, where both sides have one. An epoch tells a topic from a later one of
the same name on one server. Without ids, and for data that was restored twice and went two ways, the last archived
record is looked up: where it is still there, it has to be the same one.
"""

from topics.spark.log import Log
from topics.spark.offsets import Gap, Position, SeqRange
from topics.spark.pipelines.errors import ArchiveOfAnotherServer
from topics.spark.pipelines.manifest import ArchiveState, digest_of


def require_same_server(root: str, state: ArchiveState, log: Log) -> None:
    """Raises `ArchiveOfAnotherServer`. Where one side has no id, nothing can be told."""
    if not state.server_id:
        return
    here = log.server_id()
    if here and here != state.server_id:
        raise ArchiveOfAnotherServer(root, "another server", f"its id is {state.server_id}, and this one's is {here}")


def require_same_topic(root: str, state: ArchiveState, log: Log, topic: str, head: Position) -> None:
    """Raises `ArchiveOfAnotherServer`. A topic that is not archived yet is fine."""
    cut = state.topics.get(topic)
    if cut is None:
        return
    name = f'another topic "{topic}", of another server, or deleted and made anew'
    if cut.epoch != head.epoch:
        raise ArchiveOfAnotherServer(root, name, f"epoch {cut.epoch}, and this one has {head.epoch}")
    if cut.to_seq > head.seq:
        raise ArchiveOfAnotherServer(root, name, f"archived up to seq {cut.to_seq}, and this one ends at {head.seq}")
    if cut.last is None:
        return
    wanted = SeqRange(topic, head.epoch, cut.last.seq - 1, cut.last.seq)
    for share in log.plan([wanted], 1, None):
        for found in log.read(share):
            if isinstance(found, Gap):
                continue
            for seq, ts, _, _, data, _ in found.rows():
                if seq == cut.last.seq and (ts, digest_of(data.encode())) != (cut.last.ts, cut.last.data_xxh3):
                    raise ArchiveOfAnotherServer(root, name, f"seq {seq} is another record")
