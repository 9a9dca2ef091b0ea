"""Who may do what: API keys, their scopes and the name prefixes they are limited to.

Keys are kept as SHA-256 digests only. A presented token is hashed and compared with every key's
digest in constant time, without stopping at a match.
"""

import hashlib
import hmac
from enum import IntFlag
from typing import NamedTuple

from topics.errors import ConfigurationError, Forbidden, Unauthorized
from topics.model.config import TopicConfigPatch


class Scope(IntFlag):
    NONE = 0
    READ = 1
    WRITE = 2
    DELETE = 4
    ADMIN = 8
    ALL = 15


_SCOPES = {
    "read": Scope.READ,
    "r": Scope.READ,
    "write": Scope.WRITE,
    "w": Scope.WRITE,
    "delete": Scope.DELETE,
    "d": Scope.DELETE,
    "admin": Scope.ADMIN,
    "a": Scope.ADMIN,
    "rw": Scope.READ | Scope.WRITE,
}


class Key(NamedTuple):
    """`prefixes` always holds at least one; the empty prefix allows every name."""

    digest: bytes
    scopes: Scope
    prefixes: tuple[str, ...]

    def require_scope(self, scope: Scope) -> None:
        missing = scope & ~self.scopes
        if missing:
            names = "+".join(str(part.name).lower() for part in Scope if part in missing and part < Scope.ALL)
            raise Forbidden(f"this key lacks the scope {names}", scope=names)

    def require_name(self, name: str) -> None:
        if not name.startswith(self.prefixes):
            raise Forbidden(f'"{name}" is outside the prefixes this key may touch', name=name)

    def require_endpoints_of(self, router: str, source: str, dest: str) -> None:
        """Refuses to show where a router leads from or to if that is nothing the key may know; without naming it."""
        if not (source.startswith(self.prefixes) and dest.startswith(self.prefixes)):
            raise Forbidden(f'router "{router}" leads from or to a topic outside the prefixes this key may touch')

    def require_names_in(self, patch: TopicConfigPatch) -> None:
        """Refuses a configuration that would move records to a topic the key may not touch."""
        if isinstance(patch.dead_letter, str):
            self.require_name(patch.dead_letter)

    def prefixes_within(self, prefix: str) -> tuple[str, ...]:
        """What is left of its prefixes when only names with `prefix` are asked for."""
        return tuple(
            prefix if prefix.startswith(one) else one
            for one in self.prefixes
            if prefix.startswith(one) or one.startswith(prefix)
        )


ANYBODY = Key(b"", Scope.ALL, ("",))


class KeyStore:
    """The configured keys; without any, everybody may do everything (development)."""

    __slots__ = ("_keys",)

    def __init__(self, keys: tuple[Key, ...] = ()) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def authenticate(self, authorization: bytes | None) -> Key:
        """The key of an Authorization header; `ANYBODY` when no keys are configured."""
        if not self._keys:
            return ANYBODY
        scheme, _, token = (authorization or b"").partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not token:
            raise Unauthorized("this server needs an API key: send `Authorization: Bearer <key>`")
        return self._find(token)

    def _find(self, token: bytes) -> Key:
        presented = hashlib.sha256(token).digest()
        found: Key | None = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, presented):
                found = key
        if found is None:
            raise Unauthorized("the API key is not one this server knows")
        return found


def parse_keys(text: str) -> KeyStore:
    """Reads TOPICS_API_KEYS: `key[:scopes[:prefixes]]`, comma-separated. Anything odd refuses to start."""
    keys: list[Key] = []
    for number, entry in enumerate((part.strip() for part in text.split(",")), 1):
        if not entry:
            continue
        secret, _, rest = entry.partition(":")
        scopes, _, prefixes = rest.partition(":")
        if not secret:
            raise ConfigurationError(f"TOPICS_API_KEYS: entry {number} has no key before its first ':'")
        digest = hashlib.sha256(secret.encode()).digest()
        if any(key.digest == digest for key in keys):
            raise ConfigurationError(f"TOPICS_API_KEYS: entry {number} repeats the key of an earlier entry")
        keys.append(Key(digest, _parse_scopes(scopes, number), _parse_prefixes(prefixes, number)))
    if text.strip() and not keys:
        raise ConfigurationError("TOPICS_API_KEYS is set but holds no key")
    return KeyStore(tuple(keys))


def _parse_scopes(text: str, number: int) -> Scope:
    if not text:
        return Scope.ALL
    scopes = Scope.NONE
    for name in text.split("+"):
        scope = _SCOPES.get(name.strip().lower())
        if scope is None:
            # The entry's secret is not in this message, and neither is anything that follows it.
            raise ConfigurationError(
                f"TOPICS_API_KEYS: entry {number} has an unknown scope; use read, write, delete, admin joined by +"
            )
        scopes |= scope
    return scopes


def _parse_prefixes(text: str, number: int) -> tuple[str, ...]:
    """No prefixes at all mean every name. One empty prefix would, too, and nobody can tell whether it should."""
    prefixes = tuple(text.split("|"))
    if text and not all(prefix.strip() for prefix in prefixes):
        raise ConfigurationError(
            f"TOPICS_API_KEYS: entry {number} has an empty name prefix, which would allow every name; "
            "put a prefix on both sides of each |, or leave the prefixes out"
        )
    return prefixes
