import json
import os
from pathlib import Path

import pytest

from topics import limits
from topics.cli.main import main
from topics.cli.settings_file import read_settings_file
from topics.errors import ConfigurationError
from topics.server.settings import Settings, describe_settings, read_settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "topics.toml"


def settings(file: Path, text: str, **environment: str) -> Settings:
    file.write_text(text)
    return read_settings(dict(environment), file=read_settings_file(str(file)))


def test_a_file_has_what_the_environment_has_under_shorter_names(file: Path) -> None:
    read = settings(
        file,
        'port = 4711\nprobe_auth = true\ncors_origins = ["https://a.example", "https://b.example"]\napi_keys = ["k:r"]',
    )
    assert (read.port, read.probe_auth, len(read.keys)) == (4711, True, 1)
    assert read.cors_origins == ("https://a.example", "https://b.example")


def test_the_environment_wins_over_the_file_unless_it_is_empty(file: Path) -> None:
    assert settings(file, "port = 1\nmax_topics = 7", TOPICS_PORT="2", TOPICS_MAX_TOPICS=" ").port == 2
    assert settings(file, "port = 1\nmax_topics = 7", TOPICS_PORT="2", TOPICS_MAX_TOPICS=" ").topics_max == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1", "in the settings file, prot is not a setting: it does nothing. Did you mean port?"),
        ("port = 'x'", "in the settings file, port='x': use a whole number"),
        ("host = '0.0.0.0'", "Set api_keys or api_keys_file, bind to 127.0.0.1, or"),
        ("TOPICS_PORT = 1", "TOPICS_PORT: settings are in lower case here, without TOPICS_; write port"),
        ("port = 1.5", "port: use a string, a whole number, true, false, or a list of strings"),
        ("[server]\nport = 1", "server: use a string, a whole number, true, false, or a list of strings"),
        ("port", "not TOML"),
        ("#" * (limits.SETTINGS_FILE_BYTES_MAX + 1), "larger than"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(file: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        settings(file, text)
    assert said in refused.value.message


def test_a_variable_that_cannot_be_used_is_called_by_its_name(file: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^TOPICS_PORT='x': use a whole number$"):
        settings(file, "port = 1", TOPICS_PORT="x")


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"/nowhere: No such file"):
        read_settings_file("/nowhere")


def test_every_setting_is_described_with_its_source_and_no_key_is_shown() -> None:
    environment = {"TOPICS_PORT": "1", "TOPICS_API_KEYS": "secret:r"}
    described = {each.name: each for each in describe_settings(environment, {"TOPICS_DATA_DIR": "/d"})}
    assert described["TOPICS_PORT"][1:] == ("1", "environment")
    assert described["TOPICS_DATA_DIR"][1:] == ("/d", "file")
    assert described["TOPICS_MAX_TOPICS"][1:] == (str(limits.TOPICS_MAX), "default")
    assert described["TOPICS_API_KEYS"][1:] == ("1 key", "environment")


def test_a_program_that_checks_settings_gets_an_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("TOPICS_")]:
        monkeypatch.delenv(name)
    assert main(["settings", "check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"starts": True, "warnings": []}
    monkeypatch.setenv("TOPICS_DATADIR", "/data")
    assert main(["settings", "check", "--json"]) == 1
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning == "TOPICS_DATADIR is not a setting: it does nothing. Did you mean TOPICS_DATA_DIR?"


def test_the_table_in_the_documents_has_every_setting() -> None:
    text = (Path(__file__).parents[3] / "docs/settings.md").read_text()
    missing = [
        each.name for each in describe_settings({}, {}) if each.name != "RUST_LOG" and f"| `{each.name}` |" not in text
    ]
    assert missing == []
