"""The file that tells where the server listens."""

from pathlib import Path

import pytest

from topics.server.port_file import write_port_file


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1:4000"), ("::1", "[::1]:4000")])
def test_it_holds_host_and_port(tmp_path: Path, host: str, shown: str) -> None:
    write_port_file(str(tmp_path / "address"), host, 4000)
    assert (tmp_path / "address").read_text() == shown


def test_it_replaces_what_was_there_and_leaves_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "address").write_text("an older and longer address:1")
    write_port_file(str(tmp_path / "address"), "127.0.0.1", 5)
    assert (tmp_path / "address").read_text() == "127.0.0.1:5"
    assert [path.name for path in tmp_path.iterdir()] == ["address"]
