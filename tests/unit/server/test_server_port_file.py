"""The file that tells where the server listens."""

from pathlib import Path

import pytest

from topics.errors import ConfigurationError
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


@pytest.mark.parametrize("path", ["no/such/directory/address", "directory"])
def test_one_that_cannot_be_written_is_refused_by_its_name(tmp_path: Path, path: str) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(ConfigurationError) as refused:
        write_port_file(str(tmp_path / path), "127.0.0.1", 5)
    assert f"TOPICS_PORT_FILE={tmp_path / path} " in refused.value.message
    assert [found.name for found in tmp_path.rglob("*")] == ["directory"]
