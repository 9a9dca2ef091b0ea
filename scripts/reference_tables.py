"""Writes the tables of the documents that say what is in the code: settings, metrics, errors, commands.

    python scripts/reference_tables.py            # after a change of any of them
    python scripts/reference_tables.py --check    # exits with 1 if a table is not what the code says

A table stands between `<!-- generated: NAME … -->` and `<!-- end -->`. What a setting means is written in its table and
kept; a setting without a meaning is refused. Everything else comes from the code: names and defaults, the help texts of
a real scrape, the docstrings of errors, the help of the command line.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.request import urlopen

from topics import testing
from topics.api.error_mapping import STATUSES
from topics.cli.commands import GROUPS
from topics.errors import TopicsError
from topics.server.settings import describe_settings

DOCS = Path(__file__).parents[1] / "docs"
TABLES = {"settings": "settings.md", "metrics": "metrics.md", "errors": "api.md", "commands": "cli.md"}
BLOCK = "<!-- generated: {name} [^>]*-->\n(?P<table>.*?)<!-- end -->"
ROW = re.compile(r"^\| `(?P<name>\w+)` \| .*? \| (?P<meaning>.+) \|$", re.MULTILINE)
# Defaults that are not the same everywhere, or not what the setting itself holds.
DEFAULTS = {"TOPICS_WAL_SHARDS": "CPUs, at most 8", "TOPICS_LOG": "`info`"}
NOT_OURS = "RUST_LOG"
SAMPLE = re.compile(r"(?P<name>\w+?)(?:_bucket|_sum|_count)?\{(?P<labels>.*)\} ")


def table(heading: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = list(heading)
    lines = [cells, ["---"] * len(cells), *rows]
    return "".join(f"| {' | '.join(line)} |\n".replace("| --- ", "|---").replace("|--- |", "|---|") for line in lines)


def settings(before: str) -> str:
    meanings = {row["name"]: row["meaning"] for row in ROW.finditer(before)}
    known = [each for each in describe_settings({}, {}) if each.name != NOT_OURS]
    missing = [each.name for each in known if each.name not in meanings]
    if missing:
        sys.exit(
            f"say in {DOCS / TABLES['settings']} what {', '.join(missing)} means: add a row by hand, then run this"
        )
    order = {name: place for place, name in enumerate(meanings)}
    known.sort(key=lambda each: order[each.name])
    rows = (
        (f"`{each.name}`", DEFAULTS.get(each.name) or (f"`{each.value}`" if each.value else "–"), meanings[each.name])
        for each in known
    )
    return table(("Variable", "Default", "Meaning"), rows)


def metrics(_: str) -> str:
    return table(("Metric", "Type", "Meaning"), _scraped())


def _scraped() -> Iterator[tuple[str, str, str]]:
    """Of a server that has something of everything, so that every family has a sample with its labels."""
    with testing.server() as server:
        with server.client() as client:
            client.create("jobs", type="queue", durable=True)
            client.append("jobs", 1)
            client.put_router("copy", "orders", "copies")
            client.append("orders", 1)
            client.set_cursor("orders", "reader", 0)
        with urlopen(f"{server.url}/v0/metrics") as reply:
            text = reply.read().decode()
    labels = {found["name"]: re.findall(r"(\w+)=", found["labels"]) for found in SAMPLE.finditer(text)}
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    for name, meaning in re.findall(r"^# HELP (\w+) (.+)$", text, re.MULTILINE):
        own = [label for label in labels.get(name, []) if label != "le"]
        yield f"`{name}{{{','.join(own)}}}`" if own else f"`{name}`", kinds[name], meaning


def errors(_: str) -> str:
    kinds = sorted([*STATUSES.items(), (TopicsError, 500)], key=lambda each: each[1])
    rows = ((str(status), f"`{kind.code}`", _advice(kind)) for kind, status in kinds)
    return table(("Status", "`code`", "What it means, and what to do"), rows)


def _advice(kind: type[TopicsError]) -> str:
    if kind is TopicsError:
        return "A bug; the server's log has it under `detail.request_id`."
    return " ".join((kind.__doc__ or "").split()).replace("|", "\\|")


def commands(_: str) -> str:
    rows = (
        (group if first else "", f"`topics {name}`", what)
        for group, each in GROUPS.items()
        for first, (name, (_, what)) in zip([True] + [False] * len(each), each.items(), strict=False)
    )
    return table(("", "Command", "Does"), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the tables of the documents that say what is in the code.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if something would change")
    check = parser.parse_args().check
    stale = []
    for name, document in TABLES.items():
        path = DOCS / document
        text = path.read_text()
        found = re.search(BLOCK.format(name=name), text, re.DOTALL)
        if found is None:
            sys.exit(f"{path} has no place for the table {name}")
        made = globals()[name](found["table"])
        if made == found["table"]:
            continue
        stale.append(f"docs/{document}")
        if not check:
            path.write_text(text[: found.start("table")] + made + text[found.end("table") :])
    if stale:
        print(f"{'not what the code says' if check else 'written'}: {', '.join(stale)}")
    return int(bool(stale) and check)


if __name__ == "__main__":
    sys.exit(main())
