"""The text of a record, and the renderings cut from it."""

import json

from topics.model.record import quote, with_tag, without_meta

FRAGMENT = b'{"$seq":7,"$ts":1,"data":[1.0, 2]}'
META_AT = len(FRAGMENT) - 1
FRAGMENT_WITH_META = b'{"$seq":7,"$ts":1,"data":[1.0, 2],"meta":{"a": "b"}}'


def test_a_tag_is_added_at_the_end() -> None:
    assert with_tag(FRAGMENT, "x") == b'{"$seq":7,"$ts":1,"data":[1.0, 2],"$tag":"x"}'


def test_a_tag_is_escaped() -> None:
    assert json.loads(with_tag(FRAGMENT, 'a"\\\n\x00ä'))["$tag"] == 'a"\\\n\x00ä'


def test_meta_is_cut_off() -> None:
    assert without_meta(FRAGMENT_WITH_META, META_AT) == FRAGMENT


def test_a_quoted_text_is_a_json_string() -> None:
    assert json.loads(quote('\u2028"')) == '\u2028"'
