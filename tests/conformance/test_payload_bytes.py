"""`data` and `meta` come back byte for byte."""

import json

import pytest

from conformance.client import Topic, success

DATA = [
    b"null",
    b"true",
    b"false",
    b"0",
    b"-0",
    b"1.0",
    b"-0.0",
    b"1.10",
    b"1e400",
    b"-1E+400",
    b"1e-400",
    b"0.1000000000000000055511151231257827",
    b"1234567890123456789012345678901234567890",
    b"-" + b"9" * 5000,
    b'""',
    b'"plain"',
    b'"\\u0041\\/\\b\\f\\n\\r\\t\\"\\\\"',
    b'"\\u00e9\\u00E9"',
    b'"\\ud83d\\ude00"',
    b'"\\u0000"',
    '"é ü 漢字 😀 \u2028 \u2029 \x7f \ufeff"'.encode(),
    b'"</script><!-- -->"',
    b"[]",
    b"{}",
    b"[ ]",
    b"{ }",
    b"[1,2 , 3\t,\n4]",
    b'{"b":1,"a":2}',
    b'{"a":1,"a":2,"a":1}',
    b'{ "a" : [ 1.0 , { "b" : null } ] }',
    b'{\r\n  "a": 1\r\n}',
    b'{"":"","$seq":7,"data":{"data":1}}',
    b"[" * 100 + b"]" * 100,
]

META = [
    b"{}",
    b"{ }",
    b'{"b":"1","a":"2"}',
    b'{ "k" :\t"v" }',
    b'{"k":"1","k":"2"}',
    b'{"\\u006b":"\\u0076\\/"}',
    '{"é":"漢字 😀"}'.encode(),
    b'{"":""}',
    b'{"n":1,"s":"1","f":1.0,"big":1e400,"t":true,"z":null}',
    b'{"nested":{"a":[1, {"b" : 2.50}],"$dead_letter_from":"q"},"list":[]}',
    b'{"data":1,"meta":{"meta":{}}}',
]

DECODER = json.JSONDecoder(parse_int=str)


def written_values(body: bytes, key: str) -> list[bytes]:
    """The text of every value of `key` among the records, as the server wrote it."""
    text = body.decode()
    values = []
    position = text.index('"records"')
    while (found := text.find(f'"{key}":', position)) >= 0:
        begin = found + len(key) + 3
        begin += len(text[begin:]) - len(text[begin:].lstrip(" \t\r\n"))
        _, position = DECODER.raw_decode(text, begin)
        values.append(text[begin:position].encode())
    return values


@pytest.mark.parametrize("data", DATA)
def test_data_comes_back_byte_for_byte(topic: Topic, data: bytes) -> None:
    assert topic.api.post_bytes(topic.path, b'{"records":[{"data":' + data + b"}]}").status == 201
    assert written_values(topic.api.post(f"{topic.path}/diff", {}).body, "data") == [data]


@pytest.mark.parametrize("meta", META)
def test_meta_comes_back_byte_for_byte(topic: Topic, meta: bytes) -> None:
    assert topic.api.post_bytes(topic.path, b'{"records":[{"data":1,"meta":' + meta + b"}]}").status == 201
    assert written_values(topic.api.post(f"{topic.path}/diff", {}).body, "meta") == [meta]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_batch_comes_back_byte_for_byte_in_every_durability_class(topic: Topic, durability: str) -> None:
    topic.configure(durability=durability)
    records = b" ,\n".join(b'{ "data" : ' + data + b" }" for data in DATA)
    success(topic.api.post_bytes(topic.path, b'{"records":[' + records + b"]}"))
    assert written_values(topic.api.post(f"{topic.path}/diff", {}).body, "data") == DATA


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b'"\\u0041b"', "Ab"),
        ('"é 漢字 😀"'.encode(), "é 漢字 😀"),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"a\\"b\\\\c\\nd"', 'a"b\\c\nd'),
        (b'"a\\u0000b"', "a\x00b"),
        (b'"\\u2028"', "\u2028"),
    ],
)
def test_tag_and_node_come_back_as_the_same_text(topic: Topic, sent: bytes, text: str) -> None:
    success(topic.api.post_bytes(topic.path, b'{"records":[{"data":1,"tag":' + sent + b',"node":' + sent + b"}]}"))
    (record,) = topic.diff(include_tags=True)["records"]
    assert (record["$tag"], record["$node"]) == (text, text)


def test_an_escaped_tag_is_the_same_tag(topic: Topic) -> None:
    success(topic.api.post_bytes(topic.path, b'{"records":[{"data":1,"tag":"\\u0061"}]}'))
    assert topic.delete_records(match="a")["deleted"] == 1


def test_an_escaped_field_name_is_the_same_field(topic: Topic) -> None:
    success(topic.api.post_bytes(topic.path, b'{"\\u0072ecords":[{"d\\u0061ta":[1.0]}]}'))
    assert written_values(topic.api.post(f"{topic.path}/diff", {}).body, "data") == [b"[1.0]"]
