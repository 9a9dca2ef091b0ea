"""topics: a persistent event engine. Named append-only logs over a JSON-first HTTP API.

    from topics import Client

What is named here is imported when it is first used, so that `import topics` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from topics.version import VERSION

if TYPE_CHECKING:
    from topics.client.async_client import AsyncClient as AsyncClient
    from topics.client.calls import NewRecord as NewRecord
    from topics.client.events import CaughtUp as CaughtUp
    from topics.client.events import Event as Event
    from topics.client.events import Gap as Gap
    from topics.client.events import TopicDeleted as TopicDeleted
    from topics.client.sync_client import Client as Client
    from topics.client.working import Job as Job
    from topics.client.working import Retry as Retry
    from topics.errors import TopicsError as TopicsError

__version__ = VERSION

_HOMES = {
    "AsyncClient": "topics.client.async_client",
    "CaughtUp": "topics.client.events",
    "Client": "topics.client.sync_client",
    "Event": "topics.client.events",
    "Gap": "topics.client.events",
    "Job": "topics.client.working",
    "NewRecord": "topics.client.calls",
    "Retry": "topics.client.working",
    "TopicDeleted": "topics.client.events",
    "TopicsError": "topics.errors",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'topics' has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
