"""Effective priority: who is served first under pressure. A pure function of configuration and time.

It never touches seq order, retention or what is visible.
"""

import math

from topics.model.config import TopicConfig

AUTO_MAX = 500
HALF_LIFE_MS = 30_000
AUTO_FLOOR_MS = 300_000
AGE_RATE_PER_S = 100
AGE_CAP_MS = 10_000


def auto_recency(now_ms: int, last_consumed_ms: int | None) -> int:
    """Worth AUTO_MAX right after a read; halves every HALF_LIFE_MS; nothing after AUTO_FLOOR_MS."""
    if last_consumed_ms is None:
        return 0
    idle_ms = max(0, now_ms - last_consumed_ms)
    if idle_ms >= AUTO_FLOOR_MS:
        return 0
    return round(AUTO_MAX * math.exp2(-idle_ms / HALF_LIFE_MS))


def age_boost(waited_ms: int) -> int:
    """What a topic gains while it waits for its turn, so that none waits for ever."""
    return AGE_RATE_PER_S * min(max(0, waited_ms), AGE_CAP_MS) // 1000


def effective_priority(config: TopicConfig, now_ms: int, last_consumed_ms: int | None, waited_ms: int = 0) -> int:
    """The manual priority if there is one, else the recency of the last read; plus the time waited."""
    if config.priority is not None:
        base = config.priority
    elif config.auto_priority:
        base = auto_recency(now_ms, last_consumed_ms)
    else:
        base = 0
    return base + age_boost(waited_ms)
