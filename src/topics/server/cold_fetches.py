"""Fetches cold segments on separate threads, so that the loop, writes and live readers never wait for them."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

from topics import limits
from topics.engine.journal import Busy, Commit
from topics.errors import StorageFailed, TopicsError
from topics.storage.segment_reader import SegmentReader
from topics.storage.segments import Key, Segments

log = logging.getLogger("topics.cold")


class ColdFetches:
    def __init__(self, segments: Segments, loop: asyncio.AbstractEventLoop) -> None:
        self._segments = segments
        self._loop = loop
        self._threads = ThreadPoolExecutor(limits.COLD_FETCHES_MAX, thread_name_prefix="cold")
        self._under_way: dict[Key, Commit] = {}
        self._failed: dict[Key, TopicsError] = {}  # of late

    def fetch(self, key: Key, job: Callable[[], SegmentReader]) -> NoReturn:
        """Raises `Busy` with what to wait for. Callers that come during a fetch wait for the same one; those that come
        soon after a failed fetch get the same error."""
        if key in self._failed:
            raise self._failed[key].with_traceback(None)
        commit = self._under_way.get(key)
        if commit is None:
            commit = self._under_way[key] = Commit()
            fetched = self._loop.run_in_executor(self._threads, job)
            fetched.add_done_callback(lambda done: self._finish(key, done))
        raise Busy(commit)

    def _finish(self, key: Key, done: "asyncio.Future[SegmentReader]") -> None:
        commit = self._under_way.pop(key)
        # This stays if something unforeseen goes wrong: the loop reports that, and nobody waits for ever.
        error: TopicsError | None = StorageFailed("a segment of the cold tier could not be fetched")
        try:
            self._segments.loaded(key, done.result())
            error = None
        except TopicsError as found:
            error = found
        except OSError as found:
            error = StorageFailed(f"the cold tier cannot be read: {found}")
        finally:
            if error is not None:
                log.error("%s", error.message)
                self._failed[key] = error
                self._loop.call_later(limits.COLD_RETRY_S, self._failed.pop, key, None)
            commit.resolve(error, 0)
