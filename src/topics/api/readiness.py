"""Whether the server serves yet, or still: recovering, ready or stopping. The server room moves it."""

from enum import Enum, auto

from topics.errors import NotReady, ShuttingDown


class Phase(Enum):
    RECOVERING = auto()
    READY = auto()
    STOPPING = auto()


class Readiness:
    __slots__ = ("phase", "replay_progress")

    def __init__(self) -> None:
        self.phase = Phase.RECOVERING
        self.replay_progress = 0.0

    def require(self) -> None:
        """Raises unless the server is ready."""
        if self.phase is Phase.READY:
            return
        if self.phase is Phase.STOPPING:
            raise ShuttingDown("the server is shutting down")
        raise NotReady("the server is still recovering its log", replay_progress=round(self.replay_progress, 4))
