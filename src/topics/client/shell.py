"""How both clients are made: their arguments, their settings, and the caller over the port of the shell."""

import ssl
from typing import ClassVar, Protocol

from topics import limits
from topics.client.caller import Caller, Port
from topics.client.core import Address
from topics.client.retries import RetryPolicy
from topics.client.settings import ClientSettings
from topics.clock import Clock, SystemClock


class ClosablePort(Port, Protocol):
    def __init__(self, address: Address, tls: ssl.SSLContext | None, clock: Clock, connections_max: int) -> None: ...

    def close(self) -> None: ...


class ClientShell:
    """`timeout_s` bounds an attempt, `deadline_s` a call with all its retries. `url` and `api_key` default to
    TOPICS_URL and TOPICS_API_KEY."""

    PORT: ClassVar[type[ClosablePort]]

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = limits.CLIENT_TIMEOUT_S,
        deadline_s: float = limits.CLIENT_RETRY_TOTAL_MS_MAX / 1000,
        connections_max: int = limits.CLIENT_CONNECTIONS_MAX,
        policy: RetryPolicy | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = ClientSettings.of(
            url,
            api_key,
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            policy=policy,
            connections_max=connections_max,
            tls=tls,
        )
        self._settings = settings
        self.url = settings.url
        clock = clock or SystemClock()
        self._port = self.PORT(settings.address, settings.tls, clock, connections_max)
        self.caller = Caller(
            self.url, settings.requests(), self._port, clock, policy=settings.policy, timeout_s=timeout_s
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"
