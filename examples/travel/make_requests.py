import json
import random
import re
from itertools import product
from pathlib import Path

from agency import CITIES, find_flights, find_hotels

rng = random.Random(0)


def fitting(offers, travellers):
    """The prices of the offers that have room."""
    found = re.findall(r"EUR (\d+), (\d+)", offers)
    return [int(price) for price, places in found if int(places) >= travellers]


def draw():
    """A trip, with a budget that a third of the combinations meet, and at least two of them."""
    while True:
        home, city = rng.sample(CITIES, 2)
        day, nights, travellers = rng.randint(1, 25), rng.randint(2, 6), rng.randint(1, 3)
        out = fitting(find_flights(home, city, day), travellers)
        back = fitting(find_flights(city, home, day + nights), travellers)
        hotels = fitting(find_hotels(city, day, nights), travellers)
        totals = sorted(travellers * (a + b) + hotel for a, b, hotel in product(out, back, hotels))
        if len(totals) > 2:
            budget = totals[max(1, len(totals) // 3)]
            return {
                "home": home,
                "city": city,
                "day": day,
                "nights": nights,
                "travellers": travellers,
                "budget": budget,
            }


rows = {"train": [], "eval": []}
for _ in range(1000):
    trip = draw()
    rows["eval" if trip["day"] % 5 == 0 else "train"].append(json.dumps(trip))  # no day of departure is in both
for split, lines in rows.items():
    Path(f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
