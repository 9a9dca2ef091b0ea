"""Routers, drawn."""

from topics.cli.router_graph import dot, drawn
from topics.wire.responses import Performance, RouterResponse


def router(source: str, dest: str, only: str = "", lag: int = 0) -> RouterResponse:
    return RouterResponse(
        router=f"{source}->{dest}",
        source=source,
        dest=dest,
        preserve_node=True,
        preserve_tag=True,
        filter=("tag", "Glob", only) if only else None,
        allow_cycle=False,
        guarantee="at_least_once",
        forwarded_total=1200,
        lag=lag,
        performance=Performance(0.1),
    )


def test_a_tree_has_a_branch_for_each_dest() -> None:
    routers = [router("orders", "vip", "vip:*"), router("orders", "audit", lag=7), router("audit", "archive")]
    assert list(drawn(routers)) == [
        "orders",
        "├─► audit  (1,200 copied, 7 behind)",
        "│   └─► archive  (1,200 copied)",
        "└─► vip  (only vip:*, 1,200 copied)",
    ]


def test_a_cycle_is_drawn_once_and_marked() -> None:
    assert list(drawn([router("a", "b"), router("b", "a")])) == [
        "a",
        "└─► b  (1,200 copied)",
        "    └─► a  (1,200 copied)  ↺",
    ]


def test_nothing_is_drawn_of_nothing() -> None:
    assert list(drawn([])) == []


def test_graphviz_gets_tags_in_quotes() -> None:
    assert dot([router("a", "b", 'x"\\')]) == 'digraph routers {\n  rankdir=LR;\n  "a" -> "b" [label="x\\"\\\\"];\n}\n'
