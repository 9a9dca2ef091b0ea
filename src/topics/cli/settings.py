"""`topics settings check|show`: the settings a server started here and now would use."""

import argparse
import os
import sys

from topics.cli.output import print_json
from topics.cli.parser import Commands, examples
from topics.cli.settings_file import read_settings_file
from topics.cli.table import aligned

WARNED = 1


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser("settings", description="The settings of a server, from a file and the environment.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check",
        help="would a server start with them?",
        description="Says what a server would refuse (exit 2) or warn about (exit 1). Starts nothing, touches nothing.",
        epilog=examples("topics settings check --config /etc/topics/topics.toml"),
    )
    check.set_defaults(run=check_settings)
    show = actions.add_parser(
        "show",
        help="each setting, its value, and where it comes from",
        description="Lists every setting with its value and where it comes from. Keys are counted, never shown.",
        epilog=examples("topics settings show", "topics settings show --config topics.toml --json"),
    )
    show.set_defaults(run=show_settings)
    for action in (check, show):
        action.add_argument("--json", action="store_true", help="print an object")
        action.add_argument("--config", metavar="FILE", help="a file of settings, in TOML")


def check_settings(args: argparse.Namespace) -> int:
    from topics.server.settings import read_settings  # noqa: PLC0415 (help does not wait for the server)

    warnings = read_settings(dict(os.environ), file=_file(args)).warnings
    if args.json:
        print_json({"starts": True, "warnings": list(warnings)})
        return WARNED if warnings else 0
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print("a server would start with these settings" + (", and warn" if warnings else ""))
    return WARNED if warnings else 0


def show_settings(args: argparse.Namespace) -> int:
    from topics.server.settings import describe_settings  # noqa: PLC0415 (as above)

    described = describe_settings(dict(os.environ), _file(args))
    if args.json:
        print_json({each.name: {"value": each.value, "from": each.source} for each in described})
        return 0
    rows = [(each.name, each.value or "–", each.source) for each in described]
    print("\n".join(aligned([("setting", "value", "from"), *rows], (False, False, False))))
    return 0


def _file(args: argparse.Namespace) -> dict[str, str]:
    return read_settings_file(args.config) if args.config else {}
