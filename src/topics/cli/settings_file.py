"""A file of settings (`topics serve --config topics.toml`): the variables of the environment under shorter names.

    port = 4000
    data_dir = "/var/lib/topics"
    cors_origins = ["https://app.example.com"]

A name is that of the variable without TOPICS_, in lower case. What the variable takes as a list with commas may be a
list here.
"""

from topics import limits
from topics.errors import ConfigurationError


def read_settings_file(path: str) -> dict[str, str]:
    """The variables the file stands for. It does not check that such settings exist; their reader does."""
    import tomllib  # noqa: PLC0415 - a start without a file does without it

    try:
        with open(path, "rb") as file:
            text = file.read(limits.SETTINGS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}. Name a file of settings in TOML") from None
    if len(text) > limits.SETTINGS_FILE_BYTES_MAX:
        raise ConfigurationError(f"{path}: larger than {limits.SETTINGS_FILE_BYTES_MAX} bytes; is it a settings file?")
    try:
        values = tomllib.loads(text.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from None
    return {_variable(path, name): _text(path, name, value) for name, value in values.items()}


def _variable(path: str, name: str) -> str:
    if not name.islower() or name.startswith("topics_"):
        short = name.lower().removeprefix("topics_")
        raise ConfigurationError(f"{path}: {name}: settings are in lower case here, without TOPICS_; write {short}")
    return f"TOPICS_{name.upper()}"


def _text(path: str, name: str, value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, list) and all(isinstance(each, str) and "," not in each for each in value):
        return ",".join(value)
    raise ConfigurationError(f"{path}: {name}: use a string, a whole number, true, false, or a list of strings")
