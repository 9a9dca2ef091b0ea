"""The console's files as the server sends them: one page with its styles in it, and one script.

The script is all modules of this folder in one, so that the first view takes two requests and needs no build step. The
modules are plain ES modules: a file that is imported comes before the one that imports it, and the words `import` and
`export` fall away. So every import is `import { a, b } from "./file.js";`, and no two modules use the same name at
their top (a test holds them to it).
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

ENTRY: Final = "main.js"

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let)\b)", re.MULTILINE)
_STYLES_GO_HERE = "/* styles */"
_SCRIPT_VERSION_GOES_HERE = "{version}"


@dataclass(frozen=True, slots=True)
class Assets:
    page: bytes
    page_tag: bytes  # their ETags
    script: bytes
    script_tag: bytes
    policy: bytes  # the Content-Security-Policy of the page


def load() -> Assets:
    """Reads the files of this package; about 3 ms, once, when the page is first asked for."""
    files = {
        file.name: file.read_text(encoding="utf-8")
        for file in resources.files(__name__.rpartition(".")[0]).iterdir()
        if file.name.endswith((".html", ".css", ".js"))
    }
    script = join(files).encode()
    version = _digest(script)
    styles = files["console.css"]
    page = files["console.html"].replace(_SCRIPT_VERSION_GOES_HERE, version).replace(_STYLES_GO_HERE, styles).encode()
    return Assets(page, f'"{_digest(page)}"'.encode(), script, f'"{version}"'.encode(), _policy(styles))


def join(files: dict[str, str]) -> str:
    """All modules in one, each after those it imports."""
    parts: list[str] = []
    seen: set[str] = set()

    def add(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        source = files[name]
        for imported in _IMPORT.findall(source):
            add(imported)
        parts.append(f"// {name}\n" + _EXPORT.sub("", _IMPORT.sub("", source)))

    add(ENTRY)
    return "\n".join(parts)


def _policy(styles: str) -> bytes:
    """Only our own script, and the one style sheet by its hash. No text becomes HTML: trusted types see to that."""
    digest = base64.b64encode(hashlib.sha256(styles.encode()).digest()).decode()
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            f"style-src 'sha256-{digest}'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
