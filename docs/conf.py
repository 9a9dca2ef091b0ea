"""The documentation as a site with search: `sphinx-build -W docs site`. Neither it nor its readers need a network.

The pages are the Markdown files that hosting sites show as well, so nothing here may need a syntax of its own. Why
Sphinx: docs/adr/0039-the-documentation-site.md.
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
root_doc = "index"
exclude_patterns = ["examples"]

# Anchors as hosting sites make them of headings; a link to none of them is a warning, and -W makes that an error.
myst_heading_anchors = 5

highlight_language = "none"  # of blocks that name none: what is printed is not Python

# A page that is in no menu is still found by search.
# Replies are shown with `…` for what is left out: no lexer of JSON takes that, and the text is shown plainly.
suppress_warnings = ["misc.highlighting_failure", "toc.not_included"]

LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s:]+)(?:#[^)]*)?\)")


def without_links_out(app: Sphinx, page: str, source: list[str]) -> None:
    """Files of a checkout beside `docs/` are not on the site: their names stay, the links go."""
    here = (Path(app.srcdir) / page).parent

    def shown(link: re.Match[str]) -> str:
        return link[0] if (here / link[2]).resolve().is_relative_to(app.srcdir) else link[1]

    source[0] = LINK.sub(shown, source[0])


def setup(app: Sphinx) -> None:
    app.connect("source-read", without_links_out)
