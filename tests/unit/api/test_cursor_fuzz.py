"""Every opaque cursor there is, with anything in it: taken, ignored or refused as documented, and never a 500.

A cursor looks opaque to clients and is text from outside to the server: what is inside, once unpacked, may be a number
that is none, or nested a thousand deep.
"""

import asyncio
import base64
import json
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_api_handlers import Served

from doubles.fake_channel import FakeChannel
from topics.api.http import Streaming

DEEP = 2500  # nested deeper than Python's stack: 8 KiB of URL hold that much


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def to_json(value: object) -> bytes:
    return json.dumps(value).encode()


def url64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


NUMBERS = st.one_of(
    st.integers(),
    st.sampled_from([-1, 0, 1, 2**63, 2**64 - 1, 2**64, 10**30]),
    st.floats(),
)
DIGITS = st.one_of(
    st.text(alphabet="0123456789²٣५\u0661 +-_.e", max_size=25),
    st.sampled_from(["²", "٣", "1" * 5000, "-1", "+1", "1_0", " 1", "1e3", str(2**64), "0" * 21, "\ud7ff", "a\x00b"]),
)
POSITIONS = st.one_of(
    DIGITS.map(lambda after: json.dumps({"after": after}).encode()),
    DIGITS.map(lambda after: json.dumps({"after": after}, ensure_ascii=False).encode()),
    NUMBERS.map(lambda after: json.dumps({"after": after}).encode()),
    st.sampled_from(
        [
            b'{"after":"\\ud800"}',
            b'{"after":"1","x":' + b"[" * DEEP + b"]" * DEEP + b"}",
            b'{"x":' + b'{"x":' * 1200,
            b"[" * DEEP,
            b'{"after":null}',
            b'{"after":"1"}{"after":"1"}',
            b'{"after":"' + b"9" * 4000 + b'"}',
        ]
    ),
    st.binary(max_size=40),
)
MAPS = st.one_of(
    st.dictionaries(st.sampled_from(["t", "$t", "u", "$u", "", "$"]), NUMBERS).map(to_json),
    st.sampled_from(
        [
            b'{"t":' + b"1" * 5000 + b"}",
            b'{"t":-1}',
            b'{"t":1.0}',
            b'{"t":1e3}',
            b'{"t":"1"}',
            b'{"t":' + b"[" * DEEP + b"]" * DEEP + b"}",
            b'{"$t":18446744073709551616,"t":0}',
            b'{"t":0,"$t":-7}',
        ]
    ),
    st.binary(max_size=40),
)
LIST_CURSORS = st.one_of(st.text(max_size=60), POSITIONS.map(b64), POSITIONS.map(url64))
STREAM_IDS = st.one_of(
    st.text(max_size=60),
    MAPS.map(url64),
    MAPS.map(b64),
    MAPS.map(lambda map: "z." + url64(zlib.compress(map))),
    st.sampled_from(
        ["z.", "z.AAAA", "z." + url64(zlib.compress(b"[" * 50_000_000)), "z." + url64(zlib.compress(b'{"t":1}')[:-5])]
    ),
)


@pytest.fixture(scope="module")
def served() -> Served:
    served = Served()
    served.ok("PUT /v0/topics/q", {"type": "queue", "lease_ms": 86_400_000})
    for name in ("q", "t", "u"):
        served.write(1, 2, 3, topic=name)
    assert len(served.ok("POST /v0/topics/q/claim", {"node": "w", "max": 3})["claimed"]) == 3
    return served


@pytest.mark.parametrize("path", ["/v0/topics", "/v0/routers", "/v0/topics/q/leases"])
def test_any_list_cursor_is_taken_or_refused_by_name(served: Served, path: str) -> None:
    @settings(max_examples=150, deadline=None)
    @given(cursor=LIST_CURSORS)
    @example(cursor=b64('{"after":"²"}'.encode()))
    @example(cursor=b64(b'{"after":"' + b"1" * 5000 + b'"}'))
    def check(cursor: str) -> None:
        status, reply = served.call(f"GET {path}?page_size=1&cursor={quote(cursor, errors='surrogatepass')}")
        assert status == 200 or (status, reply["error"]["detail"]) == (400, {"field": "cursor"}), reply

    check()


@pytest.mark.parametrize("seq", [0, 1, 2, 3, 2**64 - 1])
def test_a_lease_cursor_of_any_seq_goes_on_behind_it(served: Served, seq: int) -> None:
    cursor = quote(b64(b'{"after":"%d"}' % seq))
    found = [lease["$seq"] for lease in served.ok(f"GET /v0/topics/q/leases?cursor={cursor}")["leases"]]
    assert found == [one for one in (1, 2, 3) if one > seq]


def watch(served: Served, **body: object) -> tuple[int, dict[str, Any]]:
    return served.call("POST /v0/watch", {"topics": {"t": {"from_seq": 0}, "u": {"from_seq": 2}}, **body})


def opened(served: Served, wid: str, **headers: str) -> bytes:
    """What a stream of the session says at first."""

    async def scenario() -> bytes:
        answer = served.handle(f"GET /v0/watch/{wid}", **headers)
        assert isinstance(answer, Streaming), answer
        channel = FakeChannel()
        answer.owner.opened(channel)
        for _ in range(3):
            await asyncio.sleep(0)
        answer.owner.closed()
        return channel.take()

    return asyncio.run(scenario())


def check_streams(served: Served, check: Callable[[str], None]) -> None:
    @settings(max_examples=200, deadline=None)
    @given(cursor=STREAM_IDS)
    def each(cursor: str) -> None:
        check(cursor)

    each()


def test_any_watch_cursor_is_taken_or_refused_by_name(served: Served) -> None:
    def check(cursor: str) -> None:
        status, reply = watch(served, cursor=cursor)
        if status != 200:
            assert (status, reply["error"]["detail"]) == (400, {"field": "cursor"}), reply
            return
        assert b"event:" in opened(served, reply["wid"])

    check_streams(served, check)


def test_any_last_event_id_is_taken_or_ignored(served: Served) -> None:
    def check(cursor: str) -> None:
        raw = cursor.encode("utf-8", "surrogatepass").decode("latin-1")
        wid = watch(served)[1]["wid"]
        opened(served, wid)  # so that the session has something to go back from
        opened(served, wid, last_event_id=raw)
        assert b'"$seq":1' in opened(served, wid, last_event_id=url64(b'{"t":0}'))

    check_streams(served, check)
