"""Appends what a topic does not have yet, so that what a job reports as written really is there.

A job reads its target once and appends what is missing, under keys that are the same on every run. The server remembers
a key for minutes and answers a repeated one with the earlier write, even if its records have been deleted since. So if
the earlier write is older than the job's reading, it is read back, and what is gone is appended again. If it is newer,
the same request came twice: resent after a lost answer, or sent before by a job that was just killed.
"""

from typing import NamedTuple

from msgspec import Raw, json

from topics.client.sync_client import Client
from topics.spark.errors import ReplayDiffers


class Written(NamedTuple):
    """`added` records now have the seqs [first_seq, last_seq] of the target; `there` were in it already."""

    added: int
    there: int
    first_seq: int | None
    last_seq: int | None
    created: bool = False


def append_missing(client: Client, topic: str, body: bytes, count: int, key: str, looked_seq: int) -> Written:
    """`body` is a JSON list of `count` records that the topic did not have when the job read it, up to its head
    `looked_seq`."""
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
    # A new key: the one above belongs to records that are gone.
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
