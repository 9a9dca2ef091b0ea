"""A voice room over WebSocket: everybody sends a packet every 20 ms and gets those of all others."""

from dataclasses import dataclass

from topics.bench.live_plan import MediaPlan
from topics.bench.live_workload import LiveWorkload
from topics.bench.plan import LoadSettings
from topics.bench.targets import Target

PACKET_BYTES = 200


@dataclass(frozen=True)
class MediaRoom:
    """How many there are, and how many packets each sends a second."""

    participants: int = 30
    packets_per_s: int = 50


ROOM = MediaRoom()


class MediaWorkload(LiveWorkload):
    """Packets a second are the requests, deliveries a second the records."""

    name = "media"
    group = "media"

    def __init__(self, durability: str, room: MediaRoom = ROOM) -> None:
        self._room = room
        self.summary = (
            f"{room.participants} participants over WebSocket, {room.packets_per_s} packets/s of {PACKET_BYTES} bytes"
            f" each, publish to delivery, {durability} class"
        )
        super().__init__(durability)

    def plan(self, target: Target, settings: LoadSettings) -> MediaPlan:
        return MediaPlan(
            host=target.host,
            port=target.port,
            api_key=target.api_key,
            topic=self.topic,
            warm_up_s=settings.warm_up_s,
            seconds=settings.seconds,
            participants=self._room.participants,
            packets_per_s=self._room.packets_per_s,
            packet_bytes=PACKET_BYTES,
        )
