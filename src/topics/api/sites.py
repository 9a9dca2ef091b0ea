"""Whose web pages may use this server: CORS, and what a server without keys refuses.

A server without keys obeys anybody who can reach it, and a browser reaches loopback for every page it shows.
So without keys two kinds of request are refused, unless a setting allows them:

- one whose `Origin` is another site's (or that says itself that it comes from one): a page that posts, or opens a
  WebSocket, which no browser asks us about first;
- one whose `Host` is not this server's: a page whose own name was made to lead here (DNS rebinding), so that the
  browser takes us for its site.

With keys neither is needed: a page of another site does not have the key, and browsers add none by themselves.
What a browser lets a page *read* is the other half: the origins in TOPICS_CORS_ORIGINS get CORS, with keys or without.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import structs

from topics import limits
from topics.api.http import Response, Upgrade
from topics.errors import ConfigurationError, Forbidden

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

ANY: Final = "*"

Headers = dict[bytes, bytes]

_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
_HOST_NAME = re.compile(r"[a-z0-9_-][a-z0-9._-]*")
_HEADER_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+(?:[ \t]*,[ \t]*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_LOOPBACK_NAME = "localhost"
# What a browser sends with every request, one or the other, and a page cannot leave out.
_MARKS_OF_A_BROWSER = (b"origin", b"sec-fetch-site", b"accept-language")
_EXPOSED = (b"access-control-expose-headers", b"retry-after, x-request-id")


class Sites:
    """`origins` may read the answers: a tuple of origins, or `ANY` alone. `own_names`: what a browser may call this
    server when it has no keys, besides the loopback names; `ANY` for whatever it likes."""

    def __init__(self, origins: Sequence[str], own_names: Sequence[str], *, has_keys: bool) -> None:
        self._any_origin = ANY in origins
        self._origins = frozenset(origin.encode() for origin in origins)
        self._any_name = ANY in own_names
        self._own_names = frozenset(name.lower() for name in own_names)
        # Bound to all addresses of the machine, it goes by each of them. No address can be rebound: only names can.
        self._any_address = not {"0.0.0.0", "::"}.isdisjoint(own_names)
        self._has_keys = has_keys
        self._hosts_known: set[bytes] = set()

    # What a server without keys refuses

    def check(self, headers: Headers, *, link: bool) -> None:
        """Raises `Forbidden` for a request that a page of another site has made. Hot: once per request of a server
        without keys. `link`: other sites may link to what is asked for."""
        host = headers.get(b"host")
        if host is not None and host not in self._hosts_known:
            self._check_host(host, headers)
        if b"origin" in headers:
            self._check_origin(headers[b"origin"], host)
        elif headers.get(b"sec-fetch-site") == b"cross-site" and not link and not self._any_origin:
            # Images, scripts and links send no Origin, and a GET of a work stream takes jobs.
            raise Forbidden(
                "a page of another site made this request, and this server has no keys: open the address yourself, "
                "or set TOPICS_API_KEYS"
            )

    def _check_host(self, host: bytes, headers: Headers) -> None:
        name = _split_host(host.decode("latin-1").lower())[0]
        if not (self._is_own(name) or (_is_of_no_domain(name) and not _is_a_browser(headers))):
            raise Forbidden(
                f"this server has no keys and is not known as {name[:80]!r}: a web page may have pointed its own "
                "name here. Use localhost or the address it listens on, add the name to TOPICS_ALLOWED_HOSTS, or set "
                "TOPICS_API_KEYS",
                host=name[:80],
            )
        if self._is_own(name):
            if len(self._hosts_known) >= limits.HOSTS_REMEMBERED_MAX:
                self._hosts_known.clear()
            self._hosts_known.add(host)

    def _is_own(self, name: str) -> bool:
        if self._any_name or not name or name in self._own_names:
            return True
        if name == _LOOPBACK_NAME or name.endswith(f".{_LOOPBACK_NAME}"):
            return True
        address = _address(name)
        return address is not None and (self._any_address or address.is_loopback)

    def _check_origin(self, origin: bytes, host: bytes | None) -> None:
        if self.shares_with(origin) or (host is not None and _is_same(origin.lower(), host.lower())):
            return
        shown = origin[:200].decode("latin-1")
        raise Forbidden(
            f"a page of {shown} has made this request, and this server has no keys: add the origin to "
            "TOPICS_CORS_ORIGINS, or set TOPICS_API_KEYS",
            origin=shown,
        )

    # What browsers on other sites may read

    def shares_with(self, origin: bytes | None) -> bool:
        return origin is not None and (self._any_origin or origin.lower() in self._origins)

    def share(self, headers: Headers, answer: Response) -> Response:
        """The answer, with the header that tells the browser that this page may read it."""
        origin = headers.get(b"origin")
        if origin is None or not self._origins or isinstance(answer, Upgrade):
            return answer
        added: tuple[tuple[bytes, bytes], ...] = ((b"vary", b"origin"),)
        if self.shares_with(origin):
            added = (*self._allowed(origin), _EXPOSED)
        return structs.replace(answer, headers=answer.headers + added)

    def preflight(self, headers: Headers, methods: Sequence[str]) -> Response | None:
        """The answer to a browser's preflight, or None if this is not one."""
        origin, method = headers.get(b"origin"), headers.get(b"access-control-request-method")
        if origin is None or method is None or (self._has_keys and not self._origins):
            return None
        if not self.shares_with(origin):
            shown = origin[:200].decode("latin-1")
            raise Forbidden(f"pages of {shown} may not use this server: add it to TOPICS_CORS_ORIGINS", origin=shown)
        # `share` names the allowed origin, as on every answer: to a browser, naming it twice is an error.
        allowed = [
            (b"access-control-allow-methods", ", ".join(methods).encode()),
            (b"access-control-max-age", b"%d" % limits.PREFLIGHT_S_MAX),
        ]
        asked_for = headers.get(b"access-control-request-headers", b"")
        if _HEADER_NAMES.fullmatch(asked_for):
            allowed.append((b"access-control-allow-headers", asked_for))
        if headers.get(b"access-control-request-private-network") == b"true":
            allowed.append((b"access-control-allow-private-network", b"true"))
        return Response(204, b"", headers=tuple(allowed))

    def _allowed(self, origin: bytes) -> tuple[tuple[bytes, bytes], ...]:
        if self._any_origin:
            return ((b"access-control-allow-origin", b"*"),)  # and never credentials
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-credentials", b"true"),
            (b"vary", b"origin"),
        )


def parse_origins(text: str) -> tuple[str, ...]:
    """Reads TOPICS_CORS_ORIGINS: origins as browsers write them, comma-separated, or `*` alone."""
    origins = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if origins == (ANY,):
        return origins
    return tuple(_parse_origin(origin) for origin in origins)


def _parse_origin(text: str) -> str:
    found = _ORIGIN.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"TOPICS_CORS_ORIGINS: {text[:80]!r} is not an origin; use scheme://host or scheme://host:port, such as "
            "https://app.example.com, without a path, joined with commas; or * alone for every site"
        )
    scheme, host, port = found.groups()
    return f"{scheme}://{host}" if port is None or port == _DEFAULT_PORTS.get(scheme) else text


def parse_hosts(text: str) -> tuple[str, ...]:
    """Reads TOPICS_ALLOWED_HOSTS: names and addresses, comma-separated, or `*` alone."""
    hosts = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if hosts == (ANY,):
        return hosts
    for host in hosts:
        if _address(host.strip("[]")) is None and _HOST_NAME.fullmatch(host) is None:
            raise ConfigurationError(
                f"TOPICS_ALLOWED_HOSTS: {host[:80]!r} is not a host; use names and addresses without scheme or port, "
                "such as topics.internal, joined with commas; or * alone for every name"
            )
    return tuple(host.strip("[]").removesuffix(".") for host in hosts)


def _split_host(text: str) -> tuple[str, str]:
    """Name and port of a `Host`, an IPv6 address without its brackets; what is missing is empty."""
    name, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or (":" in name and not name.endswith("]")):
        name, port = text, ""
    if name.startswith("[") and name.endswith("]"):
        return name[1:-1], port
    return name.removesuffix("."), port


def _is_same(origin: bytes, host: bytes) -> bool:
    """Whether the page is this server's own. The scheme does not count: a proxy in front may speak TLS."""
    scheme, separator, place = origin.decode("latin-1").partition("://")
    default = _DEFAULT_PORTS.get(scheme, "")
    origin_name, origin_port = _split_host(place)
    name, port = _split_host(host.decode("latin-1"))
    return bool(separator) and (origin_name, origin_port or default) == (name, port or default)


def _is_of_no_domain(name: str) -> bool:
    """Nobody on the Internet owns a name without a dot. Containers and tests have such names."""
    return "." not in name and ":" not in name


def _is_a_browser(headers: Headers) -> bool:
    return any(mark in headers for mark in _MARKS_OF_A_BROWSER)


def _address(name: str) -> "IPv4Address | IPv6Address | None":
    from ipaddress import ip_address  # noqa: PLC0415 - with the first name that is not known yet

    try:
        address = ip_address(name)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
