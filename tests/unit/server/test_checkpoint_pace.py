"""When checkpoints happen, and that a disk which refuses them is not asked without end."""

from topics import limits
from topics.server.checkpoint_pace import CheckpointPace


def polls_until_due(pace: CheckpointPace, *, wal_bytes: int = 0) -> int:
    for polls in range(1, 10_000):
        if pace.due(wal_bytes):
            return polls
    raise AssertionError("never due")


def polls(seconds: float) -> int:
    return round(seconds / limits.CHECKPOINT_POLL_S)


def test_an_idle_server_checkpoints_at_the_interval_and_a_busy_one_at_once() -> None:
    pace = CheckpointPace()
    assert polls_until_due(pace) == polls(limits.CHECKPOINT_INTERVAL_S)
    assert polls_until_due(pace, wal_bytes=limits.CHECKPOINT_WAL_BYTES) == 1
    assert polls_until_due(pace) == polls(limits.CHECKPOINT_INTERVAL_S)


def test_a_checkpoint_that_fails_is_tried_again_less_and_less_often() -> None:
    pace = CheckpointPace()
    waits: list[int] = []
    for _ in range(9):
        waits.append(polls_until_due(pace, wal_bytes=limits.CHECKPOINT_WAL_BYTES))
        pace.done(succeeded=False)
    assert waits == [1, *map(polls, (1, 2, 4, 8, 16, 32, 60, 60))]


def test_after_one_that_succeeds_there_is_no_pause_left() -> None:
    pace = CheckpointPace()
    for _ in range(5):
        polls_until_due(pace, wal_bytes=limits.CHECKPOINT_WAL_BYTES)
        pace.done(succeeded=False)
    polls_until_due(pace, wal_bytes=limits.CHECKPOINT_WAL_BYTES)
    pace.done(succeeded=True)
    assert polls_until_due(pace, wal_bytes=limits.CHECKPOINT_WAL_BYTES) == 1


def test_while_the_disk_has_too_little_room_checkpoints_come_sooner() -> None:
    pace = CheckpointPace()
    until_due = [pace.due(0, room_is_low=True) for _ in range(polls(limits.CHECKPOINT_LOW_ROOM_INTERVAL_S))]
    assert until_due == [False] * (len(until_due) - 1) + [True]


def test_while_the_disk_has_too_little_room_a_checkpoint_that_fails_is_not_put_off_for_long() -> None:
    pace = CheckpointPace()
    for _ in range(9):
        polls_until_due(pace, wal_bytes=limits.CHECKPOINT_WAL_BYTES)
        pace.done(succeeded=False)
    until_due = [pace.due(0, room_is_low=True) for _ in range(polls(limits.CHECKPOINT_LOW_ROOM_RETRY_S))]
    assert until_due == [False] * (len(until_due) - 1) + [True]


def test_one_is_due_once_enough_is_sealed_and_nothing_more_is() -> None:
    """Until a snapshot points to the segments, a start reads all of it from the log."""
    pace = CheckpointPace()
    settled_polls = int(limits.CHECKPOINT_SETTLED_S / limits.CHECKPOINT_POLL_S)
    enough = limits.CHECKPOINT_SEALED_BYTES
    assert not any(pace.due(0, sealed_bytes=enough + more) for more in range(3 * settled_polls))
    sealed = enough + 3 * settled_polls
    polls = [pace.due(0, sealed_bytes=sealed) for _ in range(settled_polls + 1)]
    assert polls == [False] * settled_polls + [True]


def test_a_little_that_was_sealed_waits_for_its_turn() -> None:
    pace = CheckpointPace()
    before = int(limits.CHECKPOINT_INTERVAL_S / limits.CHECKPOINT_POLL_S) - 1
    assert not any(pace.due(0, sealed_bytes=limits.CHECKPOINT_SEALED_BYTES - 1) for _ in range(before))
    assert pace.due(0, sealed_bytes=limits.CHECKPOINT_SEALED_BYTES - 1)


def test_a_refused_one_waits_whatever_was_sealed() -> None:
    pace = CheckpointPace()
    pace.done(succeeded=False)
    pace.done(succeeded=False)
    pace.done(succeeded=False)
    before = int(4 * limits.CHECKPOINT_RETRY_S_MIN / limits.CHECKPOINT_POLL_S) - 1
    assert not any(pace.due(0, sealed_bytes=limits.CHECKPOINT_SEALED_BYTES) for _ in range(before))
    assert pace.due(0, sealed_bytes=limits.CHECKPOINT_SEALED_BYTES)
