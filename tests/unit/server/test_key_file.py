"""The file of keys: what of it is read, refused and warned of."""

import hashlib
from pathlib import Path

import pytest

from topics import limits
from topics.errors import ConfigurationError
from topics.server.key_file import read_key_file
from topics.server.settings import describe_settings, read_settings

LINE = f"sha256:{hashlib.sha256(b'secret').hexdigest()}:read"


def written(directory: Path, text: str | bytes, mode: int = 0o600) -> str:
    path = directory / "keys"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return str(path)


def refusal(path: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        read_key_file(path)
    assert refused.value.message.startswith(f"TOPICS_API_KEYS_FILE={path}")
    return refused.value.message


@pytest.mark.parametrize(
    ("mode", "warning"),
    [
        (0o600, ""),
        (0o640, ""),
        (0o644, "can be read by others (mode 0644)"),
        (0o660, "can be changed by others (mode 0660)"),
        (0o666, "can be changed by others (mode 0666)"),
    ],
)
def test_a_file_that_others_may_use_is_warned_of(tmp_path: Path, mode: int, warning: str) -> None:
    keys, warnings = read_key_file(written(tmp_path, LINE, mode))
    assert len(keys) == 1
    assert len(warnings) == bool(warning)
    assert all(warning in each for each in warnings)


def test_a_path_without_a_file_of_keys_is_refused_by_its_name(tmp_path: Path) -> None:
    assert "No such file" in refusal(str(tmp_path / "nowhere"))
    assert "is not a file" in refusal(str(tmp_path))
    assert "is not a file" in refusal("/dev/null")
    assert "larger than" in refusal(written(tmp_path, b"#" * (limits.KEYS_FILE_BYTES_MAX + 1)))
    assert "not UTF-8" in refusal(written(tmp_path, b"\xff"))
    assert "line 2" in refusal(written(tmp_path, f"{LINE}\nsecret"))


def test_keys_of_the_environment_and_of_the_file_both_count(tmp_path: Path) -> None:
    path = written(tmp_path, LINE, 0o644)
    environment = {"TOPICS_API_KEYS": "a,b", "TOPICS_API_KEYS_FILE": path}
    settings = read_settings(dict(environment))
    assert (len(settings.keys), settings.keys_file) == (3, path)
    assert [warning for warning in settings.warnings if "chmod" in warning] == list(settings.warnings)
    described = {each.name: each.value for each in describe_settings(dict(environment), {})}
    assert (described["TOPICS_API_KEYS"], described["TOPICS_API_KEYS_FILE"]) == ("2 keys", path)


def test_a_file_of_keys_is_enough_to_listen_to_other_machines(tmp_path: Path) -> None:
    assert read_settings({"TOPICS_HOST": "0.0.0.0", "TOPICS_API_KEYS_FILE": written(tmp_path, LINE)}).keys
