"""Who may do what: API keys, their scopes and the name prefixes they are limited to.

Some are fixed for the life of the process (TOPICS_API_KEYS), some are those of a file that may be read again.

Keys are kept as SHA-256 digests only. A presented token is hashed and compared with every key's
digest in constant time, without stopping at a match.
"""

import hashlib
import hmac
import re
from enum import IntFlag
from typing import NamedTuple

from topics import limits
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
_HASHED = re.compile(r"sha256:([0-9a-fA-F]{64})(?::(.*))?")


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
        """Refuses to show the ends of a router if the key may not know them, and does not name them."""
        if not (source.startswith(self.prefixes) and dest.startswith(self.prefixes)):
            raise Forbidden(f'router "{router}" leads from or to a topic outside the prefixes this key may touch')

    def require_names_in(self, patch: TopicConfigPatch) -> None:
        """Refuses a configuration that would move records to a topic the key may not touch."""
        if isinstance(patch.dead_letter, str):
            self.require_name(patch.dead_letter)

    def prefixes_within(self, prefix: str) -> tuple[str, ...]:
        """The part of its prefixes that lies within `prefix`."""
        return tuple(
            prefix if prefix.startswith(one) else one
            for one in self.prefixes
            if prefix.startswith(one) or one.startswith(prefix)
        )


ANYBODY = Key(b"", Scope.ALL, ("",))


class KeyStore:
    """The configured keys; without any, everybody may do everything (development)."""

    __slots__ = ("_keys", "fixed")

    def __init__(self, fixed: tuple[Key, ...] = (), of_file: tuple[Key, ...] = ()) -> None:
        self.fixed = fixed
        self._keys = self._joined(of_file)

    def replace(self, of_file: tuple[Key, ...]) -> frozenset[bytes]:
        """Replaces the keys of the file. Returns the digests of those that are gone or have other rights now: what
        they have open has to end."""
        before, self._keys = self._keys, self._joined(of_file)
        return frozenset(key.digest for key in set(before) - set(self._keys))

    def _joined(self, of_file: tuple[Key, ...]) -> tuple[Key, ...]:
        digests = {key.digest for key in self.fixed}
        for number, key in enumerate(of_file, 1):
            if key.digest in digests:
                raise ConfigurationError(
                    f"key {number} of TOPICS_API_KEYS_FILE is also in TOPICS_API_KEYS: remove it from one of them"
                )
        return self.fixed + of_file

    def __len__(self) -> int:
        return len(self._keys)

    def admits(self, key: Key) -> bool:
        """Whether a key that was found earlier still has the same rights."""
        return key is ANYBODY or key in self._keys

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
            raise Unauthorized("this server does not know the API key")
        return found


def parse_keys(text: str) -> tuple[Key, ...]:
    """Reads TOPICS_API_KEYS: `key[:scopes[:prefixes]]`, comma-separated. Anything odd refuses to start."""
    keys: list[Key] = []
    for number, entry in enumerate((part.strip() for part in text.split(",")), 1):
        if not entry:
            continue
        secret, _, rest = entry.partition(":")
        if not secret:
            raise ConfigurationError(f"TOPICS_API_KEYS: entry {number} has no key before its first ':'")
        digest = hashlib.sha256(secret.encode()).digest()
        if any(key.digest == digest for key in keys):
            raise ConfigurationError(f"TOPICS_API_KEYS: entry {number} repeats the key of an earlier entry")
        keys.append(_parse_rights(digest, rest, f"TOPICS_API_KEYS: entry {number}"))
    if text.strip() and not keys:
        raise ConfigurationError("TOPICS_API_KEYS is set but holds no key")
    return tuple(keys)


def parse_hashed_keys(text: str, path: str) -> tuple[Key, ...]:
    """Reads the text of a file of keys: a line `sha256:<64 hex digits>[:scopes[:prefixes]]` for each; empty lines and
    those that begin with # are for people. Anything odd is refused, by its line."""
    keys: dict[bytes, Key] = {}
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        where = f"{path}: line {number}"
        match = _HASHED.fullmatch(entry)
        if match is None:
            # The line is not in this message: it may be a key that was not hashed.
            raise ConfigurationError(
                f"{where} is not sha256:<64 hex digits>[:scopes[:prefixes]]; `topics keys generate` prints such a line"
            )
        digest = bytes.fromhex(match[1])
        if digest in keys:
            raise ConfigurationError(f"{where} repeats the key of an earlier line")
        keys[digest] = _parse_rights(digest, match[2] or "", where)
    if not keys:
        raise ConfigurationError(f"{path} holds no key: nobody could use this server")
    if len(keys) > limits.KEYS_FILE_KEYS_MAX:
        raise ConfigurationError(f"{path} holds {len(keys)} keys; at most {limits.KEYS_FILE_KEYS_MAX} are allowed")
    return tuple(keys.values())


def _parse_rights(digest: bytes, text: str, where: str) -> Key:
    scopes, _, prefixes = text.partition(":")
    return Key(digest, _parse_scopes(scopes, where), _parse_prefixes(prefixes, where))


def _parse_scopes(text: str, where: str) -> Scope:
    if not text:
        return Scope.ALL
    scopes = Scope.NONE
    for name in text.split("+"):
        scope = _SCOPES.get(name.strip().lower())
        if scope is None:
            # The entry's secret is not in this message, and neither is anything that follows it.
            raise ConfigurationError(f"{where} has an unknown scope; use read, write, delete, admin joined by +")
        scopes |= scope
    return scopes


def _parse_prefixes(text: str, where: str) -> tuple[str, ...]:
    """No prefixes mean every name. One empty prefix would mean the same, but was probably a mistake."""
    prefixes = tuple(text.split("|"))
    if text and not all(prefix.strip() for prefix in prefixes):
        raise ConfigurationError(
            f"{where} has an empty name prefix, which would allow every name; "
            "put a prefix on both sides of each |, or leave the prefixes out"
        )
    return prefixes
