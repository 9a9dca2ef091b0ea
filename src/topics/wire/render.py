"""The hot replies as bytes, without an object per record or per reply.

The shape is that of `WriteResponse` and `DiffResponse`; names of topics need no escaping.
"""

from msgspec.json import encode

from topics.model.gap import Gap
from topics.wire.responses import Tombstone


def write_reply(
    topic: str,
    first_seq: int,
    count: int,
    head_seq: int,
    *,
    created: bool,
    deduped: bool,
    with_seqs: bool,
    total_ms: float,
    wal_append_ms: float,
    fsync_ms: float,
    throttle_wait_ms: float,
) -> bytes:
    last_seq = first_seq + count - 1
    if not with_seqs:
        seqs = ""
    elif count == 1:
        seqs = f'"seqs":[{first_seq}],'
    else:
        seqs = f'"seqs":[{",".join(map(str, range(first_seq, last_seq + 1)))}],'
    return (
        f'{{"topic":"{topic}","first_seq":{first_seq},"last_seq":{last_seq},{seqs}"head_seq":{head_seq},'
        f'"count":{count},"created":{"true" if created else "false"},'
        f'"deduped":{"true" if deduped else "false"},'
        f'"performance":{{"server_total_ms":{total_ms:.3f},"wal_append_ms":{wal_append_ms:.3f},'
        f'"fsync_ms":{fsync_ms:.3f},"throttle_wait_ms":{throttle_wait_ms:.3f}}}}}'
    ).encode()


def diff_reply(
    topic: str,
    fragments: list[bytes],
    gap: Gap | None,
    next_from_seq: int,
    head_seq: int,
    earliest_seq: int,
    *,
    scanned: int,
    cold_count: int,
    total_ms: float,
) -> bytes:
    caught_up = b"true" if next_from_seq == head_seq else b"false"
    return b"".join(
        (
            b'{"topic":"%b","records":[' % topic.encode(),
            b",".join(fragments),
            b'],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,"tombstone":'
            % (next_from_seq, head_seq, earliest_seq, caught_up),
            b"null" if gap is None else tombstone(gap, earliest_seq, head_seq),
            b',"lag":%d,"performance":{"server_total_ms":%.3f,"records_scanned":%d,"cold_segments_read":%d}}'
            % (head_seq - next_from_seq, total_ms, scanned, cold_count),
        )
    )


def tombstone(gap: Gap, earliest_seq: int, head_seq: int) -> bytes:
    return encode(Tombstone(gap.gap_from, gap.gap_to, gap.reason, gap.missed_estimate, earliest_seq, head_seq))
