"""Checkpoints as the running server takes them: on the loop, with a thread, and possibly cancelled."""

import asyncio
import itertools

import pytest

from topics.storage import paths
from topics.storage.snapshot_chain import load_latest, tail_bytes
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import DATA_DIR, SimulatedServer


def state_on(disk: FakeDisk) -> dict[str, object]:
    """What the newest snapshot says of each topic, with the bytes of its tail."""
    state = load_latest(disk, paths.meta_dir(DATA_DIR))
    assert state is not None
    tails: dict[int, list[bytes]] = {}
    for (topic_id, _), pieces in sorted(state.tails.items(), key=lambda each: each[0]):
        tails.setdefault(topic_id, []).append(tail_bytes(pieces))
    return {image.name: (image, tails.get(image.topic_id)) for image in state.images}


def with_topics(disk: FakeDisk) -> SimulatedServer:
    server = SimulatedServer(disk, FakeClock(), segment_events_max=4)
    server.start()
    for number in range(8):
        server.write(f"orders-{number}", number + 1, config={"durability": "fsync"})
    server.delete_records("orders-5", before_seq=3)
    return server


def test_a_capture_in_slices_is_the_instant_it_began_at() -> None:
    at_once, in_slices = FakeDisk(), FakeDisk()
    assert with_topics(at_once).checkpoint()
    server = with_topics(in_slices)
    rounds = itertools.count()

    def go_on(step: str) -> None:
        """What happens to topics captured already, to those that are not, and to new ones, while it goes on."""
        if step not in {"instant", "topic"}:
            return
        turn = next(rounds)
        if turn == 0:
            server.delete_topic("orders-7")
            server.delete_records("orders-6", before_seq=100)
        server.write("orders-0", 1)
        server.write(f"orders-{5 - turn % 3}", 1)
        server.write(f"new-{turn}", 1, config={"durability": "fsync"})

    assert server.checkpoint(during=go_on)
    assert next(rounds) >= 4, "it was called between the topics"
    expected, found = state_on(at_once), state_on(in_slices)
    assert found.keys() == expected.keys()
    for name, image in expected.items():
        assert found[name] == image, name
    again = SimulatedServer(in_slices.crash_drop_all(), FakeClock(), segment_events_max=4)
    again.start()
    assert [topic.name for topic in again.engine.topics if topic.name == "orders-7"] == []
    assert sorted(again.read_all("orders-0").records) == sorted(server.read_all("orders-0").records)


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
