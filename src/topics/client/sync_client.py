"""The blocking client. What it can ask is in `calls.py`, how it asks in `caller.py`; this is the shell."""

import contextlib
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from msgspec import UNSET, UnsetType

from topics.client import calls, core, steps
from topics.client.caller import Caller, run
from topics.client.calls import Pages
from topics.client.conversing import Conversation, SessionWishes
from topics.client.core import Call
from topics.client.events import CaughtUp, Event, Gap, TopicDeleted
from topics.client.producing import Options, ProducerOptions, open_pending
from topics.client.reading import Losses, Place, Reading
from topics.client.shell import ClientShell
from topics.client.sockets import SocketPort
from topics.client.sync_items import Items, Reader
from topics.client.sync_producer import Producer
from topics.client.sync_worker import Jobs, Worker
from topics.client.watching import Starts, Watching, WatchOptions
from topics.client.working import WorkerOptions, Working
from topics.wire.responses import ExportEnd, RecordReply

if TYPE_CHECKING:
    from topics.client.sync_session import Session

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")


class Blocking(Generic[P, T]):
    """A method that sends the call of a function of `calls.py` and returns the reply."""

    def __init__(self, call: Callable[P, Call[T]]) -> None:
        self._call = call
        self.__doc__ = call.__doc__

    @overload
    def __get__(self, client: None, kind: type) -> Callable[P, Call[T]]: ...
    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[P, T]: ...
    def __get__(self, client: "Client | None", kind: type) -> Callable[P, Call[T]] | Callable[P, T]:
        call = self._call
        if client is None:
            return call
        caller = client.caller

        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return run(caller.send(call(*args, **kwargs)))

        return method


class BlockingPages(Generic[P, T]):
    """The same for lists that come in pages."""

    def __init__(self, pages: Callable[P, Pages[T]]) -> None:
        self._pages = pages
        self.__doc__ = pages.__doc__

    @overload
    def __get__(self, client: None, kind: type) -> Callable[P, Pages[T]]: ...
    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[P, Iterator[T]]: ...
    def __get__(self, client: "Client | None", kind: type) -> Callable[P, Pages[T]] | Callable[P, Iterator[T]]:
        make = self._pages
        if client is None:
            return make
        caller = client.caller

        def method(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            pages = make(*args, **kwargs)
            cursor: str | UnsetType = UNSET
            while True:
                page = run(caller.send(pages.call(cursor)))
                yield from pages.items(page)
                cursor = page.next_cursor
                if cursor is UNSET:
                    return

        return method


class BlockingSteps(Generic[P, T]):
    """The same for calls that take more than one request."""

    def __init__(self, steps: Callable[Concatenate[Caller, P], Coroutine[Any, Any, T]]) -> None:
        self._steps = steps
        self.__doc__ = steps.__doc__

    def __get__(self, client: "Client", kind: type) -> Callable[P, T]:
        steps, caller = self._steps, client.caller

        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return run(steps(caller, *args, **kwargs))

        return method


class Client(ClientShell):
    """A client for threads: any number may use it at once. An API key is sent but never shown.

    `timeout_s` bounds an attempt, `deadline_s` a call with all its retries. `url` and `api_key` default to
    TOPICS_URL and TOPICS_API_KEY.
    """

    PORT = SocketPort

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._port.close()

    def send(self, call: Call[T]) -> T:
        """Sends any call of `topics.client.calls`."""
        return run(self.caller.send(call))

    topics = BlockingPages(calls.topics)
    topic = Blocking(calls.topic)
    create = Blocking(calls.create)
    configure = BlockingSteps(steps.configure)
    delete_topic = Blocking(calls.delete_topic)
    append = Blocking(calls.append)
    append_many = Blocking(calls.append_many)
    diff = Blocking(calls.diff)
    delete = Blocking(calls.delete)
    preview_delete = Blocking(calls.preview_delete)
    losses = Blocking(calls.losses)
    cursors = Blocking(calls.cursors)
    cursor = Blocking(calls.cursor)
    set_cursor = Blocking(calls.set_cursor)
    delete_cursor = Blocking(calls.delete_cursor)
    routers = BlockingPages(calls.routers)
    router = Blocking(calls.router)
    put_router = Blocking(calls.put_router)
    delete_router = Blocking(calls.delete_router)
    claim = Blocking(calls.claim)
    ack = Blocking(calls.ack)
    nack = Blocking(calls.nack)
    extend = Blocking(calls.extend)
    leases = BlockingPages(calls.leases)
    redrive = Blocking(calls.redrive)
    health = Blocking(calls.health)
    ready = Blocking(calls.ready)
    key = Blocking(calls.key)
    metrics = Blocking(calls.metrics)
    overview = Blocking(calls.overview)
    topic_map = Blocking(calls.topic_map)
    producer_state = Blocking(calls.producer_state)
    request = Blocking(core.request)

    @overload
    def read(
        self, topic: str, *, as_type: type[D], losses: Literal["yield"] = "yield", **place: Unpack[Place]
    ) -> Reader[Event[D] | Gap]: ...
    @overload
    def read(
        self, topic: str, *, as_type: type[D], losses: Literal["hide", "raise"], **place: Unpack[Place]
    ) -> Reader[Event[D]]: ...
    @overload
    def read(
        self, topic: str, *, losses: Literal["yield"] = "yield", **place: Unpack[Place]
    ) -> Reader[Event[Any] | Gap]: ...
    @overload
    def read(self, topic: str, *, losses: Literal["hide", "raise"], **place: Unpack[Place]) -> Reader[Event[Any]]: ...
    def read(
        self, topic: str, *, as_type: type[Any] | None = None, losses: Losses = "yield", **place: Unpack[Place]
    ) -> Reader[Any]:
        """The topic's records from a given place on, with the losses between them as `Gap`.

        `losses="hide"` leaves losses out, "raise" raises `LossMet`. `data` of an event is decoded as `as_type`.
        """
        return Reader(Reading(self.caller, topic, place, losses, as_type))

    @overload
    def watch(
        self, topics: Starts, *, as_type: type[D], losses: Losses = "yield", **options: Unpack[WatchOptions]
    ) -> Items[Event[D] | Gap | CaughtUp | TopicDeleted]: ...
    @overload
    def watch(
        self, topics: Starts, *, losses: Losses = "yield", **options: Unpack[WatchOptions]
    ) -> Items[Event[Any] | Gap | CaughtUp | TopicDeleted]: ...
    def watch(
        self,
        topics: Starts,
        *,
        as_type: type[Any] | None = None,
        losses: Losses = "yield",
        **options: Unpack[WatchOptions],
    ) -> Items[Any]:
        """Follows many topics over one connection. Give it names, or a mapping from names to the seq to begin after
        (None: only what comes from now on). A deleted topic comes as `TopicDeleted`, and the others go on."""
        return Items(Watching(self.caller, topics, options, losses, as_type))

    def producer(self, topic: str, name: str | None = None, **options: Unpack[ProducerOptions]) -> Producer:
        """Appends records in batches, each exactly once over breaks and restarts of the server.

        A `name` is for records that you can produce again, such as the lines of a file: number n is the same record
        every time. Then exactly once also holds over restarts of this process: `next_sequence` says where to continue.
        """
        return Producer(self.caller, run(open_pending(self.caller, topic, name, Options(**options))))

    def export(
        self, topic: str, from_seq: int = 0, to_seq: int | None = None
    ) -> Generator[RecordReply, None, ExportEnd]:
        """Every record of the range, as one stream on a connection of its own. The generator returns the trailer.

        A broken stream is not resumed but raises; the caller can continue from its last record.
        """
        export = run(steps.open_export(self.caller, topic, from_seq, to_seq))
        with contextlib.closing(export):
            while (records := run(export.next_records())) is not None:
                yield from records
            return export.trailer

    @overload
    def worker(self, queue: str, *, as_type: type[D], **options: Unpack[WorkerOptions]) -> Worker[D]: ...
    @overload
    def worker(self, queue: str, **options: Unpack[WorkerOptions]) -> Worker[Any]: ...
    def worker(self, queue: str, *, as_type: type[Any] | None = None, **options: Unpack[WorkerOptions]) -> Worker[Any]:
        """Runs a handler for each job of a queue: decorate the handler with it, then call its `run`. A job is acked
        when the handler returns, and given back when it raises."""
        return Worker(Working(self.caller, queue, options, as_type))

    @overload
    def jobs(self, queue: str, *, as_type: type[D], **options: Unpack[WorkerOptions]) -> Jobs[D]: ...
    @overload
    def jobs(self, queue: str, **options: Unpack[WorkerOptions]) -> Jobs[Any]: ...
    def jobs(self, queue: str, *, as_type: type[Any] | None = None, **options: Unpack[WorkerOptions]) -> Jobs[Any]:
        """A queue's jobs for a plain loop, which acks them itself."""
        return Jobs(Working(self.caller, queue, options, as_type))

    def session(
        self, *, as_type: type[Any] | None = None, losses: Losses = "yield", **wishes: Unpack[SessionWishes]
    ) -> "Session":
        """Both directions over one WebSocket: subscribe and iterate, publish in between."""
        from topics.client.sync_session import Session, connecting  # noqa: PLC0415 - few need the library

        settings = self._settings
        return Session(Conversation(self.caller, lambda: connecting(settings), losses, wishes, as_type))
