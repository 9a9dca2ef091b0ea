"""`Accept` headers: which of several kinds of answer a client wants most."""

from collections.abc import Sequence


def quality(parameters: bytes) -> float:
    """The `q` of one offer: 1 if it has none, 0 if it is not a number."""
    for parameter in parameters.split(b";"):
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def kinds_named(accept: bytes) -> set[bytes]:
    """The kinds the header names, however much each is wanted."""
    return {part.partition(b";")[0].strip().lower() for part in accept.split(b",")}


def preferred(accept: bytes | None, offered: Sequence[bytes]) -> bytes | None:
    """The media type to answer with, or None if the client takes none of the `offered`.

    The most specific range that fits a type gives its quality. If two are wanted equally, the one that was named wins,
    and then the one offered first. Without a header anything is taken.
    """
    if accept is None:
        return offered[0]
    ranges: dict[bytes, float] = {}
    for part in accept.lower().split(b","):
        kind, _, parameters = part.partition(b";")
        ranges[kind.strip()] = quality(parameters)
    best: bytes | None = None
    best_rank = (0.0, 0)
    for media_type in offered:
        rank = _rank(media_type, ranges)
        if rank[0] > 0 and rank > best_rank:
            best, best_rank = media_type, rank
    return best


def _rank(media_type: bytes, ranges: dict[bytes, float]) -> tuple[float, int]:
    """Quality, and how specifically the type was named."""
    family = media_type.partition(b"/")[0] + b"/*"
    for specificity, kind in ((2, media_type), (1, family), (0, b"*/*")):
        if kind in ranges:
            return ranges[kind], specificity
    return 0.0, 0
