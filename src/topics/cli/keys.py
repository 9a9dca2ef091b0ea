"""`topics keys generate`: a new API key, and what lets it in: an entry of TOPICS_API_KEYS, or a line of a file."""

import argparse
import hashlib
import secrets

from topics.cli.output import print_json
from topics.cli.parser import Commands, examples

KEY_BYTES = 32
SCOPES = ("read", "write", "delete", "admin")


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser("keys", description="Makes API keys. Nothing is sent anywhere.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    generate = actions.add_parser(
        "generate",
        help="a new key",
        description="Prints a new key of 256 random bits, and what lets it in: its line for the server's "
        "TOPICS_API_KEYS_FILE, which has only its hash, and its entry for TOPICS_API_KEYS.",
        epilog=examples(
            "topics keys generate                                        # may do everything",
            "topics keys generate --scopes read+write --prefix tenant42: # two scopes, one tenant",
        ),
    )
    generate.add_argument("--scopes", type=_scopes, default=(), help=f"some of {'+'.join(SCOPES)} (all)")
    generate.add_argument(
        "--prefix",
        type=_prefix,
        action="append",
        default=[],
        help="only topics whose names begin with this (repeatable)",
    )
    generate.add_argument("--json", action="store_true", help="print an object")
    generate.set_defaults(run=generate_key)


def generate_key(args: argparse.Namespace) -> int:
    key = secrets.token_urlsafe(KEY_BYTES)
    rights = ""
    if args.scopes or args.prefix:
        rights += f":{'+'.join(args.scopes)}"
    if args.prefix:
        rights += f":{'|'.join(args.prefix)}"
    entry = key + rights
    line = f"sha256:{hashlib.sha256(key.encode()).hexdigest()}{rights}"
    if args.json:
        scopes = list(args.scopes or SCOPES)
        print_json({"key": key, "entry": entry, "file_line": line, "scopes": scopes, "prefixes": args.prefix})
        return 0
    print(f"key:    {key}")
    print(f"server: add the line to the file TOPICS_API_KEYS_FILE names, and send the server SIGHUP\n        {line}")
    print(f"    or: add the entry to TOPICS_API_KEYS (separated by commas) and restart\n        {entry}")
    print(f"client: export TOPICS_API_KEY={key}")
    return 0


def _scopes(text: str) -> tuple[str, ...]:
    scopes = tuple(text.split("+"))
    for scope in scopes:
        if scope not in SCOPES:
            raise argparse.ArgumentTypeError(f"{scope!r} is not one of {', '.join(SCOPES)}; join them with +")
    return scopes


def _prefix(text: str) -> str:
    if not text or "," in text or "|" in text:
        raise argparse.ArgumentTypeError(f"{text!r}: a prefix needs at least one character, and no comma or |")
    return text
