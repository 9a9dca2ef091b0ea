"""Whether anybody is there at all."""

import socket

_TIMEOUT_S = 5.0


def listens(host: str, port: int) -> bool:
    """Whether a connection to the port is taken."""
    try:
        socket.create_connection((host, port), _TIMEOUT_S).close()
    except OSError:
        return False
    return True
