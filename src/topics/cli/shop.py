"""The shop of `topics demo`: who writes, works and reads in it. Each actor is a thread with a client of its own.

shoppers ─► orders ─┬─► orders:vip      (router, only tags vip:*)
                    └─► audit           (router)
clerks   ─► emails ─► mailers           (queue: some jobs fail and come again, some bounce for good)
              └─► emails:dead
browsers ─► clicks                      (capped: what nobody has read in time is lost)
              └─► dashboard             (a reader that is too slow, with a named cursor)
talkers  ─► chat:general, chat:support
carts    ─► carts                       (a TTL: what is not bought expires)
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from topics.errors import TopicsError

if TYPE_CHECKING:
    from topics.client.sync_client import Client

CUSTOMERS = ("ada", "grace", "linus", "margaret", "edsger", "barbara", "ken", "radia", "dennis", "frances")
VIPS = {"ada", "grace", "radia"}
BOUNCING = {"edsger", "ken"}
GOODS = {"mug": 12.5, "shirt": 24.0, "poster": 9.9, "keyboard": 89.0, "duck": 6.5, "book": 31.0}
PAGES = ("/", "/mugs", "/shirts", "/sale", "/cart", "/checkout")
TALK = (
    "is the duck back in stock?",
    "yes, since noon",
    "my mug arrived, thank you!",
    "where is my order?",
    "on its way",
    "does the keyboard click?",
    "it does",
    "lovely shop",
    "how long is the sale?",
    "until sunday",
)
CLICKS_KEPT = 400
DELIVERIES_MAX = 3


@dataclass(slots=True)
class Shop:
    """What the actors share: where the server is, when to stop, and what they have done so far."""

    connect: "Callable[[], Client]"
    stop: threading.Event
    random: Random
    pace: float = 1.0
    orders: int = 0
    mailed: int = 0
    failed: int = 0
    lost_clicks: int = 0
    people: list[threading.Thread] = field(default_factory=list)
    failures: list[TopicsError] = field(default_factory=list)

    def rest(self, seconds: float) -> bool:
        """Waits about this long, at the shop's pace; False when it is time to go home."""
        return not self.stop.wait(seconds * self.random.uniform(0.5, 1.5) / self.pace)


def open_shop(client: "Client") -> None:
    """Makes the topics, the queue and the routers. Those that are there stay."""
    client.create("orders", durability="fsync")
    client.create("emails", type="queue", lease_ms=10_000, max_deliveries=DELIVERIES_MAX, dead_letter="emails:dead")
    client.create("clicks", cap_records=CLICKS_KEPT)
    client.create("carts", ttl_ms=20_000)
    client.put_router("orders->audit", "orders", "audit")
    client.put_router("orders->orders:vip", "orders", "orders:vip", filter="vip:*")
    client.append("chat:general", {"from": "shop", "text": "welcome"}, tag="shop")
    client.append("chat:support", {"from": "shop", "text": "ask us anything"}, tag="shop")


def shoppers(shop: Shop, client: "Client") -> None:
    while shop.rest(0.35):
        who = shop.random.choice(CUSTOMERS)
        bought = shop.random.sample(list(GOODS), shop.random.randint(1, 3))
        total = round(sum(GOODS[sku] for sku in bought), 2)
        tag = f"vip:{who}" if who in VIPS else f"customer:{who}"
        reply = client.append("orders", {"customer": who, "items": bought, "total": total}, tag=tag, node="shop-1")
        client.append("emails", {"to": f"{who}@example.org", "order": reply.last_seq, "template": "thanks"}, tag=who)
        shop.orders += 1


def mailers(shop: Shop, client: "Client") -> None:
    """A worker by hand: `topics work emails -- ./mail.sh` does the same with a command."""
    node = f"mailer-{threading.get_native_id()}"
    while shop.rest(0.2):
        jobs = client.claim("emails", node=node, max=2).claimed
        for job in jobs:
            if not shop.rest(0.5):
                break
            mail: dict[str, Any] = _decoded(job.data)
            bounces = mail["to"].partition("@")[0] in BOUNCING
            if bounces or shop.random.random() < 0.1:
                client.nack("emails", [job], node=node, delay_ms=2000)
                shop.failed += 1
            else:
                client.ack("emails", [job], node=node)
                shop.mailed += 1


def browsers(shop: Shop, client: "Client") -> None:
    """Visitors come in waves, so that the slow dashboard is overrun now and then, and not all the time."""
    wave = 0
    while shop.rest(0.25):
        wave += 1
        count = 30 if wave % 24 < 8 else 4
        clicks = [{"who": shop.random.choice(CUSTOMERS), "page": shop.random.choice(PAGES)} for _ in range(count)]
        client.append_many("clicks", clicks, node="shop-1")


def dashboard(shop: Shop, client: "Client") -> None:
    """Reads clicks too slowly, and is told what it lost."""
    position = 0
    while shop.rest(0.5):
        reply = client.diff("clicks", position, limit=15)
        if reply.tombstone is not None:
            shop.lost_clicks += reply.tombstone.gap_to - reply.tombstone.gap_from + 1
        position = reply.next_from_seq
        client.set_cursor("clicks", "dashboard", position)


def accounting(shop: Shop, client: "Client") -> None:
    """Books orders in lots: its cursor falls behind, and catches up."""
    while shop.rest(8.0):
        head = client.topic("orders").head_seq
        client.set_cursor("orders", "accounting", max(head - shop.random.randint(0, 3), 0))


def talkers(shop: Shop, client: "Client") -> None:
    while shop.rest(2.5):
        room = shop.random.choice(("general", "support"))
        who = shop.random.choice(CUSTOMERS)
        client.append(f"chat:{room}", {"from": who, "text": shop.random.choice(TALK)}, tag=who, node=who)


def carts(shop: Shop, client: "Client") -> None:
    while shop.rest(1.0):
        client.append("carts", {"customer": shop.random.choice(CUSTOMERS), "sku": shop.random.choice(list(GOODS))})


ACTORS = (shoppers, mailers, mailers, browsers, dashboard, accounting, talkers, carts)


def begin_work(shop: Shop) -> None:
    """Puts everybody to work. It may be interrupted half-way: those who have begun are known, and stop with the
    shop."""
    for actor in ACTORS:
        thread = threading.Thread(target=_guarded, args=(shop, actor), name=actor.__name__, daemon=True)
        thread.start()
        shop.people.append(thread)


def _guarded(shop: Shop, actor: "Callable[[Shop, Client], None]") -> None:
    """An actor that meets an error ends the demo with it: a shop without half of its people shows nothing true."""
    with shop.connect() as client:
        try:
            actor(shop, client)
        except TopicsError as error:
            if not shop.stop.is_set():
                shop.failures.append(error)
                shop.stop.set()


def _decoded(text: Any) -> Any:
    import msgspec  # noqa: PLC0415

    return msgspec.json.decode(text)
