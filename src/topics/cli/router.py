"""`topics router ls|add|rm|graph`: routers copy what is written to one topic into another."""

import argparse
from typing import TYPE_CHECKING

from topics.cli.connection import add_options, connect
from topics.cli.output import harmless, print_json, print_table
from topics.cli.parser import Commands, examples
from topics.cli.router_graph import dot, drawn

if TYPE_CHECKING:
    from topics.client.sync_client import Client
    from topics.wire.responses import RouterResponse

MISSING = 1


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "router",
        description="Routers copy every record written to a source from now on into a dest.",
        epilog=examples(
            "topics router add orders audit",
            "topics router add orders vip --filter 'vip:*'",
            "topics router graph",
            "topics router rm 'orders->audit'",
        ),
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("ls", help="list the routers")
    listing.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only names that begin with this")
    listing.set_defaults(run=list_routers)
    adding = actions.add_parser("add", help="make a router, or change one")
    adding.add_argument("source", metavar="SOURCE")
    adding.add_argument("dest", metavar="DEST")
    adding.add_argument("--name", help="its name (SOURCE->DEST)")
    adding.add_argument("--filter", metavar="TAG", help="only records with this tag; a * at its end matches any ending")
    adding.add_argument("--allow-cycle", action="store_true", help="allow it to lead back to its source")
    adding.add_argument("--exactly-once", action="store_true", help="note the origin in each copy's meta")
    adding.set_defaults(run=add_router)
    removal = actions.add_parser("rm", help="remove a router; its copies stay")
    removal.add_argument("router", metavar="ROUTER")
    removal.set_defaults(run=remove_router)
    graph = actions.add_parser("graph", help="who copies to whom, drawn")
    graph.add_argument("--dot", action="store_true", help="for Graphviz: topics router graph --dot | dot -Tsvg")
    graph.set_defaults(run=draw_graph)
    for each in (listing, adding, removal, graph):
        add_options(each)


def list_routers(args: argparse.Namespace) -> int:
    with connect(args) as client:
        routers = _all(client, args.prefix)
    if args.json:
        for router in routers:
            print_json(router)
    elif not routers:
        print("no routers; make one: topics router add SOURCE DEST")
    else:
        rows = [
            (
                r.router,
                r.source,
                r.dest,
                harmless(r.filter[2]) if r.filter else "",
                f"{r.forwarded_total:,}",
                f"{r.lag:,}",
            )
            for r in routers
        ]
        to_right = (False, False, False, False, True, True)
        print_table(("router", "source", "dest", "only tag", "copied", "lag"), rows, to_right)
    return 0


def add_router(args: argparse.Namespace) -> int:
    name = args.name or f"{args.source}->{args.dest}"
    guarantee = "exactly_once" if args.exactly_once else "at_least_once"
    with connect(args) as client:
        reply = client.put_router(
            name, args.source, args.dest, filter=args.filter, allow_cycle=args.allow_cycle, guarantee=guarantee
        )
    if args.json:
        print_json(reply)
    else:
        print(f"{name} copies {args.source} to {args.dest}" + (" from now on" if reply.created else ", as it did"))
    return 0


def remove_router(args: argparse.Namespace) -> int:
    with connect(args) as client:
        reply = client.delete_router(args.router)
    if args.json:
        print_json(reply)
    else:
        print(f"ended {args.router}; its copies stay" if reply.deleted else f"there is no router {args.router}")
    return 0 if reply.deleted else MISSING


def draw_graph(args: argparse.Namespace) -> int:
    with connect(args) as client:
        routers = _all(client, "")
    if args.json:
        for router in routers:
            print_json(router)
    elif args.dot:
        print(dot(routers), end="")
    else:
        print("\n".join(drawn(routers)) or "no routers; make one: topics router add SOURCE DEST")
    return 0


def _all(client: "Client", prefix: str) -> "list[RouterResponse]":
    """In full, one by one: the list has neither filter nor lag."""
    return [client.router(summary.router) for summary in client.routers(prefix)]
