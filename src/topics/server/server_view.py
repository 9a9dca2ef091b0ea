"""The process as the overview and the metrics show it: gathers what its parts know of
themselves. More topics make it no slower.
"""

from collections.abc import Sequence

from topics.api.connections import Connections
from topics.api.live import LiveConnections
from topics.clock import Clock
from topics.delivery.governor import Governor
from topics.delivery.long_poll import LongPolls
from topics.delivery.watch_session import WatchSessions
from topics.engine.engine import Engine
from topics.server.metrics import LiveMetrics, ProcessMetrics, WalMetrics
from topics.server.store import Store
from topics.server.vitals import LAG_BUCKETS_MS, VitalSigns
from topics.storage.group_commit import SYNC_BUCKETS_US
from topics.version import VERSION
from topics.wire.overview import (
    CheckpointOverview,
    ConnectionsOverview,
    Latency,
    LoopOverview,
    ReadOnlyShard,
    RecoveryOverview,
    ServerOverview,
    WalOverview,
)


class ServerView:
    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        store: Store,
        vital_signs: VitalSigns,
        governor: Governor,
        connections: Connections,
        live: LiveConnections,
        long_polls: LongPolls,
        sessions: WatchSessions,
        started_ns: int,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._started_ns = started_ns
        self._store = store
        self._vital_signs = vital_signs
        self._governor = governor
        self._connections = connections
        self._live = live
        self._long_polls = long_polls
        self._sessions = sessions

    def overview(self) -> ServerOverview:
        engine, store, vitals, lag = self._engine, self._store, self._vital_signs.latest, self._vital_signs.loop_lag
        times = store.checkpointer.times
        return ServerOverview(
            version=VERSION,
            server_id=store.server_id,
            ts=self._clock.now_ms(),
            uptime_ms=(self._clock.monotonic_ns() - self._started_ns) // 1_000_000,
            topics=len(engine.topics),
            routers=len(engine.routers),
            records=engine.state.records_live,
            bytes=engine.state.bytes_live,
            pressure=round(self._governor.pressure, 4),
            disk_free_bytes=vitals.disk_free_bytes,
            memory_bytes=vitals.memory_bytes,
            files_open=vitals.files_open,
            files_max=vitals.files_max,
            loop=LoopOverview(round(lag.last_ms, 3), round(lag.recent_max_ms, 3)),
            wal=_wal(store.wal_metrics()),
            read_only_shards=[ReadOnlyShard(name, failure.message) for name, failure in store.read_only_shards],
            connections=ConnectionsOverview(
                len(self._connections), len(self._live), len(self._long_polls), len(self._sessions)
            ),
            recovery=None if store.recovery is None else RecoveryOverview(*store.recovery),
            checkpoints=CheckpointOverview(
                times.finished, store.checkpointer.failures_total, times.last_ts, times.last_ms
            ),
        )

    def process_metrics(self) -> ProcessMetrics:
        vitals, lag, recovery = self._vital_signs.latest, self._vital_signs.loop_lag, self._store.recovery
        checkpointer = self._store.checkpointer
        finished, total_ms, last_ts, last_ms = checkpointer.times
        return ProcessMetrics(
            *vitals,
            loop_lag_bounds_ms=LAG_BUCKETS_MS,
            loop_lag_counts=lag.counts,
            loop_lag_sum_ms=lag.sum_ms,
            checkpoints_total=finished,
            checkpoint_failures_total=checkpointer.failures_total,
            checkpoint_ms_total=total_ms,
            checkpoint_last_ms=last_ms,
            checkpoint_last_ts=last_ts,
            recovery_ms=None if recovery is None else recovery.duration_ms,
            recovery_lost_seqs=None if recovery is None else recovery.lost,
        )

    def live_metrics(self) -> LiveMetrics:
        return LiveMetrics(
            sse_connections=len(self._live),
            watch_sessions=len(self._sessions),
            pressure=self._governor.pressure,
            connections=len(self._connections),
            long_polls=len(self._long_polls),
            received_bytes_total=self._connections.received_bytes,
            sent_bytes_total=self._connections.sent_bytes,
        )


def _wal(wal: WalMetrics) -> WalOverview:
    counts = wal.fsync_latency_us_counts
    count = sum(counts)
    latency = Latency(
        count,
        wal.fsync_latency_us_sum // count if count else 0,
        _quantile_us(counts, count, 0.5),
        _quantile_us(counts, count, 0.99),
    )
    return WalOverview(wal.queue_depth, wal.bytes_written_total, latency)


def _quantile_us(counts: Sequence[int], count: int, share: float) -> int | None:
    """The upper bound of the bucket the quantile is in."""
    passed = 0
    for bound, entries in zip(SYNC_BUCKETS_US, counts, strict=False):
        passed += entries
        if count and passed >= share * count:
            return bound
    return None
