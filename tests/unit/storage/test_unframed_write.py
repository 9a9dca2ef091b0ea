"""A write becomes the frames that recovery reads back."""

import pytest

from topics.storage.frame import append_frames
from topics.storage.unframed_write import UnframedWrite

PLAIN = b'{"$seq":7,"$ts":9,"data":{"a": 1.0}}'
WITH_META = b'{"$seq":7,"$ts":9,"$node":"n","data":2,"meta":{"k":"v"}}'


@pytest.mark.parametrize("durable", [False, True])
def test_frames_have_data_and_meta_as_they_were_sent(durable: bool) -> None:
    at = WITH_META.find(b',"meta":')
    write = UnframedWrite(5, 7, 9, [WITH_META, PLAIN], [at, 0], ["n", None], ["t", None], None, durable, [])
    records = [(b"n", b"t", b'2\x00{"k":"v"}'), (None, None, b'{"a": 1.0}')]
    assert write.frames() == append_frames(5, 7, 9, records, durable=durable)


def test_the_last_record_carries_the_key_and_frames_before_it_come_first() -> None:
    write = UnframedWrite(5, 7, 9, [PLAIN, PLAIN], [0, 0], [None] * 2, [None] * 2, "key", False, [b"opening"])
    payload = b'{"a": 1.0}'
    records = [(None, None, payload), (None, None, payload + b"\x00\x00key")]
    assert write.frames() == [b"opening", *append_frames(5, 7, 9, records, durable=False)]


def test_a_single_record_with_a_key_carries_it() -> None:
    write = UnframedWrite(5, 7, 9, [PLAIN], [0], [None], [None], "key", False, [])
    assert write.frames() == append_frames(5, 7, 9, [(None, None, b'{"a": 1.0}\x00\x00key')], durable=False)
