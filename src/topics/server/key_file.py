"""TOPICS_API_KEYS_FILE: keys as hashes, a line each, read at the start and again at every SIGHUP."""

import os
import stat

from topics import limits
from topics.api.auth import Key, parse_hashed_keys
from topics.errors import ConfigurationError

_OTHERS = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP


def read_key_file(path: str) -> tuple[tuple[Key, ...], list[str]]:
    """The keys, and what to warn about."""
    shown = f"TOPICS_API_KEYS_FILE={path}"
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise ConfigurationError(f"{shown} is not a file: name one with a line for each key")
        with open(path, "rb") as file:
            text = file.read(limits.KEYS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{shown} cannot be read: {error.strerror or error}") from None
    if len(text) > limits.KEYS_FILE_BYTES_MAX:
        raise ConfigurationError(f"{shown} is larger than {limits.KEYS_FILE_BYTES_MAX} bytes: is it a file of keys?")
    try:
        keys = parse_hashed_keys(text.decode(), shown)
    except UnicodeDecodeError:
        raise ConfigurationError(f"{shown} is not UTF-8 text: is it a file of keys?") from None
    return keys, [_too_open(shown, path, mode)] if mode & _OTHERS else []


def _too_open(shown: str, path: str, mode: int) -> str:
    what = "read" if mode & _OTHERS == stat.S_IROTH else "changed"
    return f"{shown} can be {what} by others (mode {stat.S_IMODE(mode):04o}): chmod 640 {path}"
