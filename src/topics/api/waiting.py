"""Answers that have to wait until what they say is durable."""

from collections.abc import Callable, Coroutine
from typing import Any

from topics.api.http import Response
from topics.delivery.commits import committed
from topics.engine.journal import Commit


def once_committed(commit: Commit | None, render: Callable[[], Response]) -> Response | Coroutine[Any, Any, Response]:
    """The answer: now when there is nothing to wait for, else when the commit is done; its error if it failed."""
    if commit is None or (commit.done and commit.error is None):
        return render()

    async def answer() -> Response:
        await committed(commit)
        return render()

    return answer()
