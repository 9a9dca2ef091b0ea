"""Threads that encode exports, so that a large one takes time from the loop only in short slices."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from topics import limits

log = logging.getLogger("topics.export")


class Encoders:
    def __init__(self) -> None:
        # A thread begins when it is first needed.
        self._threads = ThreadPoolExecutor(limits.EXPORT_ENCODERS_MAX, thread_name_prefix="export")

    def run(self, job: Callable[[], bytes], done: Callable[[bytes | None], None]) -> None:
        """Runs `job` on a thread and then `done` on the loop: with the result, or None if it failed."""

        def tell(finished: "asyncio.Future[bytes]") -> None:
            error = finished.exception()
            if error is not None:
                log.error("an export could not be encoded", exc_info=error)
            done(None if error is not None else finished.result())

        asyncio.get_running_loop().run_in_executor(self._threads, job).add_done_callback(tell)
