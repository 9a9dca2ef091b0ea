"""Whether the server serves."""

import pytest

from topics.api.readiness import Phase, Readiness
from topics.errors import NotReady, ShuttingDown


def test_a_new_server_is_recovering_and_says_how_far() -> None:
    readiness = Readiness()
    readiness.replay_progress = 1 / 3
    with pytest.raises(NotReady) as refused:
        readiness.require()
    assert refused.value.detail == {"replay_progress": 0.3333}


def test_a_ready_server_raises_nothing() -> None:
    readiness = Readiness()
    readiness.phase = Phase.READY
    readiness.require()


def test_a_stopping_server_says_so() -> None:
    readiness = Readiness()
    readiness.phase = Phase.STOPPING
    with pytest.raises(ShuttingDown):
        readiness.require()
