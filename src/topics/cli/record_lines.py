"""Records and losses as lines, for `tail`, `watch`, `delete` and `queue peek`: columns for people, or JSON.

A loss is a line of its own, in red, with its range and reason, and in JSON an object with `$lost`. No loss is left out.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from topics.cli.output import Paint, Style, clock_time, harmless, print_json
from topics.cli.values import at_path, json_path

if TYPE_CHECKING:
    from topics.client.events import Event, Gap

KNOWN_FIELDS = ("topic", "seq", "ts", "tag", "node", "meta", "data")
SEQ_WIDTH = 6
REASONS = {
    "cap": "the topic is full",
    "ttl": "expired",
    "crash": "a crash took them",
    "source_trim": "lost at the source before they were copied",
    "recreated": "this is another topic of the same name",
    "mixed": "for several reasons",
    "from_seq_too_old": "gone before this reader came",
}


def fields_of(text: str) -> tuple[str, ...]:
    """`seq,tag,.sku`: known names, and paths into the data."""
    fields = tuple(text.split(","))
    for field in fields:
        if field not in KNOWN_FIELDS and not field.startswith("."):
            raise argparse.ArgumentTypeError(
                f"there is no field {field!r}; use some of {', '.join(KNOWN_FIELDS)}, or a path into the data as .sku"
            )
    return fields


class RecordLines:
    """Prints events and gaps. `several` topics get a column for their names, as wide as those known so far."""

    def __init__(
        self, as_json: bool, fields: tuple[str, ...] = (), several: bool = False, known: Iterable[str] = ()
    ) -> None:
        self._json = as_json
        self._fields = fields
        self._several = several
        self._paint = Paint(sys.stdout)
        self._topic_width = max(map(len, known), default=0)

    def item(self, item: "Event[Any] | Gap") -> None:
        from topics.client.events import Gap  # noqa: PLC0415 (help does not wait for it)

        if isinstance(item, Gap):
            self.gap(item)
        else:
            self.event(item)

    def event(self, event: "Event[Any]") -> None:
        if self._json:
            print_json(self._object(event))
        else:
            self.line("  ".join(self._cells(event)).rstrip())

    def gap(self, gap: "Gap") -> None:
        count = gap.last - gap.first + 1
        if self._json:
            lost = {"first": gap.first, "last": gap.last, "reason": gap.reason, "count": count}
            print_json({"$topic": gap.topic, "$lost": lost})
            return
        seqs = f"seq {gap.first:,}" if count == 1 else f"seqs {gap.first:,} to {gap.last:,}"
        why = REASONS.get(gap.reason)
        text = f"lost {seqs} ({gap.reason}{f': {why}' if why else ''})"
        self.line(self._paint(f"✗ {self._topic(gap.topic)}{text}", Style.RED))

    def note(self, topic: str, what: str) -> None:
        """Something else that happened; only for people."""
        self.line(self._paint(f"· {self._topic(topic)}{what}", Style.DIM))

    def line(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def _topic(self, topic: str) -> str:
        return f"{topic}: " if self._several and topic else ""

    def _cells(self, event: "Event[Any]") -> list[str]:
        if self._fields:
            return [self._cell(event, field) for field in self._fields]
        paint = self._paint
        cells = [paint(f"{event.seq:>{SEQ_WIDTH}}", Style.DIM), paint(clock_time(event.ts), Style.DIM)]
        if self._several:
            self._topic_width = max(self._topic_width, len(event.topic))
            cells.insert(0, paint(f"{event.topic:<{self._topic_width}}", Style.CYAN))
        if event.tag is not None:
            cells.append(paint(harmless(event.tag), Style.YELLOW))
        cells.append(harmless(bytes(event.raw).decode()))
        if event.meta:
            cells.append(paint(" ".join(f"{harmless(k)}={harmless(v)}" for k, v in event.meta.items()), Style.DIM))
        return cells

    def _cell(self, event: "Event[Any]", field: str) -> str:
        if field == "data":
            return harmless(bytes(event.raw).decode())
        value = self._value(event, field)
        if field == "ts":
            return clock_time(event.ts)
        if value is None:
            return ""
        if isinstance(value, str):
            return harmless(value)
        import msgspec  # noqa: PLC0415 (the client has it already)

        return msgspec.json.encode(value).decode()

    def _value(self, event: "Event[Any]", field: str) -> Any:
        # The standard library's decoder: it takes every number there is.
        return (
            at_path(json.loads(bytes(event.raw)), json_path(field)) if field.startswith(".") else getattr(event, field)
        )

    def _object(self, event: "Event[Any]") -> dict[str, Any]:
        """As the wire has it, with the topic; or the fields asked for."""
        if self._fields:
            return {field: event.raw if field == "data" else self._value(event, field) for field in self._fields}
        known = {"$topic": event.topic, "$seq": event.seq, "$ts": event.ts, "$tag": event.tag, "$node": event.node}
        found = {name: value for name, value in known.items() if value is not None}
        return found | ({"meta": event.meta} if event.meta else {}) | {"data": event.raw}
