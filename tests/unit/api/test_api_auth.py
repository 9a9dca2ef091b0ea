"""API keys: their syntax, their scopes, and that a refusal shows nothing."""

import hashlib

import pytest

from topics.api.auth import ANYBODY, Key, KeyStore, Scope, parse_keys
from topics.errors import ConfigurationError, Forbidden, Unauthorized


def key_for(entry: str, secret: bytes = b"k") -> Key:
    return parse_keys(entry).authenticate(b"Bearer " + secret)


@pytest.mark.parametrize(
    ("entry", "scopes", "prefixes"),
    [
        ("k", Scope.ALL, ("",)),
        ("k:", Scope.ALL, ("",)),
        ("k::", Scope.ALL, ("",)),
        ("k:read", Scope.READ, ("",)),
        ("k:r", Scope.READ, ("",)),
        ("k:rw", Scope.READ | Scope.WRITE, ("",)),
        ("k:read+write+delete+admin", Scope.ALL, ("",)),
        ("k:w+d+a", Scope.WRITE | Scope.DELETE | Scope.ADMIN, ("",)),
        ("k: READ + w ", Scope.READ | Scope.WRITE, ("",)),
        ("k:read:tenant42:|shared.", Scope.READ, ("tenant42:", "shared.")),
        ("k::tenant42:", Scope.ALL, ("tenant42:",)),
        ("k:read:", Scope.READ, ("",)),
    ],
)
def test_an_entry_is_a_key_with_scopes_and_prefixes(entry: str, scopes: Scope, prefixes: tuple[str, ...]) -> None:
    key = key_for(entry)
    assert (key.scopes, key.prefixes) == (scopes, prefixes)


@pytest.mark.parametrize(
    "entry", ["k:read:|", "k::||", "k:read:a|", "k:read:|a", "k:read:a||b", "k:read: | ", "k::a| |b"]
)
def test_an_empty_prefix_beside_others_refuses_to_start_instead_of_allowing_every_name(entry: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_keys(f"first,{entry}")
    assert refused.value.message.startswith("TOPICS_API_KEYS: entry 2 has an empty name prefix")


def test_entries_are_separated_by_commas_and_blanks_do_not_count() -> None:
    store = parse_keys(" one:read , two:write,, ")
    assert store.authenticate(b"Bearer one").scopes is Scope.READ
    assert store.authenticate(b"Bearer two").scopes is Scope.WRITE


@pytest.mark.parametrize("text", ["", "  "])
def test_no_keys_let_everybody_do_everything(text: str) -> None:
    store = parse_keys(text)
    assert not store
    assert store.authenticate(None) is ANYBODY
    assert store.authenticate(b"Bearer whatever") is ANYBODY


@pytest.mark.parametrize("text", [",", " , ", ":read", "k:reed", "k:read+", "k:+", "k:read|write", "k:rwd", "k,k:read"])
def test_a_malformed_entry_refuses_to_start(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_keys(text)
    assert refused.value.message.startswith("TOPICS_API_KEYS")


@pytest.mark.parametrize("text", ["hunter2:reed", "hunter2,hunter2", "ok,hunter2:read+hunter3"])
def test_a_refusal_to_start_shows_no_secret(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_keys(text)
    assert "hunter" not in refused.value.message


@pytest.mark.parametrize("header", [b"Bearer k", b"bearer k", b"BEARER   k  "])
def test_the_scheme_may_be_written_in_any_case(header: bytes) -> None:
    assert parse_keys("k:read").authenticate(header).scopes is Scope.READ


@pytest.mark.parametrize(
    "header", [None, b"", b"k", b"Bearer", b"Bearer ", b"Basic k", b"Bearer K", b"Bearer k2", b"Bearer k:read"]
)
def test_anything_but_a_known_key_is_refused(header: bytes | None) -> None:
    with pytest.raises(Unauthorized) as refused:
        parse_keys("k:read").authenticate(header)
    assert "k2" not in refused.value.message


def test_a_token_that_is_not_utf_8_is_just_unknown() -> None:
    with pytest.raises(Unauthorized):
        parse_keys("k").authenticate(b"Bearer \xff\xfe")


def test_a_key_outside_ascii_works() -> None:
    assert parse_keys("schlüssel").authenticate("Bearer schlüssel".encode()).scopes is Scope.ALL


def test_only_digests_are_kept() -> None:
    assert key_for("k:read:p").digest == hashlib.sha256(b"k").digest()


@pytest.mark.parametrize(
    ("held", "needed", "missing"),
    [
        (Scope.READ, Scope.WRITE, "write"),
        (Scope.READ, Scope.READ | Scope.WRITE, "write"),
        (Scope.NONE, Scope.READ | Scope.WRITE, "read+write"),
        (Scope.READ | Scope.WRITE | Scope.DELETE, Scope.ADMIN, "admin"),
    ],
)
def test_a_missing_scope_is_named(held: Scope, needed: Scope, missing: str) -> None:
    with pytest.raises(Forbidden) as refused:
        Key(b"", held, ("",)).require_scope(needed)
    assert refused.value.detail == {"scope": missing}


@pytest.mark.parametrize("needed", [Scope.NONE, Scope.READ, Scope.READ | Scope.WRITE])
def test_held_scopes_raise_nothing(needed: Scope) -> None:
    key_for("k:rw").require_scope(needed)


@pytest.mark.parametrize("name", ["tenant42:jobs", "shared.x", "tenant42:"])
def test_names_within_a_prefix_raise_nothing(name: str) -> None:
    key_for("k::tenant42:|shared.").require_name(name)


@pytest.mark.parametrize("name", ["tenant4:jobs", "Tenant42:jobs", "tenant42", "x", "sharedx"])
def test_names_outside_every_prefix_are_not(name: str) -> None:
    with pytest.raises(Forbidden) as refused:
        key_for("k::tenant42:|shared.").require_name(name)
    assert refused.value.detail == {"name": name}


def test_a_store_without_keys_is_false() -> None:
    assert not KeyStore()
    assert parse_keys("k")
