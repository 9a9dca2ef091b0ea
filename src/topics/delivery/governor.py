"""The governor: how busy the server is, and what it does less eagerly because of that.

Owns the pressure and the ladder of measures that follow from it. It is pure: somebody samples the signals every
100 ms and hands them in; it reads no clock and knows nothing of topics, sockets or files. It only ever costs
latency and eagerness; what is stored and what a diff shows never depend on it.

Pressure, in [0, 1], is the moving average of the worst of three shares, each cut off at 1:

    ready depth / 256        how many topics wait for their turn (not those that are deferred)
    latency / 5 ms           how late the loop runs, against the ceiling we promise
    WAL backlog share        how full the queue to the disk is

The worst one and not a mean, because each alone is enough to stall the server: a full queue to the disk must not
hide behind an idle loop. Cut off first, so that one long pause counts no more than a short one at the ceiling.
The average halves what it knows every 100 ms, whatever the time between two samples: one bad sample in a quiet
server reaches 0.5 and is forgotten in half a second, a lasting one passes 0.8 with the third.

The ladder: coalesce above 0.2; widen the commit window above 0.4; defer negative priorities above 0.8 if it lasts,
until below 0.6; refuse writes at 0.95 if the queue to the disk is full.
"""

from topics import limits


class Governor:
    __slots__ = ("_deferring", "_high_samples", "_sampled_at_ms", "_wal_full", "pressure")

    def __init__(self) -> None:
        self.pressure = 0.0
        self._sampled_at_ms: int | None = None
        self._high_samples = 0
        self._deferring = False
        self._wal_full = False

    def sample(self, now_ms: int, ready_depth: int, scheduling_latency_ms: float, wal_backlog_share: float) -> None:
        """`wal_backlog_share` is that of the fullest queue to the disk; 1 and more is full.

        Neither depth nor latency may count deferred topics: they wait because of the pressure, and would keep it up.
        """
        worst = max(
            ready_depth / limits.READY_DEPTH_MAX,
            scheduling_latency_ms / limits.SCHEDULING_LATENCY_MS_MAX,
            wal_backlog_share,
        )
        worst = min(max(worst, 0.0), 1.0)
        kept = 0.5 ** (self._elapsed_ms(now_ms) / limits.PRESSURE_HALF_LIFE_MS)
        self.pressure = worst + (self.pressure - worst) * kept
        self._wal_full = wal_backlog_share >= 1.0
        self._high_samples = self._high_samples + 1 if self.pressure > limits.DEFER_PRESSURE_MIN else 0
        if self._high_samples >= limits.DEFER_SAMPLES_MIN:
            self._deferring = True
        elif self.pressure < limits.RESUME_PRESSURE_MAX:
            self._deferring = False

    @property
    def coalesce_ms(self) -> float:
        """How long a topic's records may be gathered into one frame. 0: each goes out at once."""
        above = (self.pressure - limits.COALESCE_PRESSURE_MIN) / (1.0 - limits.COALESCE_PRESSURE_MIN)
        return max(0.0, above) * limits.COALESCE_MS_MAX

    @property
    def commit_window_ms(self) -> float:
        """How long the writer may wait for more before it syncs. 0: it does not wait."""
        if self.pressure <= limits.COMMIT_WINDOW_PRESSURE_MIN:
            return 0.0
        widest, narrowest = limits.COMMIT_WINDOW_MS_MAX, limits.COMMIT_WINDOW_MS_MIN
        return narrowest + (widest - narrowest) * self.pressure

    @property
    def deferring(self) -> bool:
        """Whether topics of negative priority are not pushed for now."""
        return self._deferring

    @property
    def retry_after_ms(self) -> int | None:
        """When a refused writer may come again; None while writes are taken."""
        if self._wal_full and self.pressure >= limits.REFUSE_PRESSURE_MIN:
            return limits.PRESSURE_RETRY_AFTER_MS
        return None

    def _elapsed_ms(self, now_ms: int) -> int:
        """Time since the last sample: the usual interval for the first one, and if the clock was set back."""
        last_ms, self._sampled_at_ms = self._sampled_at_ms, now_ms
        if last_ms is None or now_ms < last_ms:
            return limits.PRESSURE_SAMPLE_INTERVAL_MS
        return now_ms - last_ms
