"""The write most writes are: one record that nobody waits for, to a topic where nothing has to be decided.

Owns no rule of its own. It does, in a straight line, what `Engine.append` does for such a write, because this is the
hottest code there is: every call and every object left out here is seen in the requests a second. Whatever is out of
the ordinary, a refusal too, is left to `append`; a test gives the same writes to both.
"""

from msgspec import UNSET

from topics.engine.router_operations import RouterOperations
from topics.model.config import Durability
from topics.model.record import RECORD_OVERHEAD_BYTES, NewRecord, plain_fragment


class SingleAppend(RouterOperations):
    def append_single(self, name: str, record: NewRecord, default_node: str | None) -> int:
        """Appends the record and returns its seq, or does nothing and returns 0: then it is for `append`. Hot."""
        topic = self.topics.by_name.get(name)
        if (
            topic is None
            or not topic.plain
            or topic.staged
            or topic.inbound
            or topic.strong_readers
            or self._pending
            or self._limits.total_bytes_max
            or record.meta is not UNSET
            or record.delay_ms
        ):
            return 0
        bounds = self._limits.write
        data, tag, node = record.data, record.tag, record.node
        size = len(data)
        if size > bounds.record_bytes_max:
            return 0
        size += RECORD_OVERHEAD_BYTES
        if tag is not None:
            if len(tag) > bounds.tag_bytes_max or not tag.isascii():
                return 0
            size += len(tag)
        if node is None:
            node = default_node
        elif default_node is not None:
            return 0  # it is looked at, too
        if node is not None:
            if len(node) > bounds.node_bytes_max or not node.isascii():
                return 0
            size += len(node)
        seq = topic.assigned_seq + 1
        ts = self._clock.now_ms()
        ts = max(ts, topic.assigned_ts)
        durability = topic.config.durability
        if durability is not Durability.EPHEMERAL:
            if durability is Durability.DISK and topic.ceiling - seq < topic.ceiling_margin:
                return 0
            if not self._journal.append_single(topic.topic_id, seq, ts, node, tag, data):
                return 0
        topic.assigned_seq = seq
        topic.assigned_ts = topic.last_write_ts = ts
        if topic.log.append_single(plain_fragment(seq, ts, node, data), size, node, tag, ts):
            self.blocks_filled += 1
        self.bytes_live += size
        self.records_live += 1
        self._changed.add(topic)
        self.on_change(topic)
        if topic.outbound:
            self.on_forwardable(topic)
        return seq
