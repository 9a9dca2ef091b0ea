"""The documentation as a site with search: `sphinx-build -W -c docs . site`. Neither it nor its readers need a network.

The pages are the Markdown files that hosting sites show as well, so nothing here may need a syntax of its own. A link
to a file that is not a page (a configuration, a script) is a download. Why Sphinx:
docs/adr/0039-the-documentation-site.md.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

from topics.version import VERSION

project = "topics"
release = version = VERSION
html_title = f"topics {VERSION}"
html_theme = "furo"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "examples/**"]
exclude_patterns = [".*", "build", "deploy", "dist", "scripts", "site", "src", "tests", "topics-data"]

# Anchors as hosting sites make them of headings; a link to none of them is a warning, and -W makes that an error.
myst_heading_anchors = 5

highlight_language = "none"  # of blocks that name none: what is printed is not Python

# A page that is in no menu is still found by search.
# Replies are shown with `…` for what is left out: no lexer of JSON takes that, and the text is shown plainly.
suppress_warnings = ["misc.highlighting_failure", "toc.not_included"]

LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s:]+)\)")
FIRST_PAGE = (
    '<!doctype html><meta charset="utf-8"><title>topics</title><meta http-equiv="refresh" content="0; url={url}">\n'
)


def with_links_to_folders(app: Sphinx, page: str, source: list[str]) -> None:
    """Hosting sites show a folder with its README below. Here that is the README, or nothing but the folder's name."""
    here = (Path(app.srcdir) / page).parent

    def shown(link: re.Match[str]) -> str:
        if not (here / link[2]).is_dir():
            return link[0]
        return f"[{link[1]}]({link[2]}/README.md)" if (here / link[2] / "README.md").exists() else link[1]

    source[0] = LINK.sub(shown, source[0])


def write_first_page(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "index.html").write_text(FIRST_PAGE.format(url=f"{root_doc}.html"))


def setup(app: Sphinx) -> None:
    app.connect("source-read", with_links_to_folders)
    app.connect("build-finished", write_first_page)
