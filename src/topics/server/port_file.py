"""TOPICS_PORT_FILE: tells whoever started this server where it listens."""

import os


def write_port_file(path: str, host: str, port: int) -> None:
    """Appears whole or not at all: readers may poll for it."""
    temporary = f"{path}.{os.getpid()}.tmp"
    shown = f"[{host}]" if ":" in host else host
    with open(temporary, "w", encoding="ascii") as file:
        file.write(f"{shown}:{port}")
    os.replace(temporary, path)
