"""Answers that have to wait until what they say is durable."""

from collections.abc import Callable

from topics.api.http import Response, Waiting
from topics.engine.journal import Commit


def once_committed(commit: Commit | None, render: Callable[[], Response]) -> Response | Waiting:
    """The answer: now when there is nothing to wait for, else when the commit is done; its error if it failed."""
    if commit is None:
        return render()

    def answer() -> Response:
        if commit.error is not None:
            raise commit.error
        return render()

    return answer() if commit.done else Waiting(commit, answer)
