"""A day of a shop as JSON Lines: `python shop_events.py COUNT > shop.jsonl`. The same count gives the same bytes.

Events come a little out of order, as they do from many tills; one in ten thousand comes hours late.
"""

import json
import math
import random
import sys
from datetime import UTC, datetime, timedelta

DAY = datetime(2026, 3, 2, tzinfo=UTC)
SKUS = {"AEROPRESS": 3499, "KETTLE": 16500, "FILTERS": 799, "GRINDER": 9900, "BEANS": 1450}
STORES = ("berlin", "lisbon", "oslo")


def main(count: int) -> None:
    chance = random.Random(7)
    for number in range(count):
        # Few in the morning, most in the evening.
        hour = 24 * (number + 0.5) / count
        share = hour - 2.5 * (math.sin(2 * math.pi * (hour - 18) / 24) - 1)
        late_s = chance.uniform(0, 20) if chance.random() > 0.0001 else chance.uniform(7200, 14400)
        at = DAY + timedelta(hours=share) - timedelta(seconds=late_s)
        sku = chance.choice(list(SKUS))
        kind = chance.choices(("view", "cart", "order"), (80, 15, 5))[0]
        event = {
            "id": f"e{number:07d}",
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "kind": kind,
            "sku": sku,
            "store": chance.choice(STORES),
            "ms": round(chance.lognormvariate(3.5, 0.6), 1),
        }
        if kind == "order":
            event["total"] = SKUS[sku] * chance.choice((1, 1, 1, 2, 3))
        sys.stdout.write(json.dumps(event, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
