"""The text of a record, the renderings cut from it, and what the disk keeps of it."""

import json

import pytest
from msgspec import Raw

from topics.model.payload import split_payload
from topics.model.record import fragment_of, payload_of, render_fragment, with_tag, without_data, without_meta

FRAGMENT = b'{"$seq":7,"$ts":1,"data":[1.0, 2]}'
META_AT = len(FRAGMENT) - 1
FRAGMENT_WITH_META = b'{"$seq":7,"$ts":1,"data":[1.0, 2],"meta":{"a": "b"}}'
NODES = [None, "", "eu-1", 'a"b', '"data":', '","data":1,"x":"', "\\", "\u2028ä\x00"]


def test_a_fragment_has_its_keys_in_order() -> None:
    fragment, meta_at = render_fragment(7, 1, "n", Raw(b"[1.0, 2]"), b'{"a": "b"}')
    assert fragment == b'{"$seq":7,"$ts":1,"$node":"n","data":[1.0, 2],"meta":{"a": "b"}}'
    assert fragment[meta_at:].startswith(b',"meta":')


def test_a_fragment_has_neither_node_nor_meta_where_there_is_none() -> None:
    assert render_fragment(7, 1, None, b"[1.0, 2]", b"") == (FRAGMENT, 0)


@pytest.mark.parametrize("node", NODES)
def test_a_node_is_a_json_string(node: str | None) -> None:
    assert json.loads(render_fragment(7, 1, node, b"1", b"")[0]).get("$node") == node


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("data", [b"null", b'{"data": 1, "meta": {}}', b'"\\u0000"', b'["\\"data\\":"]'])
@pytest.mark.parametrize("meta", [b"", b"{}", b'{"meta": "\\u0041", "data":""}'])
def test_what_the_disk_keeps_is_enough_to_make_the_same_text_again(node: str | None, data: bytes, meta: bytes) -> None:
    fragment, meta_at = render_fragment(7, 1, node, data, meta)
    payload = payload_of(fragment, meta_at)
    assert split_payload(payload) == (data, meta or None, None)
    assert fragment_of(7, 1, node, payload) == (fragment, meta_at)


@pytest.mark.parametrize(("fragment", "meta_at"), [(FRAGMENT, 0), (FRAGMENT_WITH_META, META_AT)])
def test_the_key_of_a_write_is_kept_beside_the_record_and_not_in_its_text(fragment: bytes, meta_at: int) -> None:
    payload = payload_of(fragment, meta_at, b"key")
    assert split_payload(payload)[2] == b"key"
    assert fragment_of(7, 1, None, payload) == (fragment, meta_at)


def test_a_tag_is_added_at_the_end() -> None:
    assert with_tag(FRAGMENT, "x") == b'{"$seq":7,"$ts":1,"data":[1.0, 2],"$tag":"x"}'


def test_a_tag_is_escaped() -> None:
    assert json.loads(with_tag(FRAGMENT, 'a"\\\n\x00ä'))["$tag"] == 'a"\\\n\x00ä'


def test_meta_is_cut_off() -> None:
    assert without_meta(FRAGMENT_WITH_META, META_AT) == FRAGMENT


@pytest.mark.parametrize("node", NODES)
def test_data_is_cut_off_with_meta(node: str | None) -> None:
    fragment, _ = render_fragment(7, 1, node, b'{"data":1}', b"{}")
    left = json.loads(without_data(fragment))
    assert left == {"$seq": 7, "$ts": 1} | ({} if node is None else {"$node": node})
