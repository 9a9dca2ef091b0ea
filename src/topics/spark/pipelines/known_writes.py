"""Appends to a topic that was looked at before: what is said to be there is there.

A job looks once at what its target has, and appends the rest under keys that are the same whenever it runs. A server
knows a key for minutes, and says of a write it knows that it was made, also when its records were deleted since. So a
write that it knows from before the look is read back, and what is gone of it is appended anew. One that it knows from
after the look came twice: sent again after a lost answer, or by a job that was just killed.
"""

from typing import NamedTuple

from msgspec import Raw, json

from topics.client.sync_client import Client
from topics.spark.errors import ReplayDiffers


class Written(NamedTuple):
    """`added` records have the seqs [first_seq, last_seq] of the target; `there` were in it already."""

    added: int
    there: int
    first_seq: int | None
    last_seq: int | None
    created: bool = False


def append_missing(client: Client, topic: str, body: bytes, count: int, key: str, looked_seq: int) -> Written:
    """`body` is the JSON list of `count` records; `looked_seq` the head of the topic when it was looked at, and then
    it had none of them."""
    reply = client.append_many(topic, Raw(body), key=key)
    if reply.count != count:
        raise ReplayDiffers(topic, key, reply.count, count)
    if not reply.deduped:
        return Written(count, 0, reply.first_seq, reply.last_seq, reply.created)
    if reply.first_seq > looked_seq:
        return Written(0, count, None, None)
    there = _live_seqs(client, topic, reply.first_seq, reply.last_seq)
    records = json.decode(body, type=list[Raw])
    gone = [record for seq, record in enumerate(records, start=reply.first_seq) if seq not in there]
    if not gone:
        return Written(0, count, None, None)
    # A key of its own: the one above stands for records that are no more.
    again = client.append_many(topic, Raw(b"[" + b",".join(map(bytes, gone)) + b"]"))
    return Written(len(gone), count - len(gone), again.first_seq, again.last_seq)


def _live_seqs(client: Client, topic: str, first_seq: int, last_seq: int) -> set[int]:
    found: set[int] = set()
    cursor = first_seq - 1
    while cursor < last_seq:
        reply = client.diff(topic, cursor, to_seq=last_seq)
        found.update(record.seq for record in reply.records)
        if reply.next_from_seq <= cursor:
            break
        cursor = reply.next_from_seq
    return found
