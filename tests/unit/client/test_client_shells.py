"""Both clients offer the same, from the same functions; and `import topics` stays cheap."""

import inspect
import subprocess
import sys

import topics
from topics.client import async_client, sync_client
from topics.client.async_client import AsyncClient
from topics.client.sync_client import Client

KINDS = {
    sync_client.Blocking: async_client.Awaited,
    sync_client.BlockingPages: async_client.AwaitedPages,
    sync_client.BlockingSteps: async_client.AwaitedSteps,
}


def public(kind: type) -> dict[str, object]:
    return {name: member for name, member in vars(kind).items() if not name.startswith("_")}


def test_both_clients_have_the_same_methods() -> None:
    assert public(Client).keys() == public(AsyncClient).keys()


def test_methods_of_one_name_come_from_one_function() -> None:
    for name, member in public(Client).items():
        other = public(AsyncClient)[name]
        if type(member) in KINDS:
            assert type(other) is KINDS[type(member)], name
            assert vars(other) == vars(member), name
        else:
            assert parameters(member) == parameters(other), name


def parameters(member: object) -> list[str]:
    assert callable(member)
    return list(inspect.signature(member).parameters)


def test_what_the_package_offers_is_found_under_its_name() -> None:
    assert topics.Client is Client
    assert topics.AsyncClient is AsyncClient
    assert {"Client", "Gap"} <= set(dir(topics))


def test_importing_the_package_imports_nothing_of_it_but_its_version() -> None:
    script = "import sys, topics; print([name for name in sys.modules if name.startswith('topics.')])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "['topics.version']\n"


def test_the_blocking_client_does_without_asyncio() -> None:
    """Spark imports it in every one of its many Python processes."""
    script = "import sys; from topics import Client; print('asyncio' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "False\n"
