"""Folds: when increments have outgrown their base, a thread folds them into a new one. Nobody waits for it."""

import logging
from concurrent.futures import Future, ThreadPoolExecutor

from topics.storage.checkpoint import Checkpoints
from topics.storage.errors import StorageError

log = logging.getLogger("topics.fold")


class Folds:
    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="fold")
        self._under_way: Future[None] | None = None
        self.checkpoints: Checkpoints | None = None  # whose increments they are

    def fold_if_due(self, *, room_is_low: bool) -> None:
        """Tells the thread to look, unless it is already busy."""
        if self._under_way is None or self._under_way.done():
            self._under_way = self._worker.submit(self._look, room_is_low)

    def fold(self, *, room_is_low: bool = False) -> None:
        """Makes a base of what is there. What the disk refuses is tried again after the next checkpoint."""
        assert self.checkpoints is not None, "open first"
        try:
            if room_is_low:
                self.checkpoints.give_back()
            else:
                self.checkpoints.fold()
        except (StorageError, OSError) as error:
            log.error("increments could not be folded into a new base; the next checkpoint tries again: %s", error)

    def close(self) -> None:
        """Ends early a fold that is under way."""
        if self.checkpoints is not None:
            self.checkpoints.stop_folding()
        self._worker.shutdown(cancel_futures=True)

    def _look(self, room_is_low: bool) -> None:
        checkpoints = self.checkpoints
        if checkpoints is None:
            return
        try:
            give_back = room_is_low and checkpoints.can_give_back
            due = give_back or checkpoints.is_fold_due
        except OSError as error:
            log.error(
                "whether increments need folding could not be found out; the next checkpoint tries again: %s", error
            )
            return
        if due:
            self.fold(room_is_low=give_back)
