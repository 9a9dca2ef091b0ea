"""The blob of a record: data, meta and the idempotency key in one piece."""

import pytest

from topics.model.payload import join_payload, split_payload


@pytest.mark.parametrize(
    ("data", "meta", "key", "blob"),
    [
        (b"1", None, None, b"1"),
        (b"1", b"{}", None, b"1\0{}"),
        (b"1", None, b"k", b"1\0\0k"),
        (b"1", b"{}", b"k", b"1\0{}\0k"),
        (b"1", None, b"a\0b\0", b"1\0\0a\0b\0"),
        (b"1", b"{}", b"", b"1\0{}\0"),
        (b"1", None, b"", b"1\0\0"),
        (b"", None, None, b""),
    ],
)
def test_the_layout_is_as_documented_both_ways(data: bytes, meta: bytes | None, key: bytes | None, blob: bytes) -> None:
    assert join_payload(data, meta, key) == blob
    assert split_payload(blob) == (data, meta, key)


def test_a_blob_of_data_alone_is_not_copied() -> None:
    blob = b'{"n":1}'
    assert split_payload(blob)[0] is blob
