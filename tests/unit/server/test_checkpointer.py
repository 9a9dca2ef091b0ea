"""Checkpoints as the running server takes them: on the loop, with a thread, and possibly cancelled."""

import asyncio

import pytest

from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import SimulatedServer


async def finished(server: SimulatedServer, checkpoint: "asyncio.Task[bool]") -> bool:
    while not checkpoint.done():
        server.step()
        await asyncio.sleep(0)
    return checkpoint.result()


@pytest.mark.parametrize("turns", range(12))
def test_a_checkpoint_cancelled_by_a_stop_loses_nothing(turns: int) -> None:
    disk, clock = FakeDisk(), FakeClock()
    server = SimulatedServer(disk, clock, segment_events_max=4)
    server.start()
    server.write("orders", 6, config={"durability": "fsync"})

    async def stop_during_a_checkpoint() -> None:
        periodic = asyncio.create_task(server.checkpointer.checkpoint(clean=False))
        for _ in range(turns):
            await asyncio.sleep(0)
            server.step()
        periodic.cancel()
        await asyncio.wait({periodic})
        assert await finished(server, asyncio.create_task(server.checkpointer.checkpoint(clean=True)))

    asyncio.run(stop_during_a_checkpoint())
    again = SimulatedServer(disk.crash_keep_all(), clock, segment_events_max=4)
    again.start()
    assert sorted(again.read_all("orders").records) == [1, 2, 3, 4, 5, 6]
