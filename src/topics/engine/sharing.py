"""Divides the claimable jobs among those who claim together."""

from collections.abc import Sequence


def shares(available: int, wishes: Sequence[int], first: int = 0) -> list[int]:
    """How many jobs each claimer gets: as many as it asks for if there are enough, otherwise in proportion. What the
    proportions leave over is dealt one by one, beginning with `first`, so that the caller can rotate.
    """
    total = sum(wishes)
    if available >= total:
        return list(wishes)
    given = [available * wish // total for wish in wishes]
    left = available - sum(given)
    position = first
    while left:
        position %= len(wishes)
        if given[position] < wishes[position]:
            given[position] += 1
            left -= 1
        position += 1
    return given


def deal(jobs: Sequence[int], hands: Sequence[int]) -> list[list[int]]:
    """Gives out the jobs in turn, so that nobody gets only the oldest ones; each hand in ascending order."""
    dealt: list[list[int]] = [[] for _ in hands]
    if len(hands) == 1:
        return [sorted(jobs)]
    waiting = [position for position, size in enumerate(hands) if size]
    remaining = iter(jobs)
    while waiting:
        for position in waiting:
            dealt[position].append(next(remaining))
        waiting = [position for position in waiting if len(dealt[position]) < hands[position]]
    for hand in dealt:
        hand.sort()
    return dealt
