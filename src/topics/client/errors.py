"""What can go wrong between a client and a server, beside what the server itself refuses."""

from topics.errors import TopicsError


class ServerUnreachable(TopicsError):
    """No connection, or it broke, and trying again did not help. Check that the server runs and the URL is right."""


class UnexpectedReply(TopicsError):
    """The server answered something this client does not understand. Check that the URL is that of a topics server,
    and that it is not older than this client. `code` is empty when there was none."""

    def __init__(self, message: str, status: int, code: str = "", **detail: object) -> None:
        super().__init__(message, **detail)
        self.status = status
        self.code = code


class ExportCut(TopicsError):
    """An export ended before its trailer, so it is not whole. Go on with another one after the last record."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f'the export of topic "{topic}" ended early: {reason}', topic=topic)
