"""A topic's configuration: what it is, its defaults, and how a partial update is merged into it.

A `TopicConfig` is always whole, resolved and clamped: `durable` says the same as `durability`, and
every number is within its documented range. Only `merge` makes one.
"""

from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from topics import limits
from topics.errors import InvalidRequest, TopicExistsIncompatible
from topics.model.members import at_hand
from topics.model.names import check_topic_name


@at_hand
class TopicType(StrEnum):
    LOG = "log"
    QUEUE = "queue"


@at_hand
class Discard(StrEnum):
    OLD = "old"
    REJECT = "reject"


@at_hand
class Durability(StrEnum):
    EPHEMERAL = "ephemeral"
    MEMORY = "memory"
    DISK = "disk"
    FSYNC = "fsync"


Unsigned = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": limits.U64_MAX})]
Signed32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class TopicConfig(Struct, frozen=True):
    """The whole configuration, in the order replies show it."""

    type: TopicType = TopicType.LOG
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Discard = Discard.OLD
    durable: bool = False
    durability: Durability = Durability.DISK
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False
    schema: Annotated[str | UnsetType, Meta(description="Extension. Absent when unset.")] = UNSET


class TopicConfigPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields that were given. A field that was not keeps its value."""

    type: TopicType | UnsetType = UNSET
    ttl_ms: Unsigned | UnsetType = UNSET
    cap_records: Unsigned | UnsetType = UNSET
    cap_bytes: Unsigned | UnsetType = UNSET
    discard: Discard | UnsetType = UNSET
    durable: bool | UnsetType = UNSET
    durability: Durability | UnsetType = UNSET
    priority: Signed32 | UnsetType | None = UNSET
    auto_priority: bool | UnsetType = UNSET
    auto_create: bool | UnsetType = UNSET
    idempotency_window_ms: Unsigned | UnsetType = UNSET
    dedupe_node: bool | UnsetType = UNSET
    lease_ms: Unsigned | UnsetType = UNSET
    claim_jitter_ms: Unsigned | UnsetType = UNSET
    max_deliveries: Unsigned | UnsetType = UNSET
    dead_letter: str | UnsetType | None = UNSET
    leases_durable: bool | UnsetType = UNSET
    schema: Annotated[
        str | UnsetType | None,
        Meta(description="Extension. Columns of the payload as DDL, for readers such as Spark; null unsets it."),
    ] = UNSET

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if type(value) is int and value > limits.U64_MAX:
                raise ValueError(f"`{field}` is beyond the largest unsigned 64-bit integer")


def clamp(value: int, low: int, high: int) -> int:
    return low if value < low else high if value > high else value


def merge(topic: str, base: TopicConfig, patch: TopicConfigPatch, *, exists: bool) -> TopicConfig:
    """`base` with the given fields of `patch` on top: resolved, clamped and checked."""
    given = {field: value for field in patch.__struct_fields__ if (value := getattr(patch, field)) is not UNSET}
    if exists and given.get("type", base.type) != base.type:
        raise TopicExistsIncompatible(
            f'topic "{topic}" is a {base.type}; its type cannot be changed. Delete it first, or use another name',
            topic=topic,
            type=base.type,
        )
    if "durability" not in given and "durable" in given:
        given["durability"] = Durability.FSYNC if given["durable"] else Durability.DISK
    given["durable"] = given.get("durability", base.durability) is Durability.FSYNC
    if given.get("priority") is not None:
        given["priority"] = clamp(given["priority"], limits.PRIORITY_MIN, limits.PRIORITY_MAX)
    if "lease_ms" in given:
        given["lease_ms"] = clamp(given["lease_ms"], limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
    if "claim_jitter_ms" in given:
        given["claim_jitter_ms"] = clamp(given["claim_jitter_ms"], 0, limits.CLAIM_JITTER_MS_MAX)
    if "schema" in given:
        given["schema"] = _schema_of(given["schema"])
    dead_letter = given.get("dead_letter")
    if dead_letter is not None:
        check_topic_name(dead_letter, "dead_letter")
        if dead_letter == topic:
            raise InvalidRequest.in_field("dead_letter", "must name another topic than this one")
    return structs.replace(base, **given)


def _schema_of(text: str | None) -> str | UnsetType:
    """The server does not understand it; readers do."""
    if text is None:
        return UNSET
    if not text.strip() or len(text.encode()) > limits.TOPIC_SCHEMA_BYTES_MAX:
        raise InvalidRequest.in_field(
            "schema",
            f"must be columns such as 'sku string, total double', at most {limits.TOPIC_SCHEMA_BYTES_MAX} bytes",
        )
    return text


DEFAULT_CONFIG = TopicConfig()
