"""An engine on a journal that commits when told."""

from collections.abc import Callable

import pytest
from engine_on_a_fake_clock import EngineOnAFakeClock

from doubles.manual_journal import ManualJournal
from topics.engine.engine import Appended
from topics.engine.journal import Busy, Commit
from topics.model.config import Durability, TopicConfigPatch
from topics.model.operation import TopicCreated

FSYNC = TopicConfigPatch(durability=Durability.FSYNC)
LOW_CLASSES = [Durability.EPHEMERAL, Durability.MEMORY]


class Journalled(EngineOnAFakeClock):
    """An engine with one topic, on a journal that commits when told."""

    def __init__(self, patch: TopicConfigPatch = FSYNC, topics_max: int = 0, total_bytes_max: int = 0) -> None:
        self.journal = ManualJournal()
        super().__init__(topics_max, total_bytes_max, self.journal)
        self.configure(patch)
        self.journal.commit()
        (created,) = self.journal.of(TopicCreated)
        self.created_with = created.ceiling
        self.journal.batches.clear()

    def commit_of(self, busy_call: Callable[[], object]) -> Commit:
        """What a call that would reveal too much has to wait for."""
        with pytest.raises(Busy) as busy:
            busy_call()
        return busy.value.commit

    def reconfigure(self, patch: TopicConfigPatch) -> None:
        self.configure(patch)
        self.journal.commit()


def waited(appended: Appended) -> Commit:
    assert appended.commit is not None
    return appended.commit
