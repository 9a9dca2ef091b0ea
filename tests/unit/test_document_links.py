"""Every link of a document leads somewhere: to a file of the project, and to a heading in it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """As hosting sites make them of headings: small letters, hyphens for spaces; repeated ones are numbered."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", document.read_text())):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", heading).lower()).replace(" ", "-")
        number, anchor = 0, words
        while anchor in found:
            number += 1
            anchor = f"{words}-{number}"
        found.add(anchor)
    return found


def broken_links(document: Path) -> list[str]:
    broken = []
    for link in LINK.finditer(CODE.sub("", FENCE.sub("", document.read_text()))):
        target = link["target"] or link["image"]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = document.parent / path if path else document
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: str(each.relative_to(ROOT)))
def test_every_link_of_a_document_leads_somewhere(document: Path) -> None:
    assert broken_links(document) == []


def test_a_link_to_a_missing_file_or_heading_is_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("# One … two\n[a](#one--two) [b](#two) [c](b.md) [d](a.md#one--two) `[e](c.md)`\n")
    assert broken_links(document) == ["#two", "b.md"]
