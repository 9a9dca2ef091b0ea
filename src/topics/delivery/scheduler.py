"""The ready set: which topic's deliveries the loop does next.

Owns the order in which dirty entities are served. It is pure: time comes in as `now_ms` (wall time, as
`priority_of` wants it), and it knows nothing of topics, watchers, routers or the loop that calls it.

Rules:

- An entity waits at most once, however often it is marked. Its wait begins with the first mark and ends when it
  is taken; marking it again in between changes nothing, so one that is written to all the time still ages.
- Five bands of effective priority share the turns by deficit weighted round robin. A round grants each band its
  weight in turns, the higher bands use theirs first, and a new round begins when no band that has somebody waiting
  has turns left; an empty band saves nothing up. Within a band the longest waiting goes first.
- Waiting adds to the priority (`age_boost`). Every 50 ms the waiting ones are looked at again, the oldest first,
  eight in each `take`, so that a crowd costs no pause; one too large for 50 ms is looked at as fast as it is served.
  While it waits an entity only rises, never falls. After 10 s it is in the top band whatever its priority is: the
  boost alone would leave one of -1000 in B1.
- While `deferring`, B0 gets no turns and nobody of negative priority rises. Those that had already left B0 keep
  the place they waited for. When deferring ends, the ones held in B0 keep their order and begin to age at that
  moment: their promise is 10 s from there. If the pause counted, the whole crowd would step in front of the top
  band at once, and the pressure would be back.
- A wall clock that is set back stops ageing for nobody; one that is set forward ages all alike.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

from topics import limits
from topics.engine.priority import AGE_CAP_MS, age_boost

E = TypeVar("E", bound=Hashable)

BAND_FLOORS = (0, 250, 500, 750)  # the lowest effective priority of B1, B2, B3, B4; below the first is B0
BAND_WEIGHTS = (1, 1, 2, 4, 8)  # turns in a round, B0 to B4

_LOWEST = 0
_TOP = len(BAND_FLOORS)
_ALL_BANDS = tuple(range(_TOP, -1, -1))
_BANDS_WHILE_DEFERRING = _ALL_BANDS[:-1]

# (serial, ages_from, band, entity). Serials grow with every mark, so tickets sort by the time of their mark, and no
# two in one heap have the same: an entity that rises takes its serial along, and never returns to a band.
# A ticket counts only while it is the one in `_waiting`; those left behind in a heap are skipped.
_Ticket = tuple[int, int, int, E]


class Scheduler(Generic[E]):
    """`priority_of(entity, now_ms)` is the effective priority without the time waited."""

    __slots__ = (
        "_bands",
        "_clock_set_back_ms",
        "_deferring",
        "_held_until",
        "_left_behind",
        "_lowest_count",
        "_next_tick",
        "_priority_of",
        "_released",
        "_serial",
        "_served",
        "_sweep",
        "_ticked_at",
        "_turns",
        "_waiting",
    )

    def __init__(self, priority_of: Callable[[E, int], int]) -> None:
        self._priority_of = priority_of
        self._waiting: dict[E, _Ticket[E]] = {}  # in the order of their marks
        self._bands: list[list[_Ticket[E]]] = [[] for _ in _ALL_BANDS]  # a heap each
        self._turns = list(BAND_WEIGHTS)  # left in this round
        self._serial = 0
        self._lowest_count = 0  # how many wait in B0
        self._left_behind = 0  # dead tickets in the heaps
        self._sweep: list[_Ticket[E]] = []  # still to be looked at for promotion, the oldest last
        # The scheduler's own time is now_ms + _clock_set_back_ms: it never goes back.
        self._clock_set_back_ms = 0
        self._ticked_at = 0
        self._next_tick = 0
        self._deferring = False
        self._served = _ALL_BANDS
        self._released = False  # deferring ended since the last tick
        self._held_until = 0  # when deferring last ended

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, entity: E) -> bool:
        return entity in self._waiting

    @property
    def ready_depth(self) -> int:
        """How many wait for a turn. Deferred ones do not count, because they must not keep the pressure up."""
        return len(self._waiting) - self._lowest_count if self._deferring else len(self._waiting)

    @property
    def deferring(self) -> bool:
        return self._deferring

    @deferring.setter
    def deferring(self, deferring: bool) -> None:
        """After it ends, `take` has entities again that it refused before."""
        if self._deferring and not deferring:
            self._released = True
            self._next_tick = self._ticked_at  # the next take ticks
        self._deferring = deferring
        self._served = _BANDS_WHILE_DEFERRING if deferring else _ALL_BANDS

    def mark(self, entity: E, now_ms: int) -> None:
        """The entity has something to deliver. Hot: every write comes through here."""
        waiting = self._waiting
        if entity in waiting:
            return
        now = now_ms + self._clock_set_back_ms
        if now < self._ticked_at:
            now = self._set_back(now)
        band = bisect_right(BAND_FLOORS, self._priority_of(entity, now_ms))
        if band == _LOWEST:
            self._lowest_count += 1
        self._serial = serial = self._serial + 1
        waiting[entity] = ticket = (serial, now, band, entity)
        heappush(self._bands[band], ticket)

    def take(self, now_ms: int) -> E | None:
        """The entity to serve now, which no longer waits; None if nobody may be served. Once per topic and turn."""
        waiting = self._waiting
        if not waiting:
            return None
        if not self._ticked_at <= now_ms + self._clock_set_back_ms < self._next_tick:
            self._tick(now_ms)
        if self._sweep:
            self._promote(now_ms)
        bands = self._bands
        turns = self._turns
        for _ in ("this round", "the next one"):
            for band in self._served:
                if turns[band]:
                    heap = bands[band]
                    while heap:
                        ticket = heappop(heap)
                        entity = ticket[3]
                        if waiting.get(entity) is ticket:
                            del waiting[entity]
                            turns[band] -= 1
                            if band == _LOWEST:
                                self._lowest_count -= 1
                            return entity
                        self._left_behind -= 1
            turns[:] = BAND_WEIGHTS
        return None

    def discard(self, entity: E) -> None:
        """The entity is gone, or has nothing to deliver any more."""
        ticket = self._waiting.pop(entity, None)
        if ticket is not None:
            if ticket[2] == _LOWEST:
                self._lowest_count -= 1
            self._left_behind += 1
            # Turns sweep up dead tickets, but B0 may have none for long: discards must not fill it without end.
            if self._left_behind > len(self._waiting) + limits.TICKETS_LEFT_BEHIND_MIN:
                self._clean_up()

    def _tick(self, now_ms: int) -> None:
        now = now_ms + self._clock_set_back_ms
        if now < self._ticked_at:
            now = self._set_back(now)
        self._ticked_at = now
        self._next_tick = now + limits.AGING_TICK_MS
        if self._released:
            self._released = False
            self._held_until = now
        if not self._sweep:
            self._sweep = list(reversed(self._waiting.values()))

    def _set_back(self, now: int) -> int:
        self._clock_set_back_ms += self._ticked_at - now
        return self._ticked_at

    def _promote(self, now_ms: int) -> None:
        now = now_ms + self._clock_set_back_ms
        waiting = self._waiting
        sweep = self._sweep
        for _ in range(min(len(sweep), limits.REBANDED_PER_TAKE_MAX)):
            ticket = sweep.pop()
            serial, ages_from, band, entity = ticket
            if band == _TOP or waiting.get(entity) is not ticket:
                continue
            base = self._priority_of(entity, now_ms)
            if self._deferring and base < 0:
                continue
            if band == _LOWEST and ages_from < self._held_until:
                ages_from = self._held_until
            waited_ms = now - ages_from
            risen = _TOP if waited_ms >= AGE_CAP_MS else bisect_right(BAND_FLOORS, base + age_boost(waited_ms))
            if risen > band:
                if band == _LOWEST:
                    self._lowest_count -= 1
                waiting[entity] = ticket = (serial, ages_from, risen, entity)
                heappush(self._bands[risen], ticket)
                self._left_behind += 1
                # Here, one by one: else a band that all have left holds up the take that finds it so.
                left = self._bands[band]
                while left and waiting.get(left[0][3]) is not left[0]:
                    heappop(left)
                    self._left_behind -= 1

    def _clean_up(self) -> None:
        self._left_behind = 0
        for heap in self._bands:
            heap.clear()
        for ticket in self._waiting.values():  # in the order of their serials: each list is a heap as it grows
            self._bands[ticket[2]].append(ticket)
