"""A topic's configuration: defaults, merging, resolving and clamping."""

import msgspec
import pytest

from topics import limits
from topics.errors import InvalidRequest, TopicExistsIncompatible
from topics.model.config import (
    DEFAULT_CONFIG,
    Discard,
    Durability,
    TopicConfig,
    TopicConfigPatch,
    TopicType,
    clamp,
    merge,
)


def created(patch: TopicConfigPatch) -> TopicConfig:
    return merge("t", DEFAULT_CONFIG, patch, exists=False)


def test_the_defaults_are_those_of_the_api_document() -> None:
    assert msgspec.to_builtins(created(TopicConfigPatch())) == {
        "type": "log",
        "ttl_ms": 0,
        "cap_records": 0,
        "cap_bytes": 0,
        "discard": "old",
        "durable": False,
        "durability": "disk",
        "priority": None,
        "auto_priority": True,
        "auto_create": True,
        "idempotency_window_ms": 120_000,
        "dedupe_node": True,
        "lease_ms": 30_000,
        "claim_jitter_ms": 0,
        "max_deliveries": 0,
        "dead_letter": None,
        "leases_durable": False,
    }


def test_a_patch_has_every_field_of_the_configuration_in_the_same_order() -> None:
    assert TopicConfigPatch.__struct_fields__ == TopicConfig.__struct_fields__


def test_only_the_given_fields_change() -> None:
    base = TopicConfig(ttl_ms=5, cap_records=7, discard=Discard.REJECT)
    assert merge("t", base, TopicConfigPatch(cap_records=9), exists=True) == TopicConfig(
        ttl_ms=5, cap_records=9, discard=Discard.REJECT
    )


@pytest.mark.parametrize(
    ("patch", "durability"),
    [
        (TopicConfigPatch(durable=True), Durability.FSYNC),
        (TopicConfigPatch(durable=False), Durability.DISK),
        (TopicConfigPatch(durability=Durability.MEMORY), Durability.MEMORY),
        (TopicConfigPatch(durability=Durability.EPHEMERAL, durable=True), Durability.EPHEMERAL),
        (TopicConfigPatch(durability=Durability.FSYNC, durable=False), Durability.FSYNC),
    ],
)
def test_an_explicit_durability_wins_over_durable(patch: TopicConfigPatch, durability: Durability) -> None:
    assert created(patch).durability is durability


@pytest.mark.parametrize("durability", list(Durability))
def test_durable_is_true_for_fsync_alone(durability: Durability) -> None:
    assert created(TopicConfigPatch(durability=durability)).durable is (durability is Durability.FSYNC)


def test_a_patch_without_durability_keeps_the_class() -> None:
    base = created(TopicConfigPatch(durability=Durability.FSYNC))
    merged = merge("t", base, TopicConfigPatch(ttl_ms=1), exists=True)
    assert (merged.durability, merged.durable) == (Durability.FSYNC, True)


def test_durable_false_turns_memory_into_disk() -> None:
    base = created(TopicConfigPatch(durability=Durability.MEMORY))
    assert merge("t", base, TopicConfigPatch(durable=False), exists=True).durability is Durability.DISK


@pytest.mark.parametrize(("given", "kept"), [(-1001, -1000), (-1000, -1000), (0, 0), (1000, 1000), (2**31 - 1, 1000)])
def test_priority_is_clamped(given: int, kept: int) -> None:
    assert created(TopicConfigPatch(priority=given)).priority == kept


def test_priority_can_be_given_back_to_the_automatic() -> None:
    base = created(TopicConfigPatch(priority=5))
    assert merge("t", base, TopicConfigPatch(priority=None), exists=True).priority is None


@pytest.mark.parametrize(("given", "kept"), [(0, 100), (99, 100), (86_400_001, 86_400_000), (500, 500)])
def test_lease_ms_is_clamped(given: int, kept: int) -> None:
    assert created(TopicConfigPatch(lease_ms=given)).lease_ms == kept


@pytest.mark.parametrize(("given", "kept"), [(0, 0), (5000, 5000), (5001, 5000)])
def test_claim_jitter_ms_is_clamped(given: int, kept: int) -> None:
    assert created(TopicConfigPatch(claim_jitter_ms=given)).claim_jitter_ms == kept


def test_the_type_of_an_existing_topic_cannot_change() -> None:
    with pytest.raises(TopicExistsIncompatible) as refused:
        merge("t", DEFAULT_CONFIG, TopicConfigPatch(type=TopicType.QUEUE), exists=True)
    assert refused.value.detail == {"topic": "t", "type": "log"}


def test_a_new_topic_may_have_any_type() -> None:
    assert created(TopicConfigPatch(type=TopicType.QUEUE)).type is TopicType.QUEUE


def test_naming_the_same_type_again_is_no_change() -> None:
    queue = TopicConfig(type=TopicType.QUEUE)
    assert merge("t", queue, TopicConfigPatch(type=TopicType.QUEUE), exists=True) == queue


def test_a_topic_cannot_be_its_own_dead_letter() -> None:
    with pytest.raises(InvalidRequest) as refused:
        created(TopicConfigPatch(dead_letter="t"))
    assert refused.value.detail == {"field": "dead_letter"}


def test_dead_letter_must_be_a_topic_name() -> None:
    with pytest.raises(InvalidRequest) as refused:
        created(TopicConfigPatch(dead_letter="no such name"))
    assert refused.value.detail == {"field": "dead_letter"}


def test_dead_letter_can_be_taken_back() -> None:
    base = created(TopicConfigPatch(dead_letter="dlq"))
    assert base.dead_letter == "dlq"
    assert merge("t", base, TopicConfigPatch(dead_letter=None), exists=True).dead_letter is None


@pytest.mark.parametrize("field", ["ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "max_deliveries"])
def test_unsigned_fields_take_the_whole_range(field: str) -> None:
    patch = msgspec.convert({field: limits.U64_MAX}, TopicConfigPatch)
    assert getattr(created(patch), field) == limits.U64_MAX


@pytest.mark.parametrize("field", ["ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "lease_ms"])
def test_unsigned_fields_stop_at_the_largest_64_bit_number(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: limits.U64_MAX + 1}, TopicConfigPatch)


@pytest.mark.parametrize(("value", "clamped"), [(-1, 0), (0, 0), (5, 5), (10, 10), (11, 10)])
def test_clamp_keeps_a_value_between_its_bounds(value: int, clamped: int) -> None:
    assert clamp(value, 0, 10) == clamped
