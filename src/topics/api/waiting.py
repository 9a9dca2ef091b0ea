"""Answers that have to wait until what they say is durable."""

from collections.abc import Callable

from topics.api.http import Response, Waiting
from topics.engine.journal import Commit


def once_committed(commit: Commit | None, render: Callable[[], Response]) -> Response | Waiting:
    """The answer: now if there is nothing to wait for, otherwise when the commit is done. If that failed, its error."""
    if commit is None:
        return render()

    def answer() -> Response:
        if commit.error is not None:
            raise commit.error
        return render()

    return answer() if commit.done else Waiting(commit, answer)
