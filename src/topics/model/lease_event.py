"""What happens to the jobs of a queue between being written and being deleted: the bodies of its lease frames.

An ack is not among them: it is the deletion of the job. `number` counts the events of a topic, so that one a snapshot
has is told from a later one. `Delayed` needs none: it comes before its jobs, and a snapshot that has those has it.
"""

from msgspec import Struct


class Grant(Struct, frozen=True, array_like=True):
    """Jobs leased to one worker."""

    node: str
    lease_id: int
    deadline_ms: int
    seqs: list[int]


class Claimed(Struct, frozen=True, tag="claimed", tag_field="event"):
    """One pass over the claimable jobs, for all workers that were served by it. `cursor`: from there on all are fresh,
    but for those that are known otherwise."""

    number: int
    grants: list[Grant]
    cursor: int


class Released(Struct, frozen=True, tag="released", tag_field="event"):
    """Leases given up before their deadline; `ready_ms` 0: the jobs can be claimed at once."""

    number: int
    seqs: list[int]
    ready_ms: int


class Extended(Struct, frozen=True, tag="extended", tag_field="event"):
    number: int
    seqs: list[int]
    deadline_ms: int


class Delayed(Struct, frozen=True, tag="delayed", tag_field="event"):
    """Jobs that are written next and cannot be claimed before `ready_ms`."""

    seqs: list[int]
    ready_ms: int


class MoveBegun(Struct, frozen=True, tag="move-begun", tag_field="event"):
    """Records about to be copied to another topic, in one write with this idempotency key, and deleted here."""

    number: int
    seqs: list[int]
    dest_id: int
    key: str
    dead_letters: bool


class MoveGivenUp(Struct, frozen=True, tag="move-given-up", tag_field="event"):
    """The copy was refused: the records stay."""

    number: int
    key: str


NumberedEvent = Claimed | Released | Extended | MoveBegun | MoveGivenUp
LeaseEvent = NumberedEvent | Delayed
