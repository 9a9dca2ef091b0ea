"""Routers as a drawing: a tree for each topic that is only a source, with branches to the topics it is copied to."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from topics.cli.output import harmless

if TYPE_CHECKING:
    from topics.wire.responses import RouterResponse


def drawn(routers: "Sequence[RouterResponse]") -> Iterator[str]:
    """Lines of text. On a cycle, a topic that is drawn already is named again and not followed."""
    outgoing: dict[str, list[RouterResponse]] = {}
    for router in sorted(routers, key=lambda router: router.dest):
        outgoing.setdefault(router.source, []).append(router)
    fed = {router.dest for router in routers}
    seen: set[str] = set()
    # Topics that nothing is copied to come first; the rest lie on cycles, and begin anywhere.
    for start in [*sorted(outgoing.keys() - fed), *sorted(outgoing.keys() & fed)]:
        if start not in seen:
            yield start
            seen.add(start)
            yield from _branches(start, "", outgoing, seen)


def _branches(topic: str, indent: str, outgoing: "dict[str, list[RouterResponse]]", seen: set[str]) -> Iterator[str]:
    routers = outgoing.get(topic, [])
    for router in routers:
        last = router is routers[-1]
        again = router.dest in seen
        only = f"only {harmless(router.filter[2])}, " if router.filter else ""
        behind = f", {router.lag:,} behind" if router.lag else ""
        told = f"({only}{router.forwarded_total:,} copied{behind}){'  ↺' if again else ''}"
        yield f"{indent}{'└─►' if last else '├─►'} {router.dest}  {told}"
        if not again:
            seen.add(router.dest)
            yield from _branches(router.dest, f"{indent}{'    ' if last else '│   '}", outgoing, seen)


def dot(routers: "Sequence[RouterResponse]") -> str:
    """The graph for Graphviz. Names of topics hold no quotes; tags may."""
    lines = [f'  "{router.source}" -> "{router.dest}" [label="{_label(router)}"];' for router in routers]
    return "\n".join(["digraph routers {", "  rankdir=LR;", *lines, "}", ""])


def _label(router: "RouterResponse") -> str:
    return router.filter[2].replace("\\", "\\\\").replace('"', '\\"') if router.filter else ""
