"""What topics without routers, keys, cursors or losses share stays empty, whoever tries."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from topics.engine.topic import NO_EXTRAS, NO_ROUTERS
from topics.model.gap import GapReason
from topics.model.producer import RememberedWrite

CHANGES: list[Callable[[], object]] = [
    lambda: cast(Any, NO_ROUTERS).update({1: None}),
    lambda: cast(Any, NO_ROUTERS).pop(1, None),
    lambda: NO_EXTRAS.cursors.pop("name", None),
    lambda: NO_EXTRAS.hops.update({1: 1}),
    lambda: NO_EXTRAS.pending_keys.pop("key", None),
    lambda: NO_EXTRAS.pending_producers.pop("name", None),
    lambda: NO_EXTRAS.keys.remember("key", 1, 1, 0),
    lambda: NO_EXTRAS.keys.restore("key", RememberedWrite(1, 1, 0)),
    lambda: NO_EXTRAS.losses.note(1, 1, GapReason.CAP, 0),
]


@pytest.mark.parametrize("change", CHANGES)
def test_nobody_can_change_what_all_topics_share(change: Callable[[], object]) -> None:
    with pytest.raises((AttributeError, AssertionError)):
        change()
    extras = NO_EXTRAS
    maps = (NO_ROUTERS, extras.cursors, extras.hops, extras.pending_keys, extras.pending_producers)
    assert not any(maps)
    assert len(extras.keys) == len(extras.losses) == 0
