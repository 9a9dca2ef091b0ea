"""What can go wrong between a client and a server, besides refusals of the server."""

from topics.errors import TopicsError


class ServerUnreachable(TopicsError):
    """There was no connection, or it broke, and retries did not help. Check that the server runs and that the URL is
    right."""


class OutcomeUnknown(ServerUnreachable):
    """The connection broke after a request that must not be sent twice (a delete by tag, a redrive). It may have been
    carried out: look at the topic, then decide whether to repeat it."""


class UnexpectedReply(TopicsError):
    """The server's answer makes no sense to this client. Check that the URL is that of a topics server, and that it is
    not older than this client. `code` is empty when there was none."""

    def __init__(self, message: str, status: int, code: str = "", **detail: object) -> None:
        super().__init__(message, **detail)
        self.status = status
        self.code = code


class ExportCut(TopicsError):
    """An export ended before its trailer, so it is not whole. Go on with another one after the last record."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f'the export of topic "{topic}" ended early: {reason}', topic=topic)


class LossMet(TopicsError):
    """Records were lost before they were read, and `losses="raise"` was asked for. `detail` has the range; read on from
    its end to go on without them."""

    def __init__(self, topic: str, first: int, last: int, reason: str) -> None:
        super().__init__(
            f'records {first} to {last} of topic "{topic}" are lost ({reason}); go on from_seq={last} without them',
            topic=topic,
            first=first,
            last=last,
            reason=reason,
        )


class ProducerFailed(TopicsError):
    """A batch could not be written, so the producer has ended: what comes behind a hole would be out of order. The
    cause says why. Make a new producer of the same name; with the same numbers, what was written stays written once."""

    def __init__(self, topic: str, producer: str, lost: int, cause: BaseException) -> None:
        super().__init__(
            f'producer "{producer}" of topic "{topic}" has ended with {lost} records not acknowledged: {cause}',
            topic=topic,
            producer=producer,
            records=lost,
        )
        self.__cause__ = cause


class ProducerForked(TopicsError):
    """A producer does not survive a fork: its thread, and what it had not sent, are in the parent. Make one in each
    process, with a name of its own."""


class SessionBusy(TopicsError):
    """A session is used by two threads or tasks at once. Open one for each."""


class ClientClosed(TopicsError):
    """The client was closed. Make a new one."""


class WrongLoop(TopicsError):
    """An AsyncClient belongs to the event loop it was first used on. Make one for each loop."""
