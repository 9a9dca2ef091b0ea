"""What sessions of both shells ask of the library `websockets`, and what its errors mean. Imported with a session."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.exceptions import InvalidStatus, WebSocketException

from topics import limits
from topics.client.caller import Broken
from topics.client.conversing import refused_handshake
from topics.client.settings import ClientSettings


def connect_options(settings: ClientSettings) -> dict[str, Any]:
    return {
        "uri": settings.websocket_url,
        "additional_headers": settings.websocket_headers,
        "ssl": settings.tls,
        "compression": None,
        "proxy": None,
        "open_timeout": settings.timeout_s,
        "close_timeout": limits.CLIENT_SESSION_CLOSE_S,
        "max_size": limits.CLIENT_LINE_BYTES_MAX,
    }


@contextmanager
def breaking(*, sent: bool) -> Iterator[None]:
    """Errors of a connection come out as `Broken`, and a refused handshake as the error it is."""
    try:
        yield
    except InvalidStatus as refused:
        raise refused_handshake(refused.response) from None
    except (OSError, WebSocketException) as error:
        raise Broken(str(error) or type(error).__name__, sent=sent) from None
