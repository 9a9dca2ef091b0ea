"""The WAL frame and the payload blob, byte for byte."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from wal_frames import frame_of, write_frames

from topics.model.payload import join_payload, split_payload
from topics.storage.frame import (
    BATCH_CONTINUES,
    DURABLE,
    HAS_NODE,
    HAS_TAG,
    OVERHEAD_BYTES,
    Frame,
    FrameDecoder,
    FrameKind,
    SingleRecord,
    control_frame,
    single_frames,
    start_of,
)
from topics.storage.wal_mark import file_mark, sync_mark

JSON = st.binary(min_size=1).filter(lambda text: b"\x00" not in text)


def test_an_append_frame_has_the_documented_bytes() -> None:
    frame = write_frames(10, 4096, 1748470000123, [("n7", "tag", b'{"a":1}')], durable=True)
    assert frame == frame_of(1, 7, 10, 4096, 1748470000123, b"n7", b"tag", b'{"a":1}')
    assert frame[:6].hex() == "36000000" + "01" + "07"
    assert frame[6:14].hex() == "0a00000000000000"
    assert frame[30:38].hex() == "0200" + "0300" + "07000000"
    assert frame[38:50] == b'n7tag{"a":1}'
    assert len(frame) == OVERHEAD_BYTES + 12 == 58


def test_the_frame_types_have_the_documented_numbers() -> None:
    assert [(kind.value, kind.name) for kind in FrameKind] == [
        (1, "APPEND"),
        (2, "TOPIC_CREATE"),
        (3, "TOPIC_DELETE"),
        (4, "ROUTER_CREATE"),
        (5, "ROUTER_DELETE"),
        (6, "DELETE"),
        (7, "EVICT_WATERMARK"),
        (8, "CHECKPOINT_MARK"),
        (9, "CONFIG_UPDATE"),
        (10, "LEASE"),
        (11, "HEAD_WATERMARK"),
    ]


@pytest.mark.parametrize("kind", [kind for kind in FrameKind if kind is not FrameKind.APPEND])
def test_a_control_frame_carries_its_body_as_data(kind: FrameKind) -> None:
    assert control_frame(kind, 3, 0, 99, b"body") == frame_of(kind, 0, 3, 0, 99, b"", b"", b"body")


def test_marks_are_checkpoint_frames_with_a_json_body() -> None:
    assert file_mark(2, 7, 3) == frame_of(8, 0, 0, 0, 0, b"", b"", b'{"format":2,"shard":2,"first_lsn":7,"start":3}')
    assert sync_mark(4096) == frame_of(8, 0, 0, 0, 0, b"", b"", b'{"synced_bytes":4096}')


def test_every_frame_of_a_batch_but_the_last_says_that_it_goes_on() -> None:
    records: list[tuple[str | None, str | None, bytes]] = [(None, None, b"1"), ("", "t", b"2"), ("n", None, b"3")]
    assert write_frames(5, 100, 9, records, durable=True) == b"".join(
        (
            frame_of(1, DURABLE | BATCH_CONTINUES, 5, 100, 9, b"", b"", b"1"),
            frame_of(1, DURABLE | BATCH_CONTINUES | HAS_NODE | HAS_TAG, 5, 101, 9, b"", b"t", b"2"),
            frame_of(1, DURABLE | HAS_NODE, 5, 102, 9, b"n", b"", b"3"),
        )
    )
    plain = [(None, None, b"1"), (None, None, b"22")]
    assert write_frames(5, 100, 9, plain, durable=True) == b"".join(
        (
            frame_of(1, DURABLE | BATCH_CONTINUES, 5, 100, 9, b"", b"", b"1"),
            frame_of(1, DURABLE, 5, 101, 9, b"", b"", b"22"),
        )
    )
    assert write_frames(5, 100, 9, [(None, None, b"1")], durable=False) == frame_of(1, 0, 5, 100, 9, b"", b"", b"1")
    assert write_frames(5, 100, 9, [], durable=False) == b""


@pytest.mark.parametrize("node", [None, "", "n", "węzeł"])
@pytest.mark.parametrize("tag", [None, "", "t", "żółw"])
def test_a_write_of_one_record_is_framed_as_in_a_batch(tag: str | None, node: str | None) -> None:
    framed = single_frames([(5, 7, 9, node, tag, Raw(b'{"a": 1.0}'))])
    assert framed == write_frames(5, 7, 9, [(node, tag, b'{"a": 1.0}')], durable=False)


def test_frames_of_several_writes_follow_each_other() -> None:
    writes: list[SingleRecord] = [(5, 7, 9, None, None, Raw(b"1")), (6, 1, 8, "n", None, Raw(b"[2]"))]
    assert single_frames(writes) == frame_of(1, 0, 5, 7, 9, b"", b"", b"1") + frame_of(1, 2, 6, 1, 8, b"n", b"", b"[2]")
    assert single_frames([]) == b""


def decoded(content: bytes, start: int = 0) -> tuple[list[Frame], FrameDecoder]:
    decoder = FrameDecoder(content, start)
    return list(decoder), decoder


def test_a_decoder_gives_frames_and_where_each_begins_and_ends() -> None:
    first, second = frame_of(1, 3, 5, 7, 9, b"n", b"tag", b"1"), frame_of(6, 0, 5, 0, 9, b"", b"", b"{}")
    frames, decoder = decoded(first + second)
    assert frames == [
        (1, HAS_TAG | HAS_NODE, 5, 7, 9, b"n", b"tag", b"1", len(first)),
        (6, 0, 5, 0, 9, b"", b"", b"{}", len(first + second)),
    ]
    assert [start_of(frame) for frame in frames] == [0, len(first)]
    assert decoder.stop.offset == len(first + second)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda frame: frame[:-1], "a frame longer than the file"),
        (lambda frame: frame[: OVERHEAD_BYTES - 1], "an incomplete frame"),
        (lambda frame: frame[:30] + b"\x07" + frame[31:], "a frame whose lengths do not add up"),
        (lambda frame: frame[:40] + b"?" + frame[41:], "a frame whose checksum does not match"),
    ],
)
def test_a_decoder_stops_at_a_bad_frame_and_says_what_is_wrong(damage: Callable[[bytes], bytes], problem: str) -> None:
    good = frame_of(1, 0, 5, 7, 9, b"", b"", b"1")
    frames, decoder = decoded(good + damage(frame_of(1, 0, 5, 8, 9, b"", b"", b"data")))
    assert [frame[3] for frame in frames] == [7]
    assert (decoder.stop.offset, decoder.stop.problem) == (len(good), problem)


def test_behind_a_frame_of_which_only_the_checksum_is_wrong_another_decoder_goes_on() -> None:
    bad = frame_of(1, 0, 5, 7, 9, b"", b"", b"1")[:-1] + b"?"
    _, decoder = decoded(bad + frame_of(1, 0, 5, 8, 9, b"", b"", b"2"))
    damaged = decoder.stop.frame
    assert damaged == (1, 0, 5, 7, 9, b"", b"", b"1", len(bad))
    frames, _ = decoded(bad + frame_of(1, 0, 5, 8, 9, b"", b"", b"2"), damaged[8])
    assert [frame[3] for frame in frames] == [8]


def test_a_payload_has_the_documented_bytes() -> None:
    assert join_payload(b"1", None, None) == b"1"
    assert join_payload(b"1", b"{}", None) == b"1\x00{}"
    assert join_payload(b"1", b"{}", b"k") == b"1\x00{}\x00k"
    assert join_payload(b"1", None, b"k") == b"1\x00\x00k"


@given(JSON, st.none() | JSON, st.none() | st.binary())
def test_a_payload_splits_into_what_it_was_joined_from(data: bytes, meta: bytes | None, key: bytes | None) -> None:
    assert split_payload(join_payload(data, meta, key)) == (data, meta, key)
