"""Bodies of the queue endpoints, field for field as the API document has them, and the extensions beside them."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from topics.model.config import Unsigned
from topics.wire.requests import check_u64
from topics.wire.responses import Performance, RecordReply

Node = Annotated[str, Meta(min_length=1, description="The worker's identity.")]
Seqs = Annotated[list[Unsigned], Meta(min_length=1, description="At most TOPICS_MAX_CLAIM.")]
LeaseIds = Annotated[
    list[str] | None, Meta(description="One per seq. A seq whose lease now has a different id is skipped.")
]


class ClaimRequest(Struct, forbid_unknown_fields=True):
    """Leases jobs to a worker."""

    node: Node
    max: Annotated[Unsigned, Meta(description="At most TOPICS_MAX_CLAIM; 0 is the default.")] = 1
    lease_ms: Annotated[Unsigned | None, Meta(description="Default is the topic's.")] = None

    def __post_init__(self) -> None:
        check_u64(self.max, "max")
        check_u64(self.lease_ms, "lease_ms")


class AckRequest(Struct, forbid_unknown_fields=True):
    """Completes jobs: they are deleted for good."""

    node: Node
    seqs: Seqs
    lease_ids: LeaseIds = None


class NackRequest(Struct, forbid_unknown_fields=True):
    """Gives jobs back."""

    node: Node
    seqs: Seqs
    delay_ms: Annotated[Unsigned, Meta(description="Wait before the jobs can be claimed again; at most a day.")] = 0
    lease_ids: LeaseIds = None

    def __post_init__(self) -> None:
        check_u64(self.delay_ms, "delay_ms")


class ExtendRequest(Struct, forbid_unknown_fields=True):
    """Sets new deadlines."""

    node: Node
    seqs: Seqs
    lease_ms: Annotated[Unsigned, Meta(description="From now on.")]
    lease_ids: LeaseIds = None

    def __post_init__(self) -> None:
        check_u64(self.lease_ms, "lease_ms")


class RedriveRequest(Struct, forbid_unknown_fields=True):
    """Extension. Sends dead letters back to the queue they came from."""

    max: Annotated[Unsigned | None, Meta(description="Move at most this many; default is all.")] = None
    match: Annotated[str | list[str] | None, Meta(description="Only jobs whose tag matches, as in a delete.")] = None

    def __post_init__(self) -> None:
        check_u64(self.max, "max")


class ClaimedJob(Struct, omit_defaults=True):
    seq: int = field(name="$seq")
    lease_id: str
    deadline: int
    deliveries: int
    ts: int = field(name="$ts")
    data: Any
    node: str | UnsetType = field(name="$node", default=UNSET)
    tag: str | UnsetType = field(name="$tag", default=UNSET)
    meta: dict[str, Any] | UnsetType = UNSET


class ClaimResponse(Struct):
    topic: str
    claimed: list[ClaimedJob]
    count: int
    ready: int
    performance: Performance


class JobReply(RecordReply, kw_only=True):
    """A claimed job, as a client decodes it. Hand it back to `ack`, `nack` or `extend`: its `lease_id` fences a worker
    that came too late."""

    lease_id: str
    deadline: int
    deliveries: int


class ClaimReply(Struct):
    claimed: list[JobReply]
    ready: int


class AckResponse(Struct):
    topic: str
    acked: int
    skipped: list[int]
    ready: int
    in_flight: int
    performance: Performance


class NackResponse(Struct):
    topic: str
    nacked: int
    skipped: list[int]
    ready: int
    in_flight: int
    performance: Performance


class ExtendResponse(Struct):
    topic: str
    extended: int
    skipped: list[int]
    deadlines: dict[str, int]
    performance: Performance


class LeaseOut(Struct):
    seq: int = field(name="$seq")
    node: str
    lease_id: str
    claimed_ts: Annotated[int, Meta(description="When the job was handed out; an extension does not change it.")]
    deadline: int
    deliveries: int
    pushed: Annotated[bool, Meta(description="Delivered over a /work stream.")]


class LeasePage(Struct):
    topic: str
    leases: list[LeaseOut]
    performance: Performance
    next_cursor: Annotated[str | UnsetType, Meta(description="Absent on the last page.")] = UNSET


class RedriveResponse(Struct):
    topic: str
    dead_letter: str | None
    redriven: int
    performance: Performance


def claim_reply(topic: str, jobs: list[bytes], ready: int, total_ms: float, throttle_wait_ms: float) -> bytes:
    """The shape of `ClaimResponse`, without an object per job."""
    return (
        b'{"topic":"%b","claimed":[%b],"count":%d,"ready":%d,'
        b'"performance":{"server_total_ms":%.3f,"throttle_wait_ms":%.3f}}'
        % (topic.encode(), b",".join(jobs), len(jobs), ready, total_ms, throttle_wait_ms)
    )
