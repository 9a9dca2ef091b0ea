"""Records read from the disk in bulk are the same as read one after the other."""

from hypothesis import example, given
from hypothesis import strategies as st

from topics.model.operation import Appended, WriteEnd
from topics.model.payload import join_payload
from topics.model.record import RECORD_OVERHEAD_BYTES, Batch, fragment_of
from topics.storage.frame import FrameDecoder
from topics.storage.operation_codec import batch_of, encode, operations_of

Stored = tuple[int, str | None, str | None, bytes, bytes | None]
"""(ts, node, tag, data, meta)"""

TEXTS = st.none() | st.sampled_from(["", "eu-1", 'a"b', "ä\x00", "t" * 40])
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**40),
        TEXTS,
        TEXTS,
        st.sampled_from([b"1", b'{"a": 1.0}', b'"\\u0000"']),
        st.none() | st.just(b"{}"),
    ),
    min_size=1,
    max_size=12,
)
PLAIN: list[Stored] = [(1000, None, None, b"1", None), (1001, None, None, b"[]", None)]
TAGGED: list[Stored] = [(1000, None, "a", b"1", None), (1000, None, "", b"2", None)]


def stored(records: list[Stored], first_seq: int) -> Batch:
    """As the log of a topic keeps them, made one by one."""
    payloads = [join_payload(data, meta, None) for _, _, _, data, meta in records]
    made = [
        fragment_of(seq, ts, node, payload)
        for seq, ((ts, node, _, _, _), payload) in enumerate(zip(records, payloads, strict=True), first_seq)
    ]
    sizes = [
        RECORD_OVERHEAD_BYTES + len((node or "").encode()) + len((tag or "").encode()) + len(payload)
        for (_, node, tag, _, _), payload in zip(records, payloads, strict=True)
    ]
    return Batch(
        [fragment for fragment, _ in made],
        sizes,
        [node for _, node, _, _, _ in records],
        [tag for _, _, tag, _, _ in records],
        [meta_at for _, meta_at in made],
        sum(sizes),
        payloads,
    )


def columns_of(batch: Batch) -> tuple[list[bytes], list[int], list[str | None], list[str | None], list[int], int]:
    return batch.fragments, batch.sizes, batch.nodes, batch.tags, batch.meta_at, batch.total_bytes


@given(RECORDS, st.integers(1, 10**12))
@example(PLAIN, 1)
@example(TAGGED, 9)
def test_a_batch_made_in_columns_is_the_one_made_record_by_record(records: list[Stored], first_seq: int) -> None:
    expected = stored(records, first_seq)
    nodes = [None if node is None else node.encode() for node in expected.nodes]
    tags = [None if tag is None else tag.encode() for tag in expected.tags]
    payloads = [bytes(payload) for payload in expected.payloads]
    made = batch_of(first_seq, [record[0] for record in records], nodes, tags, payloads)
    assert columns_of(made) == columns_of(expected)


@given(st.lists(st.tuples(RECORDS, st.none() | st.sampled_from(["key", "", "\x00"])), min_size=1, max_size=5))
@example([(PLAIN, None), (TAGGED, None)])
@example([(PLAIN, "key"), (TAGGED, None)])
def test_writes_come_back_from_the_log_as_they_were_made(writes: list[tuple[list[Stored], str | None]]) -> None:
    frames: list[bytes] = []
    due = Batch([], [], [], [], [], 0)
    timestamps: list[int] = []
    ends: list[WriteEnd] = []
    seq = 5
    for number, (records, key) in enumerate(writes):
        ts = 1000 + number  # one write has one
        records = [(ts, node, tag, data, meta) for _, node, tag, data, meta in records]  # noqa: PLW2901
        batch = stored(records, seq)
        times = [ts] * len(records)
        ends.append(WriteEnd(seq + len(records) - 1, key))
        frames += encode([Appended(7, seq, batch, times, [ends[-1]])], durable=False)
        due.fragments += batch.fragments
        due.sizes += batch.sizes
        due.nodes += batch.nodes
        due.tags += batch.tags
        due.meta_at += batch.meta_at
        due.total_bytes += batch.total_bytes
        timestamps += times
        seq += len(records)
    (appended,) = operations_of(FrameDecoder(b"".join(frames)))
    assert isinstance(appended, Appended)
    assert columns_of(appended.batch) == columns_of(due)
    assert (appended.topic_id, appended.first_seq) == (7, 5)
    assert (list(appended.timestamps), list(appended.writes)) == (timestamps, ends)
