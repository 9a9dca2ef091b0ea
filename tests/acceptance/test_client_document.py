"""docs/client.md: every example works, in order, and prints what the document says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from topics import Client, testing

DOCUMENT = Path(__file__).parents[2] / "docs/client.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_example_prints_what_the_document_says(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = BLOCK.findall(DOCUMENT.read_text())
    assert len(blocks) > 20
    names: dict[str, object] = {"__name__": "example"}
    printed = ""
    with testing.server() as server:
        monkeypatch.setenv("TOPICS_URL", server.url)
        for language, text in blocks:
            if language == "python":
                assert printed == "", f"this is printed, and not shown: {printed}"
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(text, str(DOCUMENT), "exec"), names)
                printed = out.getvalue()
            else:
                assert printed == text
                printed = ""
        client = names["client"]
        assert isinstance(client, Client)
        client.close()
