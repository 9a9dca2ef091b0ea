"""What a client is made with: its arguments, and the environment where they are left out."""

import os
import ssl
from dataclasses import dataclass

from topics.client.core import Address, check_api_key
from topics.client.http1 import Requests
from topics.client.retries import RetryPolicy
from topics.errors import InvalidRequest

DEFAULT_URL = "http://127.0.0.1:4000"


@dataclass(frozen=True, slots=True, repr=False)
class ClientSettings:
    url: str
    address: Address
    api_key: str | None
    policy: RetryPolicy
    timeout_s: float
    connections_max: int
    tls: ssl.SSLContext | None

    @classmethod
    def of(
        cls,
        url: str | None,
        api_key: str | None,
        *,
        timeout_s: float,
        deadline_s: float,
        policy: RetryPolicy | None,
        connections_max: int,
        tls: ssl.SSLContext | None,
    ) -> "ClientSettings":
        url = url or os.environ.get("TOPICS_URL") or DEFAULT_URL
        address = Address.of(url)
        if api_key is None:
            api_key = os.environ.get("TOPICS_API_KEY") or None
        if api_key is not None:
            check_api_key(api_key)
        for name, value in (("timeout_s", timeout_s), ("deadline_s", deadline_s), ("connections_max", connections_max)):
            if value <= 0:
                raise InvalidRequest.in_field(name, "must be more than 0")
        if policy is None:
            policy = RetryPolicy(total_ms_max=int(deadline_s * 1000))
        if address.secure and tls is None:
            tls = ssl.create_default_context()
        return cls(url, address, api_key, policy, timeout_s, connections_max, tls if address.secure else None)

    @property
    def websocket_url(self) -> str:
        address = self.address
        return f"{'wss' if address.secure else 'ws'}://{address.authority}{address.prefix}/v0/ws"

    @property
    def websocket_headers(self) -> dict[str, str]:
        return {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}

    def requests(self) -> Requests:
        return Requests(self.address, self.api_key)
