"""The client for asyncio. What it can ask is in `calls.py`, how it asks in `caller.py`; this is the shell."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from msgspec import UNSET, UnsetType

from topics.client import calls, core, steps
from topics.client.async_items import AsyncItems, AsyncReader
from topics.client.async_producer import AsyncProducer
from topics.client.async_worker import AsyncJobs, AsyncWorker
from topics.client.asyncio_port import AsyncioPort
from topics.client.caller import Caller
from topics.client.calls import Pages
from topics.client.conversing import Conversation, SessionWishes
from topics.client.core import Call
from topics.client.events import CaughtUp, Event, Gap, TopicDeleted
from topics.client.producing import Options, ProducerOptions, open_pending
from topics.client.reading import Losses, Place, Reading
from topics.client.shell import ClientShell
from topics.client.watching import Starts, Watching, WatchOptions
from topics.client.working import WorkerOptions, Working
from topics.wire.responses import ExportEnd, RecordReply

if TYPE_CHECKING:
    from topics.client.async_session import AsyncSession

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")


class Awaited(Generic[P, T]):
    """A method that sends the call of a function of `calls.py`; awaited, it gives the reply."""

    def __init__(self, call: Callable[P, Call[T]]) -> None:
        self._call = call
        self.__doc__ = call.__doc__

    @overload
    def __get__(self, client: None, kind: type) -> Callable[P, Call[T]]: ...
    @overload
    def __get__(self, client: "AsyncClient", kind: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: "AsyncClient | None", kind: type) -> Callable[P, Call[T]] | Callable[P, Awaitable[T]]:
        call = self._call
        if client is None:
            return call
        caller = client.caller

        def method(*args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
            return caller.send(call(*args, **kwargs))

        return method


class AwaitedPages(Generic[P, T]):
    """The same for lists that come in pages."""

    def __init__(self, pages: Callable[P, Pages[T]]) -> None:
        self._pages = pages
        self.__doc__ = pages.__doc__

    @overload
    def __get__(self, client: None, kind: type) -> Callable[P, Pages[T]]: ...
    @overload
    def __get__(self, client: "AsyncClient", kind: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(
        self, client: "AsyncClient | None", kind: type
    ) -> Callable[P, Pages[T]] | Callable[P, AsyncIterator[T]]:
        make = self._pages
        if client is None:
            return make
        caller = client.caller

        async def method(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
            pages = make(*args, **kwargs)
            cursor: str | UnsetType = UNSET
            while True:
                page = await caller.send(pages.call(cursor))
                for item in pages.items(page):
                    yield item
                cursor = page.next_cursor
                if cursor is UNSET:
                    return

        return method


class AwaitedSteps(Generic[P, T]):
    """The same for calls that take more than one request."""

    def __init__(self, steps: Callable[Concatenate[Caller, P], Coroutine[Any, Any, T]]) -> None:
        self._steps = steps
        self.__doc__ = steps.__doc__

    def __get__(self, client: "AsyncClient", kind: type) -> Callable[P, Awaitable[T]]:
        steps, caller = self._steps, client.caller

        def method(*args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
            return steps(caller, *args, **kwargs)

        return method


class AsyncExport:
    """Every record of a range. `trailer` tells what was lost of it, once the iteration is over."""

    def __init__(self, caller: Caller, topic: str, from_seq: int, to_seq: int | None) -> None:
        self._opening = (caller, topic, from_seq, to_seq)
        self.trailer: ExportEnd | None = None

    async def __aiter__(self) -> AsyncIterator[RecordReply]:
        export = await steps.open_export(*self._opening)
        try:
            while (records := await export.next_records()) is not None:
                for record in records:
                    yield record
            self.trailer = export.trailer
        finally:
            export.close()


class Closable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Opening(Generic[C]):
    """Something that takes a request to open: `async with` it, or await it and close it yourself."""

    def __init__(self, opened: Callable[[], Coroutine[Any, Any, C]]) -> None:
        self._opened = opened
        self._it: C | None = None

    def __await__(self) -> Generator[Any, None, C]:
        return self._opened().__await__()

    async def __aenter__(self) -> C:
        self._it = await self._opened()
        return self._it

    async def __aexit__(self, *exc_info: object) -> None:
        if self._it is not None:
            await self._it.close()


class AsyncClient(ClientShell):
    """A client for the tasks of one event loop. An API key is sent but never shown.

    `timeout_s` bounds an attempt, `deadline_s` a call with all its retries. `url` and `api_key` default to
    TOPICS_URL and TOPICS_API_KEY.
    """

    PORT = AsyncioPort

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._port.close()

    async def send(self, call: Call[T]) -> T:
        """Sends any call of `topics.client.calls`."""
        return await self.caller.send(call)

    topics = AwaitedPages(calls.topics)
    topic = Awaited(calls.topic)
    create = Awaited(calls.create)
    configure = AwaitedSteps(steps.configure)
    delete_topic = Awaited(calls.delete_topic)
    append = Awaited(calls.append)
    append_many = Awaited(calls.append_many)
    diff = Awaited(calls.diff)
    delete = Awaited(calls.delete)
    preview_delete = Awaited(calls.preview_delete)
    losses = Awaited(calls.losses)
    cursors = Awaited(calls.cursors)
    cursor = Awaited(calls.cursor)
    set_cursor = Awaited(calls.set_cursor)
    delete_cursor = Awaited(calls.delete_cursor)
    routers = AwaitedPages(calls.routers)
    router = Awaited(calls.router)
    put_router = Awaited(calls.put_router)
    delete_router = Awaited(calls.delete_router)
    claim = Awaited(calls.claim)
    ack = Awaited(calls.ack)
    nack = Awaited(calls.nack)
    extend = Awaited(calls.extend)
    leases = AwaitedPages(calls.leases)
    redrive = Awaited(calls.redrive)
    health = Awaited(calls.health)
    ready = Awaited(calls.ready)
    key = Awaited(calls.key)
    metrics = Awaited(calls.metrics)
    overview = Awaited(calls.overview)
    topic_map = Awaited(calls.topic_map)
    producer_state = Awaited(calls.producer_state)
    request = Awaited(core.request)

    @overload
    def read(
        self, topic: str, *, as_type: type[D], losses: Literal["yield"] = "yield", **place: Unpack[Place]
    ) -> AsyncReader[Event[D] | Gap]: ...
    @overload
    def read(
        self, topic: str, *, as_type: type[D], losses: Literal["hide", "raise"], **place: Unpack[Place]
    ) -> AsyncReader[Event[D]]: ...
    @overload
    def read(
        self, topic: str, *, losses: Literal["yield"] = "yield", **place: Unpack[Place]
    ) -> AsyncReader[Event[Any] | Gap]: ...
    @overload
    def read(
        self, topic: str, *, losses: Literal["hide", "raise"], **place: Unpack[Place]
    ) -> AsyncReader[Event[Any]]: ...
    def read(
        self, topic: str, *, as_type: type[Any] | None = None, losses: Losses = "yield", **place: Unpack[Place]
    ) -> AsyncReader[Any]:
        """The topic's records from a given place on, with the losses between them as `Gap`.

        `losses="hide"` leaves losses out, "raise" raises `LossMet`. `data` of an event is decoded as `as_type`.
        """
        return AsyncReader(Reading(self.caller, topic, place, losses, as_type))

    @overload
    def watch(
        self, topics: Starts, *, as_type: type[D], losses: Losses = "yield", **options: Unpack[WatchOptions]
    ) -> AsyncItems[Event[D] | Gap | CaughtUp | TopicDeleted]: ...
    @overload
    def watch(
        self, topics: Starts, *, losses: Losses = "yield", **options: Unpack[WatchOptions]
    ) -> AsyncItems[Event[Any] | Gap | CaughtUp | TopicDeleted]: ...
    def watch(
        self,
        topics: Starts,
        *,
        as_type: type[Any] | None = None,
        losses: Losses = "yield",
        **options: Unpack[WatchOptions],
    ) -> AsyncItems[Any]:
        """Follows many topics over one connection. Give it names, or a mapping from names to the seq to begin after
        (None: only what comes from now on). A deleted topic comes as `TopicDeleted`, and the others go on."""
        return AsyncItems(Watching(self.caller, topics, options, losses, as_type))

    def producer(
        self, topic: str, name: str | None = None, **options: Unpack[ProducerOptions]
    ) -> Opening[AsyncProducer]:
        """Appends records in batches, each exactly once over breaks and restarts of the server.

        A `name` is for records that you can produce again, such as the lines of a file: number n is the same record
        every time. Then exactly once also holds over restarts of this process: `next_sequence` says where to continue.
        """

        async def opened() -> AsyncProducer:
            return AsyncProducer(self.caller, await open_pending(self.caller, topic, name, Options(**options)))

        return Opening(opened)

    def export(self, topic: str, from_seq: int = 0, to_seq: int | None = None) -> AsyncExport:
        """Every record of the range, as one stream on a connection of its own.

        A broken stream is not resumed but raises; the caller can continue from its last record.
        """
        return AsyncExport(self.caller, topic, from_seq, to_seq)

    @overload
    def worker(self, queue: str, *, as_type: type[D], **options: Unpack[WorkerOptions]) -> AsyncWorker[D]: ...
    @overload
    def worker(self, queue: str, **options: Unpack[WorkerOptions]) -> AsyncWorker[Any]: ...
    def worker(
        self, queue: str, *, as_type: type[Any] | None = None, **options: Unpack[WorkerOptions]
    ) -> AsyncWorker[Any]:
        """Runs a handler for each job of a queue: decorate the handler with it, then call its `run`. A job is acked
        when the handler returns, and given back when it raises."""
        return AsyncWorker(Working(self.caller, queue, options, as_type))

    @overload
    def jobs(self, queue: str, *, as_type: type[D], **options: Unpack[WorkerOptions]) -> AsyncJobs[D]: ...
    @overload
    def jobs(self, queue: str, **options: Unpack[WorkerOptions]) -> AsyncJobs[Any]: ...
    def jobs(self, queue: str, *, as_type: type[Any] | None = None, **options: Unpack[WorkerOptions]) -> AsyncJobs[Any]:
        """A queue's jobs for a plain loop, which acks them itself."""
        return AsyncJobs(Working(self.caller, queue, options, as_type))

    def session(
        self, *, as_type: type[Any] | None = None, losses: Losses = "yield", **wishes: Unpack[SessionWishes]
    ) -> "AsyncSession":
        """Both directions over one WebSocket: subscribe and iterate, publish in between."""
        from topics.client.async_session import AsyncSession, connecting  # noqa: PLC0415 - few need the library

        settings = self._settings
        return AsyncSession(Conversation(self.caller, lambda: connecting(settings), losses, wishes, as_type))
