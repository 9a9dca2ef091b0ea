"""All topics by name and by id, and their names in order for listing."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from topics.engine.topic import Topic


class Registry:
    """If two topics have the same name, it belongs to the one with the higher id: shards are replayed one after the
    other, so a topic may still be there when its successor is created, or come when its successor has gone."""

    __slots__ = ("_by_id", "_names", "_removed", "by_name")

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}  # to look at
        self._by_id: dict[int, Topic] = {}
        self._names: list[str] = []
        self._removed: dict[str, int] | None = {}  # while logs are replayed: by name, the highest id removed

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def get(self, name: str) -> Topic | None:
        return self.by_name.get(name)

    def by_id(self, topic_id: int) -> Topic | None:
        return self._by_id.get(topic_id)

    def replaced(self) -> list[Topic]:
        """The topics whose name belongs to a newer one, or to none any more because a newer one had it last."""
        return [topic for topic in self._by_id.values() if self.by_name.get(topic.name) is not topic]

    def end_of_log(self) -> None:
        """From now on operations come in order: no topic appears after its successor."""
        self._removed = None

    def add(self, topic: Topic) -> None:
        self._by_id[topic.topic_id] = topic
        if self._removed and self._removed.get(topic.name, 0) > topic.topic_id:
            return
        other = self.by_name.get(topic.name)
        if other is None:
            insort(self._names, topic.name)
        if other is None or other.topic_id < topic.topic_id:
            self.by_name[topic.name] = topic

    def remove(self, topic: Topic) -> None:
        del self._by_id[topic.topic_id]
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
            del self._names[bisect_left(self._names, topic.name)]
        if self._removed is not None:
            self._removed[topic.name] = max(self._removed.get(topic.name, 0), topic.topic_id)

    def names_after(self, after: str, prefixes: tuple[str, ...]) -> Iterator[str]:
        return names_after(self._names, after, prefixes)


def names_after(names: list[str], after: str, prefixes: tuple[str, ...]) -> Iterator[str]:
    """Those of the sorted `names` greater than `after` that begin with one of `prefixes`, in order, each once."""
    for prefix in _disjoint(prefixes):
        index = max(bisect_left(names, prefix), bisect_right(names, after))
        while index < len(names) and names[index].startswith(prefix):
            yield names[index]
            index += 1


def _disjoint(prefixes: tuple[str, ...]) -> list[str]:
    """The prefixes in order, without those that another one covers."""
    kept: list[str] = []
    for prefix in sorted(prefixes):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return kept
