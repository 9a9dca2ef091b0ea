"""Random graphs of routers: every dest is what its filter leaves of its source, in order, up to declared tombstones."""

import json

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import Raw

from topics.engine import log_reading
from topics.engine.engine import Engine, Write
from topics.errors import RouterCycle, TopicExistsIncompatible
from topics.model.config import TopicConfigPatch
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.model.router import Guarantee, RouterSettings
from topics.model.tag_match import TagMatch
from topics.testing.fake_clock import FakeClock

TOPICS = ("a", "b", "c", "d")
EVERYTHING = ReadOptions(limit=100_000, bytes_max=1 << 30, include_tags=True)

topics = st.sampled_from(TOPICS)
tags = st.sampled_from([None, "x:1", "x:2", "y"])
filters = st.sampled_from([None, TagMatch("x", is_prefix=True), TagMatch("y", is_prefix=False)])


class RoutersAgainstModel(RuleBasedStateMachine):
    """Topics that a cap takes records from are sources only: what their own caps do to copies is another matter."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(FakeClock())
        self.written: dict[str, dict[int, tuple[bytes, str | None]]] = {name: {} for name in TOPICS}
        self.starts: dict[str, int] = {}
        for name in TOPICS:
            self.engine.put_topic(name, TopicConfigPatch())

    @rule(name=topics, sent=st.lists(tags, min_size=1, max_size=5))
    def write(self, name: str, sent: list[str | None]) -> None:
        self.engine.append(name, Write([NewRecord(Raw(b'"%d"' % len(sent)), tag=tag) for tag in sent]))

    @rule(source=topics, dest=topics, match=filters)
    def route(self, source: str, dest: str, match: TagMatch | None) -> None:
        name = f"{source}->{dest}"
        if source == dest or self.engine.routers.get(name) is not None:
            return
        made = RouterSettings(filter=match, guarantee=Guarantee.EXACTLY_ONCE)
        try:
            self.engine.put_router(name, source, dest, made, create_dest=False)
        except (RouterCycle, TopicExistsIncompatible):
            return
        self.starts[name] = self.engine.router(name).cursor

    @rule(name=topics, cap=st.sampled_from([0, 2]))
    def cap(self, name: str, cap: int) -> None:
        topic = self.engine.topics.get(name)
        assert topic is not None
        if not topic.inbound:
            self.engine.put_topic(name, TopicConfigPatch(cap_records=cap))

    @rule(name=topics, match=st.sampled_from(["x:1", "y"]))
    def delete(self, name: str, match: str) -> None:
        """What is forwarded already stays, and a delete forwards what is left first."""
        topic = self.engine.topics.get(name)
        assert topic is not None
        if not topic.inbound:
            self.engine.delete_records(name, None, TagMatch(match, is_prefix=False))

    @rule(name=topics)
    def read(self, name: str) -> None:
        self.engine.read(name, 0, EVERYTHING)

    @rule()
    def forward(self) -> None:
        self.engine.forward_pending()

    @invariant()
    def nothing_is_missing_or_there_twice(self) -> None:
        for name in TOPICS:
            log = self.engine.topics.get(name).log  # type: ignore[union-attr]
            for fragment in log_reading.read(log, log.earliest_seq - 1, EVERYTHING._replace(limit=1 << 30)).fragments:
                shown = json.loads(fragment)
                self.written[name].setdefault(shown["$seq"], (fragment, shown.get("$tag")))
        for router in self.engine.routers:
            texts, gaps = self.whole(router.dest.name)
            copied: dict[int, int] = {}
            for seq, text in texts.items():
                stamp = json.loads(text).get("meta", {}).get("_topics_router", "")
                if stamp.startswith(f"{router.name}/"):
                    origin = int(stamp.rpartition("/")[2])
                    assert origin not in copied, "a copy is there twice"
                    assert not copied or origin > max(copied), "copies are out of order"
                    copied[origin] = seq
            match = router.settings.filter
            for origin, (text, tag) in self.written[router.source.name].items():
                if not self.starts[router.name] < origin <= router.cursor:
                    continue
                if match is not None and not match.matches(tag):
                    assert origin not in copied
                elif origin in copied:
                    assert json.loads(texts[copied[origin]])["data"] == json.loads(text)["data"]
                else:
                    # Lost by the source before it was forwarded: a tombstone lies between its neighbours.
                    before = max((seq for each, seq in copied.items() if each < origin), default=0)
                    after = min((seq for each, seq in copied.items() if each > origin), default=1 << 62)
                    assert any(before < gap < after for gap in gaps), f"{router.name}: {origin} is gone without a word"

    def whole(self, name: str) -> tuple[dict[int, bytes], list[int]]:
        """Everything a reader from the beginning is shown, without having anything forwarded."""
        topic = self.engine.topics.get(name)
        assert topic is not None
        texts: dict[int, bytes] = {}
        gaps: list[int] = []
        cursor = 0
        while cursor < topic.log.head_seq:
            batch = log_reading.read(topic.log, cursor, EVERYTHING)
            if batch.gap is not None:
                gaps += range(batch.gap.gap_from, batch.gap.gap_to + 1)
            for fragment in batch.fragments:
                texts[json.loads(fragment)["$seq"]] = fragment
            cursor = batch.next_from_seq
        return texts, gaps


RoutersAgainstModel.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestRouters = RoutersAgainstModel.TestCase
