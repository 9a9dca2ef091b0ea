"""The documents as a site: every link and anchor leads somewhere, it needs no network, its tables are the code's."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?P<address>(?:https?:)?//[^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as the guide says; a link or anchor that leads nowhere is an error."""
    directory = tmp_path_factory.mktemp("site")
    words = ("-q", "-W", "--keep-going", "-c", str(ROOT / "docs"), "-d", str(directory / "read"))
    command = [sys.executable, "-m", "sphinx", *words, str(ROOT), str(directory / "html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return directory / "html"


def test_every_document_is_a_page(site: Path) -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    pages = {path.relative_to(ROOT).with_suffix(".html") for path in documents}
    assert {path for path in pages if not (site / path).exists()} == set()


def test_a_link_to_a_file_or_folder_of_the_checkout_leads_somewhere(site: Path) -> None:
    guide = (site / "docs/operating.html").read_text()
    assert 'href="../CHANGELOG.html"' in guide
    for name in ("topics.service", "alerts.yml", "Dockerfile"):
        found = re.search(rf'href="\.\./(_downloads/\w+/{re.escape(name)})"', guide)
        assert found is not None, name
        assert (site / found[1]).exists()
    assert 'href="chat/README.html"' in (site / "examples/README.html").read_text()
    assert "url=docs/index.html" in (site / "index.html").read_text()


def test_search_finds_a_word_of_a_guide(site: Path) -> None:
    index = (site / "searchindex.js").read_text()
    assert '"tombston"' in index or "tombston:" in index  # as the stemmer has it
    assert (site / "search.html").exists()


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = {found["address"] for page in site.rglob("*.html") for found in LOADED.finditer(page.read_text())}
    assert loaded == set()


def test_the_tables_of_the_documents_are_what_the_code_says() -> None:
    command = [sys.executable, "scripts/reference_tables.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run scripts/reference_tables.py: {done.stdout}{done.stderr}"
