"""TOPICS_PORT_FILE: tells whoever started this server where it listens."""

import os
from contextlib import suppress

from topics.errors import ConfigurationError


def write_port_file(path: str, host: str, port: int) -> None:
    """Appears whole or not at all: readers may poll for it."""
    temporary = f"{path}.{os.getpid()}.tmp"
    shown = f"[{host}]" if ":" in host else host
    try:
        with open(temporary, "w", encoding="ascii") as file:
            file.write(f"{shown}:{port}")
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            os.remove(temporary)
        raise ConfigurationError(
            f"TOPICS_PORT_FILE={path} cannot be written: {error.strerror or error}. "
            "Name a file in a directory that exists and may be written to"
        ) from None
