"""The numbers of the formats are those that docs/storage-formats.md has for this version."""

from pathlib import Path

from topics.storage import heads, segment_tags, segment_text, snapshot, wal_mark, wal_positions
from topics.version import VERSION

DOCUMENT = Path(__file__).parents[3] / "docs" / "storage-formats.md"


def test_the_document_has_the_numbers_of_this_version() -> None:
    numbers = (
        wal_mark.WAL_FORMAT,
        snapshot.SNAPSHOT_VERSION,
        snapshot.STATE_FORMAT,
        segment_tags.TAGS_VERSION,
        segment_text.TEXT_VERSION,
        heads.HEADS_FORMAT,
        wal_positions.POSITIONS_FORMAT,
    )
    row = f"| {VERSION} | {' | '.join(map(str, numbers))} |"
    assert row in DOCUMENT.read_text(), "a format has changed: see docs/releasing.md"
