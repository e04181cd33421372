"""The names of generated databases. Questions say ``price``, but the column has another name in each database.

In one database prices are in the column ``cost`` of the table ``dwelling``, in the next in ``fee`` of ``cottage``. So a
question cannot be answered without seeing the schema: a guessed name is right in one of three cases. No name has two
meanings, and none is a reserved word of a supported database.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

Names = Mapping[str, tuple[str, ...]]

TIERS: tuple[Names, ...] = (
    {
        "town": ("town", "city", "borough"),
        "valley": ("valley", "dale", "glen"),
        "county": ("county", "province", "shire"),
    },
    {
        "house": ("house", "home", "dwelling"),
        "shop": ("shop", "store", "market"),
        "school": ("school", "academy", "college"),
    },
    {
        "book": ("book", "novel", "tome"),
        "lamp": ("lamp", "lantern", "torch"),
        "clock": ("clock", "watch", "timer"),
    },
)
"""The subjects of tables: a building is in a place, a thing is in a building or a place."""

TITLES: Names = {
    "name": ("name", "label", "title"),
    "owner": ("owner", "holder", "landlord"),
    "maker": ("maker", "author", "creator"),
}
"""The column of proper names of a place, a building and a thing."""

NUMBERS: Names = {
    "price": ("price", "cost", "fee"),
    "size": ("size", "area", "extent"),
    "weight": ("weight", "mass", "heaviness"),
    "score": ("score", "rating", "grade"),
    "height": ("height", "elevation", "altitude"),
    "speed": ("speed", "velocity", "pace"),
}
CATEGORIES: Names = {
    "color": ("color", "hue", "tint"),
    "style": ("style", "fashion", "manner"),
    "material": ("material", "substance", "fabric"),
    "status": ("status", "situation", "standing"),
}
VALUES: Names = {
    "color": ("red", "blue", "green", "black", "white"),
    "style": ("plain", "modern", "rustic", "royal", "simple"),
    "material": ("wood", "stone", "glass", "steel", "brick"),
    "status": ("open", "closed", "busy", "empty", "locked"),
}
"""The values of a column of categories."""

NAMES = {word: names for part in (*TIERS, TITLES, NUMBERS, CATEGORIES) for word, names in part.items()}
"""A question's word -> the possible names of its table or column."""

MEANING = {name: word for word, names in NAMES.items() for name in names}
"""The name of a table or column -> the question's word; it has no keys."""

_NAME = re.compile(rf"\b(?:{'|'.join(MEANING)})(?=_id\b|\b)")


def plural(entity: str) -> str:
    return "counties" if entity == "county" else f"{entity}s"


def guess_names(sql: str, rng: random.Random) -> str:
    """The query with names guessed without seeing the schema."""
    guessed = {word: rng.choice(names) for word, names in NAMES.items()}
    return _NAME.sub(lambda found: guessed[MEANING[found[0]]], sql)
