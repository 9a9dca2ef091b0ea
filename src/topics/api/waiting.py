"""Waiting, in a handler, for what has to be durable before it is said."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from topics.api.http import Response
from topics.engine.journal import Commit


async def committed(commit: Commit) -> None:
    """Returns when the commit is done, whatever came of it."""
    if not commit.done:
        done = asyncio.get_running_loop().create_future()

        def tell(_: Commit) -> None:
            if not done.done():
                done.set_result(None)

        commit.when_done(tell)
        await done


def once_committed(commit: Commit | None, render: Callable[[], Response]) -> Response | Coroutine[Any, Any, Response]:
    """The answer: now when there is nothing to wait for, else when the commit is done; its error if it failed."""
    if commit is None or (commit.done and commit.error is None):
        return render()

    async def answer() -> Response:
        await committed(commit)
        if commit.error is not None:
            raise commit.error
        return render()

    return answer()
