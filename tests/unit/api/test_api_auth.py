"""API keys: their syntax, their scopes, and that a refusal shows nothing."""

import hashlib

import pytest

from topics import limits
from topics.api.auth import ANYBODY, Key, KeyStore, Scope, parse_hashed_keys, parse_keys
from topics.errors import ConfigurationError, Forbidden, Unauthorized


def key_for(entry: str, secret: bytes = b"k") -> Key:
    return KeyStore(parse_keys(entry)).authenticate(b"Bearer " + secret)


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
    store = KeyStore(parse_keys(" one:read , two:write,, "))
    assert store.authenticate(b"Bearer one").scopes is Scope.READ
    assert store.authenticate(b"Bearer two").scopes is Scope.WRITE


@pytest.mark.parametrize("text", ["", "  "])
def test_no_keys_let_everybody_do_everything(text: str) -> None:
    store = KeyStore(parse_keys(text))
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
    assert KeyStore(parse_keys("k:read")).authenticate(header).scopes is Scope.READ


@pytest.mark.parametrize(
    "header", [None, b"", b"k", b"Bearer", b"Bearer ", b"Basic k", b"Bearer K", b"Bearer k2", b"Bearer k:read"]
)
def test_anything_but_a_known_key_is_refused(header: bytes | None) -> None:
    with pytest.raises(Unauthorized) as refused:
        KeyStore(parse_keys("k:read")).authenticate(header)
    assert "k2" not in refused.value.message


def test_a_token_that_is_not_utf_8_is_just_unknown() -> None:
    with pytest.raises(Unauthorized):
        KeyStore(parse_keys("k")).authenticate(b"Bearer \xff\xfe")


def test_a_key_outside_ascii_works() -> None:
    assert KeyStore(parse_keys("schlüssel")).authenticate("Bearer schlüssel".encode()).scopes is Scope.ALL


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
    assert KeyStore(parse_keys("k"))


# Keys of a file, which may be read again


def line(secret: str, rights: str = "") -> str:
    return f"sha256:{hashlib.sha256(secret.encode()).hexdigest()}{rights}"


def hashed(*lines: str) -> tuple[Key, ...]:
    return parse_hashed_keys("\n".join(lines), "keys")


def test_a_file_has_a_line_for_each_key_and_others_for_people() -> None:
    store = KeyStore((), hashed("# the dashboard", line("one", ":read:t42:|shared."), "", f"  {line('two')}  "))
    assert store.authenticate(b"Bearer one") == (hashlib.sha256(b"one").digest(), Scope.READ, ("t42:", "shared."))
    assert store.authenticate(b"Bearer two").scopes is Scope.ALL


def test_the_hash_of_a_key_is_no_key() -> None:
    store = KeyStore((), hashed(line("one")))
    for token in (line("one"), line("one").removeprefix("sha256:")):
        with pytest.raises(Unauthorized):
            store.authenticate(f"Bearer {token}".encode())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hunter2:read", "keys: line 1 is not sha256:"),
        ("sha256:hunter2", "keys: line 1 is not sha256:"),
        (f"{line('a')} # hunter2", "keys: line 1 is not sha256:"),
        (f"{line('a')}\n\n{line('b', ':reed')}", "keys: line 3 has an unknown scope"),
        (line("a", "::x|"), "keys: line 1 has an empty name prefix"),
        (f"{line('a')}\n{line('a', ':read')}", "keys: line 2 repeats the key"),
        ("", "keys holds no key"),
        ("# nothing\n", "keys holds no key"),
        ("\n".join(line(str(n)) for n in range(limits.KEYS_FILE_KEYS_MAX + 1)), "keys holds 1001 keys"),
    ],
)
def test_a_file_with_anything_odd_is_refused_by_its_line_without_showing_it(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_hashed_keys(text, "keys")
    assert refused.value.message.startswith(told)
    assert "hunter" not in refused.value.message


def test_new_keys_of_the_file_replace_its_old_ones_and_leave_the_fixed() -> None:
    store = KeyStore(parse_keys("fixed"), hashed(line("kept"), line("less", ":rw"), line("gone")))
    kept = store.authenticate(b"Bearer kept")
    gone = store.replace(hashed(line("kept"), line("less", ":read"), line("new")))
    assert gone == {hashlib.sha256(secret).digest() for secret in (b"less", b"gone")}
    for secret in (b"fixed", b"kept", b"less", b"new"):
        store.authenticate(b"Bearer " + secret)
    with pytest.raises(Unauthorized):
        store.authenticate(b"Bearer gone")
    assert store.admits(kept)
    assert not store.admits(hashed(line("gone"))[0])


def test_a_key_in_both_places_is_refused_and_changes_nothing() -> None:
    store = KeyStore(parse_keys("fixed"), hashed(line("one")))
    with pytest.raises(ConfigurationError, match="key 2 of TOPICS_API_KEYS_FILE is also in TOPICS_API_KEYS"):
        store.replace(hashed(line("two"), line("fixed")))
    store.authenticate(b"Bearer one")
