"""Routers: made, shown, listed and deleted; what a copy is, and when it is there."""

import json
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import pytest

from conformance.client import Api, Topic, assert_error, eventually, success
from conformance.conftest import StartServer

PATTERNS = [["tag", "Eq", "a"], ["tag", "Glob", "a*"], "a", "a*"]


class Routes:
    """Routers nobody else uses, between topics nobody else uses."""

    def __init__(self, api: Api, new_topic: Callable[..., Topic]) -> None:
        self.api = api
        self.topic = new_topic
        self.names: list[str] = []

    def name(self, prefix: str = "route-") -> str:
        self.names.append(prefix + uuid.uuid4().hex)
        return self.names[-1]

    def put(self, source: Topic, dest: Topic, name: str | None = None, **fields: Any) -> dict[str, Any]:
        name = name or self.name()
        return success(self.api.put(path_of(name), {"source": source.name, "dest": dest.name, **fields}))

    def pair(self, **fields: Any) -> tuple[Topic, Topic]:
        """A topic and the one it is copied to."""
        source, dest = self.topic(), self.topic()
        self.put(source, dest, **fields)
        return source, dest


def path_of(router: str) -> str:
    return f"/v0/routers/{quote(router, safe='')}"


def fields(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what its topic gave it."""
    return {name: value for name, value in record.items() if name not in {"$seq", "$ts"}}


@pytest.fixture
def routes(api: Api, new_topic: Callable[..., Topic]) -> Iterator[Routes]:
    made = Routes(api, new_topic)
    yield made
    for name in made.names:
        api.delete(path_of(name))


# Making and changing


def test_a_new_router_is_shown_with_its_defaults(routes: Routes) -> None:
    source, dest, name = routes.topic(), routes.topic(), routes.name()
    reply = routes.api.put(path_of(name), {"source": source.name, "dest": dest.name})
    assert reply.status == 201
    shown = reply.json
    assert shown.pop("performance")["server_total_ms"] >= 0
    assert shown == {
        "router": name,
        "created": True,
        "source": source.name,
        "dest": dest.name,
        "preserve_node": True,
        "preserve_tag": True,
        "filter": None,
        "allow_cycle": False,
        "guarantee": "at_least_once",
    }


def test_both_topics_are_made_with_it(routes: Routes) -> None:
    source, dest = routes.pair()
    assert (source.exists(), dest.exists()) == (True, True)


def test_the_same_again_changes_nothing(routes: Routes) -> None:
    source, dest, name = routes.topic(), routes.topic(), routes.name()
    routes.put(source, dest, name)
    reply = routes.api.put(path_of(name), {"source": source.name, "dest": dest.name})
    assert (reply.status, reply.json["created"]) == (200, False)


def test_a_changed_setting_is_taken_over(routes: Routes) -> None:
    source, dest, name = routes.topic(), routes.topic(), routes.name()
    routes.put(source, dest, name)
    reply = routes.api.put(
        path_of(name), {"source": source.name, "dest": dest.name, "preserve_tag": False, "filter": "a*"}
    )
    assert (reply.status, reply.json["created"]) == (200, False)
    shown = success(routes.api.get(path_of(name)))
    assert (shown["preserve_tag"], shown["filter"]) == (False, ["tag", "Glob", "a*"])


def test_the_ends_of_a_router_are_fixed(routes: Routes) -> None:
    source, dest, other, name = routes.topic(), routes.topic(), routes.topic(), routes.name()
    routes.put(source, dest, name)
    reply = routes.api.put(path_of(name), {"source": source.name, "dest": other.name})
    assert_error(reply, 409, "topic_exists_incompatible")
    assert not other.exists()


def test_a_name_with_an_arrow_may_be_written_either_way(routes: Routes) -> None:
    source, dest = routes.topic(), routes.topic()
    name = routes.name("a->")
    routes.put(source, dest, name)
    assert success(routes.api.get(f"/v0/routers/{name}"))["router"] == name
    assert success(routes.api.get(f"/v0/routers/{name.replace('>', '%3E')}"))["router"] == name


@pytest.mark.parametrize("name", ["-a", ">a", "a b", "a*", "é", "a" * 256])
def test_a_name_that_is_none_is_refused(routes: Routes, name: str) -> None:
    source, dest = routes.topic(), routes.topic()
    reply = routes.api.put(path_of(name), {"source": source.name, "dest": dest.name})
    assert_error(reply, 400, "invalid_request", "router")
    assert (source.exists(), dest.exists()) == (False, False)


@pytest.mark.parametrize("missing", ["source", "dest"])
def test_both_ends_are_required(routes: Routes, missing: str) -> None:
    body = {"source": routes.topic().name, "dest": routes.topic().name}
    del body[missing]
    assert_error(routes.api.put(path_of(routes.name()), body), 400, "invalid_request", missing)


@pytest.mark.parametrize(("field", "value"), [("source", "a b"), ("dest", ""), ("dest", "x>y")])
def test_an_end_that_is_no_topic_name_is_refused(routes: Routes, field: str, value: str) -> None:
    body = {"source": routes.topic().name, "dest": routes.topic().name, field: value}
    assert_error(routes.api.put(path_of(routes.name()), body), 400, "invalid_request", field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("filter", ["tag", "Regex", "x"]),
        ("filter", ["tag", "Glob", "x"]),
        ("filter", ["node", "Eq", "x"]),
        ("guarantee", "at_most_once"),
        ("preserve_node", 1),
        ("allow_cycle", "yes"),
    ],
)
def test_a_bad_field_is_refused_and_makes_nothing(routes: Routes, field: str, value: Any) -> None:
    source, dest, name = routes.topic(), routes.topic(), routes.name()
    body = {"source": source.name, "dest": dest.name, field: value}
    assert_error(routes.api.put(path_of(name), body), 400, "invalid_request", field)
    assert (source.exists(), dest.exists()) == (False, False)
    assert_error(routes.api.get(path_of(name)), 404, "router_not_found")


def test_a_router_from_a_topic_to_itself_is_refused(routes: Routes) -> None:
    topic = routes.topic()
    reply = routes.api.put(path_of(routes.name()), {"source": topic.name, "dest": topic.name})
    assert_error(reply, 400, "invalid_request", "dest")


def test_a_router_without_a_body_is_refused(routes: Routes) -> None:
    assert_error(routes.api.put(path_of(routes.name())), 400, "invalid_request")


def test_a_dest_that_must_exist_and_does_not_is_not_found(routes: Routes) -> None:
    source, dest = routes.topic(), routes.topic()
    body = {"source": source.name, "dest": dest.name, "create_dest": False}
    assert_error(routes.api.put(path_of(routes.name()), body), 404, "topic_not_found")
    assert not source.exists()


def test_a_dest_that_must_exist_and_does_is_taken(routes: Routes) -> None:
    source, dest = routes.topic(), routes.topic()
    dest.configure()
    assert routes.put(source, dest, create_dest=False)["created"] is True


# Showing, listing, deleting


def test_a_router_shows_how_much_it_has_forwarded(routes: Routes) -> None:
    source, dest, name = routes.topic(), routes.topic(), routes.name()
    routes.put(source, dest, name, guarantee="exactly_once")
    source.fill(3)
    assert dest.seqs() == [1, 2, 3]
    shown = success(routes.api.get(path_of(name)))
    shown.pop("performance")
    assert shown == {
        "router": name,
        "source": source.name,
        "dest": dest.name,
        "preserve_node": True,
        "preserve_tag": True,
        "filter": None,
        "allow_cycle": False,
        "guarantee": "exactly_once",
        "forwarded_total": 3,
        "lag": 0,
    }


def test_an_absent_router_is_not_found(routes: Routes) -> None:
    assert_error(routes.api.get(path_of(routes.name())), 404, "router_not_found")


def test_routers_are_listed_page_by_page(routes: Routes) -> None:
    prefix = f"page-{uuid.uuid4().hex}-"
    source = routes.topic()
    names = sorted(routes.name(prefix) for _ in range(5))
    for name in names:
        routes.put(source, routes.topic(), name)
    found: list[str] = []
    cursor = ""
    sizes = []
    while True:
        page = success(routes.api.get(f"/v0/routers?prefix={prefix}&page_size=2&cursor={quote(cursor)}"))
        found += [each["router"] for each in page["routers"]]
        sizes.append(len(page["routers"]))
        if "next_cursor" not in page:
            break
        cursor = page["next_cursor"]
    assert (found, sizes) == (names, [2, 2, 1])


def test_routers_are_listed_by_source_and_by_dest(routes: Routes) -> None:
    a, b, c = routes.topic(), routes.topic(), routes.topic()
    ab, ac, bc = routes.name(), routes.name(), routes.name()
    routes.put(a, b, ab)
    routes.put(a, c, ac)

    def listed(query: str) -> set[str]:
        return {each["router"] for each in success(routes.api.get(f"/v0/routers?{query}"))["routers"]}

    assert listed(f"source={a.name}") == {ab, ac}
    assert listed(f"dest={c.name}") == {ac}
    assert listed(f"source={a.name}&dest={b.name}") == {ab}
    assert listed(f"source={bc}") == set()


def test_a_listed_router_has_its_summary(routes: Routes) -> None:
    source, dest, name = routes.topic(), routes.topic(), routes.name()
    routes.put(source, dest, name)
    (listed,) = success(routes.api.get(f"/v0/routers?prefix={name}"))["routers"]
    assert listed == {
        "router": name,
        "source": source.name,
        "dest": dest.name,
        "guarantee": "at_least_once",
        "forwarded_total": 0,
    }


def test_a_bad_cursor_is_refused(routes: Routes) -> None:
    assert_error(routes.api.get("/v0/routers?cursor=nonsense"), 400, "invalid_request", "cursor")


def test_a_deleted_router_forwards_no_more_and_leaves_its_copies(routes: Routes) -> None:
    source, dest, name = routes.topic(), routes.topic(), routes.name()
    routes.put(source, dest, name)
    source.fill(2)
    assert dest.seqs() == [1, 2]
    assert success(routes.api.delete(path_of(name)))["deleted"] is True
    source.fill(2)
    assert dest.seqs() == [1, 2]
    assert_error(routes.api.get(path_of(name)), 404, "router_not_found")


def test_deleting_an_absent_router_succeeds(routes: Routes) -> None:
    reply = routes.api.delete(path_of(routes.name()))
    assert (reply.status, reply.json["deleted"]) == (200, False)


def test_deleting_a_topic_deletes_the_routers_that_touch_it(routes: Routes) -> None:
    a, b, c = routes.topic(), routes.topic(), routes.topic()
    ab, bc = routes.name("z-"), routes.name("a-")
    routes.put(a, b, ab)
    routes.put(b, c, bc)
    assert success(routes.api.delete(b.path))["routers_removed"] == sorted([ab, bc])
    for name in (ab, bc):
        assert_error(routes.api.get(path_of(name)), 404, "router_not_found")
    a.fill(1)
    assert not b.exists()


# What is forwarded


def test_a_read_after_a_write_sees_the_copy(routes: Routes) -> None:
    source, dest = routes.pair()
    for number in range(1, 30):
        source.fill(1)
        assert dest.seqs()[-1] == number


def test_a_chain_is_caught_up_by_reading_its_end(routes: Routes) -> None:
    topics = [routes.topic() for _ in range(5)]
    for source, dest in pairwise(topics):
        routes.put(source, dest)
    topics[0].fill(3)
    assert topics[-1].seqs() == [1, 2, 3]


def test_the_state_of_a_dest_counts_its_copies(routes: Routes) -> None:
    source, dest = routes.pair()
    source.fill(3)
    state = success(routes.api.get(dest.path))
    assert (state["head_seq"], state["count"]) == (3, 3)


def test_what_was_there_before_the_router_is_not_copied(routes: Routes) -> None:
    source, dest = routes.topic(), routes.topic()
    source.fill(2)
    routes.put(source, dest)
    source.fill(1)
    assert dest.seqs() == [1]


def test_a_copy_has_the_bytes_of_its_original(routes: Routes) -> None:
    source, dest = routes.pair()
    body = (
        rb'{"records":[{"data":{"a": 1.0,"b":1e400,"a":"\u00e9"},"tag":"t","node":"n\"1","meta":{ "k" : "v" }},'
        rb'{"data":null,"node":""},{"data":[ 1 , 2 ],"tag":""}]}'
    )
    success(routes.api.post_bytes(source.path, body))
    replies = [routes.api.post(f"{topic.path}/diff", {"include_tags": True}).body for topic in (source, dest)]
    texts = [reply[reply.index(b"[") : reply.index(b'],"next_from_seq"')] for reply in replies]
    assert texts[0] == texts[1]
    assert rb'{"a": 1.0,"b":1e400,"a":"\u00e9"}' in texts[1]


def test_node_and_tag_are_left_out_if_they_are_not_to_be_kept(routes: Routes) -> None:
    source, dest = routes.pair(preserve_node=False, preserve_tag=False)
    source.write({"data": 1, "tag": "t", "node": "n", "meta": {"k": "v"}})
    (copy,) = dest.diff(include_tags=True)["records"]
    assert fields(copy) == {"data": 1, "meta": {"k": "v"}}


@pytest.mark.parametrize("pattern", PATTERNS, ids=json.dumps)
def test_only_records_that_match_the_filter_are_copied(routes: Routes, pattern: Any) -> None:
    source, dest = routes.pair(filter=pattern)
    source.write(*({"data": tag, "tag": tag} for tag in ("a", "ab", "b")), {"data": "none"})
    expected = ["a", "ab"] if "*" in json.dumps(pattern) else ["a"]
    assert [record["data"] for record in dest.diff()["records"]] == expected
    assert dest.seqs() == list(range(1, len(expected) + 1))


def test_copies_and_direct_writes_share_one_order(routes: Routes) -> None:
    source, dest = routes.pair()
    source.write({"data": "s1"}, {"data": "s2"})
    assert dest.seqs() == [1, 2]
    dest.write({"data": "d"})
    source.write({"data": "s3"})
    assert [record["data"] for record in dest.diff()["records"]] == ["s1", "s2", "d", "s3"]


def test_a_delete_in_the_source_leaves_the_copies(routes: Routes) -> None:
    source, dest = routes.pair()
    source.fill(3)
    source.delete_records(before_seq=4)
    reply = dest.diff()
    assert ([record["$seq"] for record in reply["records"]], reply["tombstone"]) == ([1, 2, 3], None)


def test_the_caps_of_the_dest_are_its_own(routes: Routes) -> None:
    source, dest = routes.pair()
    dest.configure(cap_records=2)
    source.fill(5)
    reply = dest.diff()
    assert [record["$seq"] for record in reply["records"]] == [4, 5]
    assert reply["tombstone"]["reason"] == "cap"
    assert source.seqs() == [1, 2, 3, 4, 5]


def test_a_full_dest_makes_the_router_wait_and_the_source_goes_on(routes: Routes) -> None:
    source, dest, name = routes.topic(), routes.topic(), routes.name()
    dest.configure(cap_records=2, discard="reject")
    routes.put(source, dest, name)
    source.fill(5)
    assert (source.seqs(), dest.seqs()) == ([1, 2, 3, 4, 5], [1, 2])
    assert success(routes.api.get(path_of(name)))["lag"] == 3
    dest.delete_records(before_seq=3)
    assert dest.seqs() == [3, 4]


def test_what_the_source_lost_before_it_was_forwarded_is_one_tombstone(routes: Routes) -> None:
    source, dest = routes.topic(), routes.topic()
    source.configure(cap_records=2)
    dest.configure(cap_records=1, discard="reject")
    routes.put(source, dest)
    source.write({"data": "first"})
    assert dest.seqs() == [1]
    source.write(*({"data": number} for number in range(10)))
    dest.delete_records(before_seq=2)
    dest.configure(cap_records=0)
    eventually(lambda: dest.state()["head_seq"] == 4)
    reply = dest.diff(from_seq=1)
    assert reply["tombstone"] | {"gap_from": 2, "gap_to": 2, "reason": "source_trim"} == reply["tombstone"]
    assert [(record["$seq"], record["data"]) for record in reply["records"]] == [(3, 8), (4, 9)]
    losses = success(routes.api.get(f"{dest.path}/losses"))["losses"]
    assert [(loss["gap_from"], loss["gap_to"], loss["reason"]) for loss in losses] == [(2, 2, "source_trim")]


# Exactly once


def test_exactly_once_stamps_each_copy_with_its_origin(routes: Routes) -> None:
    source, dest, name = routes.topic(), routes.topic(), routes.name()
    routes.put(source, dest, name, guarantee="exactly_once")
    source.write({"data": 1}, {"data": 2, "meta": {"k": "v"}}, {"data": 3, "meta": {"_topics_router": "mine"}})
    metas = [record["meta"] for record in dest.diff()["records"]]
    stamps = [meta.pop("_topics_router") for meta in metas]
    assert metas == [{}, {"k": "v"}, {}]
    assert len(set(stamps)) == 3
    assert all(stamp.startswith(f"{name}/") and stamp.endswith(f"/{seq}") for seq, stamp in enumerate(stamps, 1))


def test_a_route_in_two_steps_has_the_stamp_of_the_last(routes: Routes) -> None:
    a, b, c, name = routes.topic(), routes.topic(), routes.topic(), routes.name()
    routes.put(a, b, guarantee="exactly_once")
    routes.put(b, c, name, guarantee="exactly_once")
    a.write({"data": 1})
    (copy,) = c.diff()["records"]
    assert list(copy["meta"]) == ["_topics_router"]
    assert copy["meta"]["_topics_router"].startswith(f"{name}/")


# The graph


def test_a_cycle_is_refused_with_its_path(routes: Routes) -> None:
    a, b, c = routes.topic(), routes.topic(), routes.topic()
    routes.put(a, b)
    routes.put(b, c)
    reply = routes.api.put(path_of(routes.name()), {"source": c.name, "dest": a.name})
    detail = assert_error(reply, 409, "router_cycle")
    assert detail["cycle"] == [c.name, a.name, b.name, c.name]


def test_a_second_source_is_refused(routes: Routes) -> None:
    a, b, dest = routes.topic(), routes.topic(), routes.topic()
    routes.put(a, dest)
    reply = routes.api.put(path_of(routes.name()), {"source": b.name, "dest": dest.name})
    detail = assert_error(reply, 409, "topic_exists_incompatible")
    assert detail["reason"] == "router_dest_fan_in"
    assert not b.exists()


def test_two_routers_may_have_the_same_ends(routes: Routes) -> None:
    source, dest = routes.topic(), routes.topic()
    routes.put(source, dest, filter="a*")
    routes.put(source, dest, filter="*")
    source.write({"data": 1, "tag": "a"}, {"data": 2, "tag": "b"})
    assert [record["data"] for record in dest.diff()["records"]] == [1, 1, 2]


def test_nodes_that_mirror_each_other_get_every_event_of_the_others_once(routes: Routes) -> None:
    """The multi-master recipe: every node writes to its own topic and reads it without its own events."""
    nodes = [routes.topic() for _ in range(3)]
    for source, dest in zip(nodes, nodes[1:] + nodes[:1], strict=True):
        routes.put(source, dest, allow_cycle=True)
    for number, node in enumerate(nodes):
        node.write({"data": number, "node": f"n{number}"})
    for number, node in enumerate(nodes):
        eventually(lambda node=node: node.state()["head_seq"] == 3)  # type: ignore[misc]
        seen = node.diff(node=f"n{number}")["records"]
        assert sorted(record["data"] for record in seen) == [other for other in range(3) if other != number]
        assert node.diff()["head_seq"] == 3


# Limits and keys


def test_the_router_too_many_is_refused_before_any_topic_is_made(server: StartServer) -> None:
    api = server(TOPICS_MAX_ROUTERS="1").api
    assert api.put("/v0/routers/one", {"source": "a", "dest": "b"}).status == 201
    reply = api.put("/v0/routers/two", {"source": "c", "dest": "d"})
    detail = assert_error(reply, 429, "throttled")
    assert (detail["limit"], detail["max"]) == ("max_routers", 1)
    assert reply.headers["Retry-After"]
    assert [each["topic"] for each in success(api.get("/v0/topics"))["topics"]] == ["a", "b"]
    assert api.put("/v0/routers/one", {"source": "a", "dest": "b", "preserve_tag": False}).status == 200


def test_topics_made_for_a_router_count(server: StartServer) -> None:
    api = server(TOPICS_MAX_TOPICS="1").api
    reply = api.put("/v0/routers/one", {"source": "a", "dest": "b"})
    assert assert_error(reply, 429, "throttled")["limit"] == "max_topics"
    assert success(api.get("/v0/topics"))["topics"] == []


def test_a_limited_key_routes_within_its_prefixes_only(server: StartServer) -> None:
    api = server(TOPICS_API_KEYS="all,few::p:|q:").api
    few = api.with_key("few")
    for path, source, dest in (
        ("/v0/routers/x", "p:a", "p:b"),
        ("/v0/routers/p:x", "x", "p:b"),
        ("/v0/routers/p:x", "p:a", "x"),
    ):
        assert_error(few.put(path, {"source": source, "dest": dest}), 403, "forbidden")
    assert few.put("/v0/routers/p:x", {"source": "p:a", "dest": "q:b"}).status == 201
    everything = api.with_key("all")
    everything.put("/v0/routers/x", {"source": "s", "dest": "t"})
    assert [each["router"] for each in success(few.get("/v0/routers"))["routers"]] == ["p:x"]
    assert [each["router"] for each in success(everything.get("/v0/routers"))["routers"]] == ["p:x", "x"]
    assert_error(few.get("/v0/routers/x"), 403, "forbidden")
    assert_error(few.delete("/v0/routers/x"), 403, "forbidden")


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("PUT", "/v0/routers/r", "admin"),
        ("GET", "/v0/routers/r", "read"),
        ("GET", "/v0/routers", "read"),
        ("DELETE", "/v0/routers/r", "delete"),
    ],
)
def test_each_call_needs_its_scope(scoped_server: Api, method: str, path: str, scope: str) -> None:
    body = {"source": "a", "dest": "b"} if method == "PUT" else None
    for other in ("read", "write", "delete", "admin"):
        api = scoped_server.with_key(other)
        reply = api.request(method, path, body) if body else api.request(method, path)
        assert (reply.status == 403) == (other != scope), (other, reply.status)


@pytest.fixture(scope="module")
def scoped_server(server: StartServer) -> Api:
    return server(TOPICS_API_KEYS="read:read,write:write,delete:delete,admin:admin").api


def test_metrics_show_routers_and_how_far_they_are_behind(server: StartServer) -> None:
    api = server().api
    api.put("/v0/topics/b", {"cap_records": 1, "discard": "reject"})
    api.put("/v0/routers/a->b", {"source": "a", "dest": "b"})
    api.post("/v0/topics/a", {"records": [{"data": 1}, {"data": 2}, {"data": 3}]})
    api.get("/v0/topics/b")
    text = api.get("/v0/metrics").body.decode()
    assert "\ntopics_routers 1\n" in text
    assert '\ntopics_router_lag{router="a->b"} 2\n' in text
    assert '\ntopics_router_forwarded_total{router="a->b"} 1\n' in text
