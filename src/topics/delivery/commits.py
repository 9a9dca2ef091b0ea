"""Waiting, on the event loop, for what the engine waits for."""

import asyncio

from topics.engine.journal import Commit


async def committed(commit: Commit) -> None:
    """Returns when the commit is done; raises its error if it failed."""
    await settled(commit)
    if commit.error is not None:
        raise commit.error


async def settled(commit: Commit) -> None:
    """Returns when the commit is done, well or not."""
    if not commit.done:
        done = asyncio.get_running_loop().create_future()

        def tell(_: Commit) -> None:
            if not done.done():
                done.set_result(None)

        commit.when_done(tell)
        await done
