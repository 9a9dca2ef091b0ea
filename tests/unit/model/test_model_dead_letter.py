"""A dead letter: what is added to a job's meta, and that it comes off again byte for byte."""

import pytest

from topics.model.dead_letter import provenance, stored_record, with_provenance

STAMP = b'"$dead_letter_from":"jobs","$dead_letter_deliveries":"3","$dead_letter_src_seq":"17"}'


def job(meta: bytes = b"") -> bytes:
    return b'{"$seq":17,"$ts":5,"$node":"eu","data":{"a": 1.0}%b,"$tag":"t:1"}' % (b',"meta":' + meta if meta else b"")


def test_a_dead_letter_keeps_data_tag_and_node() -> None:
    letter = with_provenance(stored_record(job()), "jobs", 3, 17)
    assert (bytes(letter.data), letter.tag, letter.node) == (b'{"a": 1.0}', "t:1", "eu")


@pytest.mark.parametrize(
    ("meta", "stamped"),
    [
        (b"", b"{" + STAMP),
        (b'{"k":"v"}', b'{"k":"v",' + STAMP),
        (b'{ "k" : "v" }', b'{ "k" : "v" ,' + STAMP),
        (b"{ }", b"{ " + STAMP),
        (b'{"k":"\\"$dead_letter_from\\":1}"}', b'{"k":"\\"$dead_letter_from\\":1}",' + STAMP),
        (b"{" + STAMP, b"{" + STAMP[:-1] + b"," + STAMP),
    ],
    ids=["none", "some", "spaces", "blank", "quotes", "twice"],
)
def test_the_provenance_goes_behind_the_meta_and_comes_off_again(meta: bytes, stamped: bytes) -> None:
    letter = with_provenance(stored_record(job(meta)), "jobs", 3, 17)
    assert bytes(letter.meta) == stamped  # type: ignore[arg-type]
    back = provenance(stored_record(job(stamped)))
    assert back is not None
    assert (back.queue, back.meta) == ("jobs", meta or None)


@pytest.mark.parametrize(
    "meta",
    [
        b"",
        b'{"k":"v"}',
        b'{"$dead_letter_from":"jobs"}',
        b"{" + STAMP[:-1] + b',"later":"1"}',
        b'{"k":"{%b"}' % STAMP.replace(b'"', b'\\"'),
    ],
    ids=["none", "other", "part", "not-last", "inside-a-string"],
)
def test_what_is_no_dead_letter_is_not_taken_for_one(meta: bytes) -> None:
    assert provenance(stored_record(job(meta))) is None
