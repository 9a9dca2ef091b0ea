"""`topics inspect`: what is in one file of a data directory.

Exit status: 0 everything shown is as it was written, 1 something is not, 2 the file could not be read.
"""

import argparse
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import dropwhile

import msgspec

from topics.model.payload import split_payload
from topics.storage.errors import failing_as
from topics.storage.fs import RealDisk
from topics.storage.inspect import Entry, FileKind, entries, kind_of

LIMIT_DEFAULT = 100
PAYLOAD_CHARS_MAX = 80
LIST_ITEMS_MAX = 8
MILLISECONDS_MAX = 253_402_300_799_999  # the last of the year 9999


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "inspect",
        description="Dumps a WAL file, a segment's .data, .idx or .tags, a snapshot or a heads file, good or bad.",
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--limit", type=_limit, default=LIMIT_DEFAULT, metavar="N", help=f"entries shown ({LIMIT_DEFAULT}; 0 is all)"
    )
    parser.add_argument("--from-seq", type=_limit, default=0, metavar="N", help="begin at seq N")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each entry")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    path = os.path.abspath(args.file)
    disk = RealDisk()
    damaged = False
    with failing_as(path, "reading"):
        kind = kind_of(disk, path)
        if not args.json:
            print(f"{path}: {kind}, {disk.size(path)} bytes")
        shown = 0
        for entry in _from(args.from_seq, entries(disk, path, kind)):
            # Bad entries are shown beyond the limit, too: they are what people look for.
            damaged = damaged or bool(entry.wrong)
            if args.limit and shown >= args.limit and not entry.wrong and not _is_verdict(entry):
                continue
            shown += 1
            print(render_json(entry) if args.json else render_text(entry, kind))
    return 1 if damaged else 0


def render_text(entry: Entry, kind: FileKind) -> str:
    words = [f"{entry.offset:>10}", entry.kind]
    if entry.flags:
        words.append(f"[{entry.flags}]")
    if entry.topic_id:
        words.append(f"topic={entry.topic_id}")
    if entry.seq:
        words.append(f"seq={entry.seq}")
    if entry.ts:
        words.append(f"ts={entry.ts} ({_readable(entry.ts)})")
    if entry.node is not None:
        words.append(f"node={_text(entry.node)}")
    if entry.tag is not None:
        words.append(f"tag={_text(entry.tag)}")
    words += [f"{name}={_shortened(value)}" for name, value in entry.fields.items() if name not in {"topic_id"}]
    if entry.payload:
        words.append(_payload(entry.payload))
    if entry.wrong:
        words.append(f"BAD: {entry.wrong}")
    elif kind in (FileKind.WAL, FileKind.SEGMENT) and not _is_verdict(entry):
        words.append("ok")
    return " ".join(words)


def render_json(entry: Entry) -> str:
    data, meta, key = split_payload(entry.payload)
    document: dict[str, object] = {"offset": entry.offset, "kind": entry.kind, "ok": not entry.wrong}
    optional: dict[str, object] = {
        "wrong": entry.wrong,
        "flags": entry.flags,
        "topic_id": entry.topic_id,
        "seq": entry.seq,
        "ts": entry.ts,
        "time": _readable(entry.ts) if entry.ts else "",
        "node": None if entry.node is None else entry.node.decode("utf-8", "replace"),
        "tag": None if entry.tag is None else entry.tag.decode("utf-8", "replace"),
        "data": data.decode("utf-8", "replace"),
        "meta": None if meta is None else meta.decode("utf-8", "replace"),
        "idempotency_key": None if key is None else key.decode("utf-8", "replace"),
    }
    document |= {name: value for name, value in optional.items() if value not in (None, "", 0)}
    return msgspec.json.encode(document | entry.fields).decode()


def _from(seq: int, found: Iterator[Entry]) -> Iterator[Entry]:
    return dropwhile(lambda entry: entry.seq < seq and not entry.wrong and not _is_verdict(entry), found)


def _is_verdict(entry: Entry) -> bool:
    return entry.kind in {"clean end", "torn tail", "corrupt", "unknown version"}


def _payload(blob: bytes) -> str:
    data, meta, key = split_payload(blob)
    words = [_clipped(data.decode("utf-8", "backslashreplace"))]
    if meta is not None:
        words.append(f"meta={_clipped(meta.decode('utf-8', 'backslashreplace'))}")
    if key is not None:
        words.append(f"key={_text(key)}")
    return " ".join(words)


def _text(value: bytes) -> str:
    return repr(_clipped(value.decode("utf-8", "backslashreplace")))


def _shortened(value: object) -> str:
    if isinstance(value, list) and len(value) > LIST_ITEMS_MAX:
        return f"[{', '.join(map(str, value[:LIST_ITEMS_MAX]))}, … {len(value) - LIST_ITEMS_MAX} more]"
    return _clipped(value) if isinstance(value, str) else str(value)


def _clipped(text: str) -> str:
    """One line of bounded length, without anything a terminal would act upon."""
    line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[: PAYLOAD_CHARS_MAX + 1])
    return line if len(text) <= PAYLOAD_CHARS_MAX else f"{line[:-1]}… ({len(text)} characters)"


def _readable(ts: int) -> str:
    if ts > MILLISECONDS_MAX:
        return "beyond the year 9999"
    return datetime.fromtimestamp(ts / 1000, UTC).isoformat(" ", "milliseconds").replace("+00:00", "Z")


def _limit(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value
