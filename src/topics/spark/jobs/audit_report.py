"""What an audit found: as values, which the command line shows as a table, and as one page without scripts, fonts or
pictures from elsewhere.

The page draws each topic's seq line from the first seq to the head, in buckets: the shares of live, deleted and lost
seqs, and below them the archived ones.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from msgspec import Struct

from topics.version import VERSION

TOPICS_SHOWN_MAX = 500
LOSSES_SHOWN_MAX = 12
NOTES_SHOWN_MAX = 20
WIDTH, LINE_HEIGHT, ARCHIVE_TOP, ARCHIVE_HEIGHT = 1000, 44, 50, 10
TICKS = 5
UNITS = ("B", "kB", "MB", "GB", "TB")

STYLE = """
:root { --ink:#1c2330; --soft:#667085; --paper:#f6f7f9; --card:#fff; --edge:#e3e6eb; --live:#2a9d6f; --deleted:#c4cad4;
  --lost:#d9472b; --archived:#3767c8; --empty:#eef0f3; }
@media (prefers-color-scheme: dark) { :root { --ink:#e7eaf0; --soft:#98a2b3; --paper:#12151b; --card:#1b2029;
  --edge:#2d3440; --live:#3fbf8a; --deleted:#596273; --lost:#f0664b; --archived:#6f9bff; --empty:#262c37; } }
* { box-sizing:border-box } body { margin:0; background:var(--paper); color:var(--ink);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif }
main { max-width:1080px; margin:0 auto; padding:36px 24px 64px }
h1 { font-size:26px; margin:0; letter-spacing:-.01em } h2 { font-size:17px; margin:0; word-break:break-word }
.head { display:flex; gap:16px; align-items:center; flex-wrap:wrap }
.verdict { padding:4px 14px; border-radius:999px; font-weight:600; color:#fff; background:var(--live) }
.verdict.bad { background:var(--lost) } .where { color:var(--soft); margin:6px 0 24px; word-break:break-all }
.tiles { display:grid; grid-template-columns:repeat(auto-fit,minmax(140px,1fr)); gap:12px; margin-bottom:24px }
.tile, .card { background:var(--card); border:1px solid var(--edge); border-radius:12px }
.tile { padding:12px 16px } .tile b { display:block; font-size:22px; font-variant-numeric:tabular-nums }
.tile span { color:var(--soft); font-size:13px } .card { padding:18px 20px; margin-bottom:16px }
.row { display:flex; justify-content:space-between; gap:16px; align-items:baseline; flex-wrap:wrap }
.sum { font-variant-numeric:tabular-nums } .sum i { font-style:normal; font-weight:600 }
.ok { color:var(--live); font-weight:600 } .wrong { color:var(--lost); font-weight:600 }
.legend { display:flex; gap:20px; flex-wrap:wrap; color:var(--soft); font-size:13px; margin:0 0 14px }
.legend i { display:inline-block; width:12px; height:12px; border-radius:3px; margin-right:6px; vertical-align:-1px }
svg { display:block; width:100%; height:auto; margin-top:12px } .live { fill:var(--live) }
.archived { fill:var(--archived) } .deleted { fill:var(--deleted) } .lost { fill:var(--lost) }
.empty { fill:var(--empty) }
svg text { fill:var(--soft); font-size:12px; font-variant-numeric:tabular-nums } svg line { stroke:var(--edge) }
.losses { color:var(--soft); font-size:13px; margin:8px 0 0 } .losses code { color:var(--ink) }
ul { margin:8px 0 0; padding-left:20px } code { font:13px ui-monospace,Menlo,Consolas,monospace; word-break:break-word }
.card.bad { border-color:var(--lost) } .fine { color:var(--soft); font-size:13px }
footer { color:var(--soft); font-size:13px }
"""


class LostRange(Struct, frozen=True):
    gap_from: int
    gap_to: int
    reason: str


class TopicAudit(Struct, frozen=True, kw_only=True):
    """Unless `read + deleted + lost = head_seq`, `unaccounted` is not 0. Of the archived records, up to `archived_to`,
    `archive_matched` are live and identical; `archive_only` have been deleted or lost since."""

    topic: str
    epoch: int
    head_seq: int
    read: int
    deleted: int
    lost: int
    unaccounted: int
    lost_ranges: tuple[LostRange, ...] = ()
    archived_to: int | None = None
    archive_matched: int = 0
    archive_only: int = 0
    problems: tuple[str, ...] = ()


class AuditSummary(Struct, frozen=True, kw_only=True):
    data: str
    archive: str | None
    sound: bool
    topics: tuple[TopicAudit, ...]
    problems: tuple[str, ...]
    unchecked: tuple[str, ...]
    notes: tuple[str, ...]
    checked_bytes: int
    wal_frames: int
    records: int
    archived_records: int
    elapsed_ms: int


@dataclass(frozen=True, slots=True)
class Picture:
    """Counts of seqs by bucket; `sizes` counts all of them."""

    topic: str
    head_seq: int
    sizes: Sequence[int]
    live: Sequence[int]
    lost: Sequence[int]
    archived: Sequence[int]


def page(summary: AuditSummary, pictures: Iterable[Picture]) -> str:
    by_topic = {picture.topic: picture for picture in pictures}
    # Topics with problems come first, then by name.
    topics = sorted(summary.topics, key=lambda topic: (not topic.problems, topic.topic))
    cards = [_card(topic, by_topic[topic.topic]) for topic in topics[:TOPICS_SHOWN_MAX]]
    more = len(topics) - len(cards)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>Audit of {escape(summary.data)}</title><style>{STYLE}</style></head><body><main>",
        _head(summary),
        _tiles(summary),
        _problems(summary),
        _legend(archive=summary.archive is not None),
        *cards,
        f'<p class="fine">and {more:,} more topics, all without problems shown above</p>' if more > 0 else "",
        _notes(summary),
        f"<footer>topics {escape(VERSION)} · {summary.elapsed_ms / 1000:.1f} s</footer></main></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _head(summary: AuditSummary) -> str:
    count = len(summary.problems) + sum(len(topic.problems) for topic in summary.topics)
    if count:
        verdict = f'<span class="verdict bad">{count} problem{"s" if count > 1 else ""}</span>'
    elif summary.unchecked:
        verdict = '<span class="verdict bad">not everything could be checked</span>'
    else:
        verdict = '<span class="verdict">sound</span>'
    archive = f" with the archive <code>{escape(summary.archive)}</code>" if summary.archive else ""
    where = f'<p class="where"><code>{escape(summary.data)}</code>{archive}</p>'
    return f'<div class="head"><h1>Audit</h1>{verdict}</div>{where}'


def _tiles(summary: AuditSummary) -> str:
    tiles = [
        ("topics", f"{len(summary.topics):,}"),
        ("records read", f"{summary.records:,}"),
        ("deleted", f"{sum(topic.deleted for topic in summary.topics):,}"),
        ("lost", f"{sum(topic.lost for topic in summary.topics):,}"),
        ("bytes checked", _size(summary.checked_bytes)),
    ]
    if summary.archive is not None:
        tiles.insert(4, ("archived records", f"{summary.archived_records:,}"))
    return (
        '<div class="tiles">'
        + "".join(f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for name, value in tiles)
        + "</div>"
    )


def _problems(summary: AuditSummary) -> str:
    found = [*summary.problems, *summary.unchecked]
    if not found:
        return ""
    items = "".join(f"<li><code>{escape(text)}</code></li>" for text in found)
    return f'<div class="card bad"><h2>In the files</h2><ul>{items}</ul></div>'


def _legend(*, archive: bool) -> str:
    kinds = [("live", "live"), ("deleted", "deleted: asked for"), ("lost", "lost: cap, TTL or crash")]
    if archive:
        kinds.append(("archived", "archived"))
    items = "".join(f'<span><i style="background:var(--{kind})"></i>{text}</span>' for kind, text in kinds)
    return f'<p class="legend">{items}</p>'


def _card(topic: TopicAudit, picture: Picture) -> str:
    right = not topic.problems and topic.unaccounted == 0
    mark = '<span class="ok">✓</span>' if right else '<span class="wrong">✗</span>'
    equation = (
        f'<span class="sum"><i>{topic.read:,}</i> read + <i>{topic.deleted:,}</i> deleted + <i>{topic.lost:,}</i> lost '
        f"{'=' if topic.unaccounted == 0 else '≠'} <i>{topic.head_seq:,}</i> {mark}</span>"
    )
    archived = ""
    if topic.archived_to is not None:
        archived = (
            f'<p class="losses">archived up to seq {topic.archived_to:,}: {topic.archive_matched:,} are live and the '
            f"same, {topic.archive_only:,} are only in the archive</p>"
        )
    problems = "".join(f"<li><code>{escape(text)}</code></li>" for text in topic.problems)
    return (
        f'<div class="card{"" if right else " bad"}"><div class="row"><h2>{escape(topic.topic)}</h2>{equation}</div>'
        f"{_line(picture, archived=topic.archived_to is not None)}{_losses(topic.lost_ranges)}{archived}"
        f"{f'<ul>{problems}</ul>' if problems else ''}</div>"
    )


def _line(picture: Picture, *, archived: bool) -> str:
    """The seq line. Neighbours that look the same are drawn as one."""
    head = picture.head_seq
    if not head:
        return '<p class="losses">nothing was ever written to it</p>'
    shapes: list[str] = []
    at = 0
    runs: list[tuple[int, int, tuple[float, float, float]]] = []
    for size, live, lost, kept in zip(picture.sizes, picture.live, picture.lost, picture.archived, strict=True):
        if not size:
            break
        shares = (live / size, lost / size, kept / size)
        if runs and runs[-1][2] == shares:
            runs[-1] = (runs[-1][0], at + size, shares)
        else:
            runs.append((at, at + size, shares))
        at += size
    for first, last, (live_share, lost_share, kept_share) in runs:
        left, width = WIDTH * first / head, WIDTH * (last - first) / head
        title = f"<title>seqs {first + 1:,} to {last:,}: {live_share:.0%} live, {lost_share:.0%} lost</title>"
        top = 0.0
        for kind, share in (
            ("lost", lost_share),
            ("deleted", max(0.0, 1 - live_share - lost_share)),
            ("live", live_share),
        ):
            if share > 0:
                shapes.append(_box(kind, left, top, width, LINE_HEIGHT * share, title))
                top += LINE_HEIGHT * share
        if archived:
            shapes.append(_box("empty", left, ARCHIVE_TOP, width, ARCHIVE_HEIGHT, ""))
            if kept_share > 0:
                height = ARCHIVE_HEIGHT * max(kept_share, 0.15)
                shapes.append(_box("archived", left, ARCHIVE_TOP, width, height, ""))
    bottom = (ARCHIVE_TOP + ARCHIVE_HEIGHT if archived else LINE_HEIGHT) + 14
    shapes += _axis(head, bottom)
    label = f"The seq line of {escape(picture.topic)}"
    return f'<svg viewBox="0 0 {WIDTH} {bottom + 4}" role="img" aria-label="{label}">{"".join(shapes)}</svg>'


def _axis(head: int, bottom: int) -> list[str]:
    marks = []
    for number in range(TICKS):
        seq = 1 + (head - 1) * number // (TICKS - 1)
        anchor = "start" if number == 0 else "end" if number == TICKS - 1 else "middle"
        marks.append(f'<text x="{WIDTH * number / (TICKS - 1):.1f}" y="{bottom}" text-anchor="{anchor}">{seq:,}</text>')
        if head == 1:
            break
    return marks


def _box(kind: str, left: float, top: float, width: float, height: float, title: str) -> str:
    # A hair wider than needed, so that no background shows between two boxes.
    return (
        f'<rect class="{kind}" x="{left:.2f}" y="{top:.2f}" width="{width + 0.3:.2f}" height="{height:.2f}">'
        f"{title}</rect>"
    )


def _losses(losses: Sequence[LostRange]) -> str:
    if not losses:
        return ""
    shown = ", ".join(
        f"<code>{loss.gap_from:,}–{loss.gap_to:,}</code> ({escape(loss.reason)})" for loss in losses[:LOSSES_SHOWN_MAX]
    )
    more = f" and {len(losses) - LOSSES_SHOWN_MAX} more" if len(losses) > LOSSES_SHOWN_MAX else ""
    return f'<p class="losses">lost: {shown}{more}</p>'


def _notes(summary: AuditSummary) -> str:
    if not summary.notes:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in summary.notes[:NOTES_SHOWN_MAX])
    more = len(summary.notes) - NOTES_SHOWN_MAX
    rest = f"<li>and {more} more</li>" if more > 0 else ""
    return f'<div class="card fine"><h2>Notes: put right by the next start</h2><ul>{items}{rest}</ul></div>'


def _size(size_bytes: int) -> str:
    """In the unit that leaves at most three digits before the point."""
    unit = min(max(len(str(size_bytes)) - 1, 0) // 3, len(UNITS) - 1)
    return f"{size_bytes / 1000**unit:,.{1 if unit else 0}f} {UNITS[unit]}"
