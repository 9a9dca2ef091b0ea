"""Tells the service manager (systemd, Type=notify) how this server is doing: ready, reloading, stopping.

The protocol is one datagram of `NAME=value` lines to the socket named by NOTIFY_SOCKET; `@` stands for the zero byte of
an abstract address. Without the variable there is nobody to tell.
"""

import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger("topics.server")


def tell(message: str, environment: Mapping[str, str] = os.environ) -> None:
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.sendto(message.encode(), address)
    except OSError as error:
        # It will say itself that it waited in vain; the server serves all the same.
        log.warning("the service manager at NOTIFY_SOCKET could not be told %s: %s", message, error)
