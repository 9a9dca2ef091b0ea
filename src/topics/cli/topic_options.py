"""The options that stand for a topic's configuration, for `create` and `config` alike, and how it is shown."""

import argparse
from collections.abc import Mapping
from typing import Any

from topics.cli.output import byte_count, duration, harmless
from topics.cli.values import duration_ms, size_bytes, whole_number

DURATIONS = {"ttl_ms", "idempotency_window_ms", "lease_ms", "claim_jitter_ms"}
ONLY_OF_QUEUES = {"lease_ms", "claim_jitter_ms", "max_deliveries", "dead_letter", "leases_durable"}


def add_topic_options(parser: argparse.ArgumentParser) -> None:
    """Each is left out of the request unless it is given."""
    keep = parser.add_argument_group("what is kept")
    keep.add_argument(
        "--ttl",
        dest="ttl_ms",
        type=duration_ms,
        metavar="TIME",
        help="records expire after this long: 30m, 7d; 0 is never",
    )
    keep.add_argument(
        "--cap-records", type=whole_number, metavar="N", help="keep at most this many records; 0 is no cap"
    )
    keep.add_argument(
        "--cap-bytes", type=size_bytes, metavar="SIZE", help="keep at most this many bytes: 10MB, 1GiB; 0 is no cap"
    )
    keep.add_argument("--discard", choices=("old", "reject"), help="at a cap: evict the oldest, or refuse writes")
    keep.add_argument(
        "--durability", choices=("ephemeral", "memory", "disk", "fsync"), help="what a crash may take (disk)"
    )
    keep.add_argument(
        "--idempotency-window",
        dest="idempotency_window_ms",
        type=duration_ms,
        metavar="TIME",
        help="how long a write's key is remembered (2m)",
    )
    keep.add_argument(
        "--schema", metavar="DDL", help="the fields of the data, for Spark: 'sku bigint, total double'; none removes it"
    )
    deliver = parser.add_argument_group("delivery")
    deliver.add_argument("--priority", type=_priority, metavar="N", help="-1000 to 1000, or auto")
    deliver.add_argument(
        "--dedupe-node", type=_yes_or_no, metavar="yes|no", help="do not deliver a reader's own records to it"
    )
    queue = parser.add_argument_group("queues")
    queue.add_argument(
        "--lease", dest="lease_ms", type=duration_ms, metavar="TIME", help="how long a job is leased (30s)"
    )
    queue.add_argument(
        "--max-deliveries", type=whole_number, metavar="N", help="deliveries until a job is a dead letter; 0 is never"
    )
    queue.add_argument("--dead-letter", metavar="TOPIC", help="where dead letters go; none for nowhere")
    queue.add_argument(
        "--claim-jitter",
        dest="claim_jitter_ms",
        type=duration_ms,
        metavar="TIME",
        help="claims within this time share the jobs",
    )
    queue.add_argument("--leases-durable", type=_yes_or_no, metavar="yes|no", help="leases survive a crash")


FIELDS = (
    "ttl_ms",
    "cap_records",
    "cap_bytes",
    "discard",
    "durability",
    "idempotency_window_ms",
    "schema",
    "priority",
    "dedupe_node",
    "lease_ms",
    "max_deliveries",
    "dead_letter",
    "claim_jitter_ms",
    "leases_durable",
)


def chosen(args: argparse.Namespace) -> dict[str, Any]:
    """The fields that were given. `auto` and `none` are null on the wire."""
    given = {field: getattr(args, field) for field in FIELDS if getattr(args, field) is not None}
    if given.get("priority") == "auto":
        given["priority"] = None
    for field in ("dead_letter", "schema"):
        if given.get(field) == "none":
            given[field] = None
    return given


def shown(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A configuration for people, field by field: those that are set, and those of queues only for queues."""
    from msgspec import UNSET  # noqa: PLC0415 (help does not wait for it)

    left_out: set[str] = set() if config.get("type") == "queue" else ONLY_OF_QUEUES
    return [
        (field, _value(field, value)) for field, value in config.items() if field not in left_out and value is not UNSET
    ]


def _value(field: str, value: Any) -> str:
    if field in DURATIONS:
        return duration(value) if value else ("never" if field == "ttl_ms" else "0")
    if field == "cap_bytes":
        return byte_count(value) if value else "none"
    if field in {"cap_records", "max_deliveries"}:
        return f"{value:,}" if value else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "automatic" if field == "priority" else "none"
    return harmless(str(value))


def _yes_or_no(text: str) -> bool:
    if text not in {"yes", "no"}:
        raise argparse.ArgumentTypeError(f"{text!r}: say yes or no")
    return text == "yes"


def _priority(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor auto") from None
