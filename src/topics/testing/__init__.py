"""For tests of whatever uses topics.

`server()` runs a real one on a free port, with its data in a temporary directory:

    with topics.testing.server() as server, server.client() as client:
        client.append("orders", {"sku": 1})

pytest has the same as the fixtures `topics_server` and `topics_client`.

`fake_clock.FakeClock`, `fake_disk.FakeDisk` and `simulated_server.SimulatedServer` are a whole server in the test's own
process: no sockets, threads or waiting, and it crashes when the test likes. Stand-ins that only tests of this project
use are not here, but in its `tests/doubles`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topics.testing.running_server import RunningServer as RunningServer
    from topics.testing.running_server import server as server


def __getattr__(name: str) -> object:
    # Late, as pytest looks into this package in every run of whoever has it installed.
    if name not in {"RunningServer", "server"}:
        raise AttributeError(f"module 'topics.testing' has no attribute {name!r}")
    from topics.testing import running_server  # noqa: PLC0415

    found: object = getattr(running_server, name)
    return found
