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
    created: bool,
    deduped: bool,
    with_seqs: bool,
    total_ms: float,
    wal_append_ms: float,
    fsync_ms: float,
    throttle_wait_ms: float,
) -> bytes:
    last_seq = first_seq + count - 1 if count else first_seq
    if not with_seqs:
        seqs = b""
    elif count == 1:
        seqs = b'"seqs":[%d],' % first_seq
    else:
        seqs = b'"seqs":[%b],' % ",".join(map(str, range(first_seq, first_seq + count))).encode()
    return (
        b'{"topic":"%b","first_seq":%d,"last_seq":%d,%b"head_seq":%d,"count":%d,"created":%b,"deduped":%b,'
        b'"performance":{"server_total_ms":%.3f,"wal_append_ms":%b,"fsync_ms":%b,"throttle_wait_ms":%b}}'
        % (
            topic.encode(),
            first_seq,
            last_seq,
            seqs,
            head_seq,
            count,
            b"true" if created else b"false",
            b"true" if deduped else b"false",
            total_ms,
            _milliseconds(wal_append_ms),
            _milliseconds(fsync_ms),
            _milliseconds(throttle_wait_ms),
        )
    )


def single_write_reply(topic: str, seq: int, total_ms: float) -> bytes:
    """That of a write of one record that waited for nothing, as most are. Hot."""
    return (
        b'{"topic":"%b","first_seq":%d,"last_seq":%d,"seqs":[%d],"head_seq":%d,"count":1,"created":false,'
        b'"deduped":false,"performance":{"server_total_ms":%.3f,"wal_append_ms":0.000,"fsync_ms":0.000,'
        b'"throttle_wait_ms":0.000}}' % (topic.encode(), seq, seq, seq, seq, total_ms)
    )


def _milliseconds(duration_ms: float) -> bytes:
    """Most writes wait for nothing, and formatting a float costs more than any other part of the reply."""
    return b"%.3f" % duration_ms if duration_ms else b"0.000"


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
