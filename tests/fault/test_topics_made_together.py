"""Topics that are made at the same time share a log and its syncs: a crash takes none that was acknowledged."""

import pytest

from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk, SimulatedCrash
from topics.testing.simulated_server import SimulatedServer

SHARDS = 3
ROUNDS = 3
TOGETHER = 5


class Making:
    """Makes topics, several in each turn of the loop."""

    def __init__(self, disk: FakeDisk) -> None:
        self.acknowledged: dict[str, int] = {}  # topic ids by name
        self.server = SimulatedServer(disk, FakeClock(), wal_shards=SHARDS)

    def run(self) -> None:
        server = self.server
        server.start()
        for number in range(ROUNDS):
            made = [server.hand_over(f"topic-{number}-{each}", 1) for each in range(TOGETHER)]
            assert len({server.journal.lane(each.topic.topic_id) for each in made[1:]}) == 1
            for each in made:
                server.wait(each.commit)
                self.acknowledged[each.topic.name] = each.topic.topic_id


def _calls() -> int:
    disk = FakeDisk()
    making = Making(disk)
    making.run()
    assert len(making.acknowledged) == ROUNDS * TOGETHER
    return disk.mutating_calls


@pytest.mark.parametrize("torn_bytes", [0, 100], ids=["whole", "torn"])
def test_a_crash_takes_no_topic_that_was_acknowledged(torn_bytes: int) -> None:
    for call in range(1, _calls() + 1):
        disk = FakeDisk()
        disk.stop_at(call, torn_bytes=torn_bytes)
        making = Making(disk)
        with pytest.raises(SimulatedCrash):
            making.run()
        for survivor in (disk.crash_keep_all(), disk.crash_drop_all(), disk.crash(call)):
            again = SimulatedServer(survivor, FakeClock(), wal_shards=SHARDS)
            again.start()
            found = {topic.name: topic.topic_id for topic in again.engine.topics}
            assert found.items() >= making.acknowledged.items(), f"call {call}"
            new = again.write("new", 1)
            assert new.topic.topic_id > max(found.values(), default=0), "no id is given out twice"
            for name in found:
                reading = again.read_all(name)
                assert not list(reading.missing()), "what is not there is told as lost"
                assert again.write(name, 1).first_seq > 1
