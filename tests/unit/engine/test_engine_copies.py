"""What a copy is made of, and how far its router has come with it."""

import json
from array import array

import pytest

from topics.engine import copies
from topics.engine.forwarding import parts
from topics.engine.topic import Router, Topic
from topics.engine.topic_log import TopicLog
from topics.model.config import DEFAULT_CONFIG
from topics.model.record import RECORD_OVERHEAD_BYTES, Columns, render_fragment
from topics.model.router import Guarantee, RouterSettings
from topics.model.tag_match import TagMatch

SOURCE = Topic("s", 7, DEFAULT_CONFIG, TopicLog())
DEST = Topic("d", 8, DEFAULT_CONFIG, TopicLog())


def router(name: str = "r", cursor: int = 0, router_id: int = 9, **settings: object) -> Router:
    return Router(router_id, name, SOURCE, DEST, RouterSettings(**settings), 0, cursor)  # type: ignore[arg-type]


def columns(*records: tuple[str | None, str | None, bytes, bytes], first_seq: int = 1, ts: int = 1000) -> Columns:
    """(node, tag, data, meta) of consecutive records, a millisecond apart."""
    rendered = [
        render_fragment(first_seq + number, ts + number, node, data, meta)
        for number, (node, _, data, meta) in enumerate(records)
    ]
    return Columns(
        [fragment for fragment, _ in rendered],
        array("q", range(ts, ts + len(records))),
        [at for _, at in rendered],
        [node for node, _, _, _ in records],
        [tag for _, tag, _, _ in records],
    )


def rendered(made: Router, source: Columns, first_seq: int = 1, oldest_ts: int = 0) -> list[bytes]:
    count = len(source.fragments)
    picks = [(made, position) for position in range(count)]
    return copies.render(picks, range(1, count + 1), source, first_seq, oldest_ts)[0].fragments


@pytest.mark.parametrize("node", [None, "", "eu", 'a"data":b', "é"])
@pytest.mark.parametrize("meta", [b"", b"{}", b'{ "k" : "v" }'])
def test_a_copy_differs_from_its_original_in_seq_and_time_only(node: str | None, meta: bytes) -> None:
    source = columns((node, "t", b'{"a": 1.0}', meta))
    expected, at = render_fragment(12345, 2000, node, b'{"a": 1.0}', meta)
    batch, timestamps = copies.render([(router(), 0)], [1], source, 12345, 2000)
    assert (batch.fragments, batch.meta_at, list(timestamps)) == ([expected], [at], [2000])
    assert (batch.nodes, batch.tags) == ([node], ["t"])
    payload = len(b'{"a": 1.0}') + (len(meta) + 1 if meta else 0)
    assert batch.sizes == [RECORD_OVERHEAD_BYTES + payload + len((node or "").encode()) + 1]


def test_what_is_not_to_be_kept_is_left_out_and_not_counted() -> None:
    source = columns(("eu", "tag", b"1", b'{"k":"v"}'))
    made = router(preserve_node=False, preserve_tag=False)
    batch, _ = copies.render([(made, 0)], [1], source, 1, 0)
    assert batch.fragments == [render_fragment(1, 1000, None, b"1", b'{"k":"v"}')[0]]
    assert (batch.nodes, batch.tags, batch.sizes) == ([None], [None], [RECORD_OVERHEAD_BYTES + 1 + 10])


def test_copies_are_as_old_as_their_originals_but_not_older_than_the_log_they_go_to() -> None:
    source = columns(*[(None, None, b"0", b"")] * 4, ts=1000)
    _, timestamps = copies.render([(router(), number) for number in range(4)], range(1, 5), source, 1, 1002)
    assert list(timestamps) == [1002, 1002, 1002, 1003]


@pytest.mark.parametrize(
    ("meta", "others"),
    [
        (b"", {}),
        (b"{}", {}),
        (b"{ }", {}),
        (b'{"k":"v"}', {"k": "v"}),
        (b'{"_topics_router":"x","k":"v"}', {"k": "v"}),
        (b'{"\\u005ftopics_router":"x"}', {}),
        (b'{"k":"a\\"b","k":"c"}', {"k": "c"}),
    ],
)
def test_a_stamp_is_added_to_meta_and_takes_the_place_of_another(meta: bytes, others: dict[str, str]) -> None:
    source = columns(("eu", None, b"1", meta))
    batch, _ = copies.render([(router(guarantee=Guarantee.EXACTLY_ONCE), 0)], [5], source, 1, 0)
    found = json.loads(batch.fragments[0])["meta"]
    assert found == {"_topics_router": "r/7/7/5", **others}
    at = batch.meta_at[0]
    stamped = batch.fragments[0][at + 8 : -1]
    assert batch.fragments[0][at : at + 8] == b',"meta":'
    assert batch.sizes == [RECORD_OVERHEAD_BYTES + 1 + 1 + len(stamped) + 2]


def test_only_what_matches_is_picked_and_records_without_a_tag_never_do() -> None:
    source = columns(*((None, tag, b"0", b"") for tag in ("a", "b", None, "ab")))
    seqs = range(1, 5)

    def picked(match: TagMatch | None) -> list[int]:
        return [position for _, position in copies.pick([router(filter=match)], seqs, source, {})]

    assert picked(None) == [0, 1, 2, 3]
    assert picked(TagMatch("a", is_prefix=True)) == [0, 3]
    assert picked(TagMatch("", is_prefix=True)) == [0, 1, 3]
    assert picked(TagMatch("b", is_prefix=False)) == [1]


def test_two_routers_copy_record_by_record_in_their_order() -> None:
    source = columns(*((None, tag, b"0", b"") for tag in ("a", "b", "a")))
    first, second = router("1", filter=TagMatch("a", is_prefix=False)), router("2", cursor=1)
    picks = copies.pick([first, second], range(1, 4), source, {})
    assert picks == [(first, 0), (second, 1), (first, 2), (second, 2)]


@pytest.mark.parametrize(("done", "cursors"), [(0, [0, 1]), (1, [1, 1]), (2, [2, 2]), (3, [3, 2]), (4, [9, 9])])
def test_cursors_move_with_the_copies_that_were_made(done: int, cursors: list[int]) -> None:
    """Whatever is left out here is picked next time, and nothing else."""
    source = columns(*((None, tag, b"0", b"") for tag in ("a", "b", "a")))
    first, second = router("1", filter=TagMatch("a", is_prefix=False)), router("2", cursor=1, router_id=10)
    seqs = range(1, 4)
    picks = copies.pick([first, second], seqs, source, {})
    made = copies.gather(picks, seqs, source, DEST, 1, 0)
    counts = 0
    fragments: list[bytes] = []
    for part, movers, place in parts((first, second), picks, done, made, seqs, 9):
        counts += sum(part.counts.values())
        fragments += part.batch.fragments
        for each in movers:
            each.decided = max(each.decided, place)
    assert [first.decided, second.decided] == cursors
    assert (counts, fragments) == (done, made.batch.fragments[:done])
    assert copies.pick([first, second], seqs, source, {}) == picks[done:]


def test_a_copy_does_not_return_to_where_its_original_was_written() -> None:
    source = columns(*[(None, None, b"0", b"")] * 3)
    origin = Topic("o", 5, DEFAULT_CONFIG, TopicLog())
    origin.own_extras().hops = {2: 1, 3: 2}
    made = Router(9, "r", origin, DEST, RouterSettings(), 0, 0)
    made.ring = 3
    picks = copies.pick([made], range(1, 4), source, origin.hops)
    assert [position for _, position in picks] == [0, 1]
    assert copies.gather(picks, range(1, 4), source, DEST, 11, 0).hops == {11: 1, 12: 2}


@pytest.mark.parametrize(
    ("hops", "told"),
    [({}, 0), ({4: 1, 5: 2, 6: 1}, 1), ({4: 2, 6: 2}, 0), ({3: 1, 4: 3, 5: 2, 6: 2, 7: 1}, 2)],
)
def test_the_news_of_a_loss_went_as_far_as_that_of_the_newest_of_its_seqs(hops: dict[int, int], told: int) -> None:
    assert copies.hops_of_gap(hops, 4, 6) == told


def test_hops_are_kept_until_every_router_on_the_cycle_has_dealt_with_them() -> None:
    origin = Topic("o", 5, DEFAULT_CONFIG, TopicLog())
    origin.own_extras().hops = {1: 1, 2: 1, 3: 1}
    for number, cursor in ((1, 2), (2, 1)):
        made = Router(number, f"r{number}", origin, DEST, RouterSettings(), 0, cursor)
        made.ring = 2
        origin.outbound = {**origin.outbound, number: made}
    copies.forget_hops(origin)
    assert origin.hops == {2: 1, 3: 1}


def test_copies_joined_are_one_run_of_them() -> None:
    source = columns(*((None, tag, b"%d" % number, b"") for number, tag in enumerate("abc")))
    picks = [(router(), number) for number in range(3)]
    whole = copies.gather(picks, range(1, 4), source, DEST, 1, 0)
    first = copies.gather(picks[:1], range(1, 4), source, DEST, 1, 0)
    second = copies.gather(picks[1:], range(1, 4), source, DEST, 2, 0)
    assert copies.joined(first, second) == whole
