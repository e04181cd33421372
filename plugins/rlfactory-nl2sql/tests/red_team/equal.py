"""Mutations that mean the same as the query they are made of, each under the reason why.

The reasons are in the schema, the query or SQL itself; whether the verifier tells the two apart was not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# reason -> mutation -> names of queries
_SAME: Mapping[str, Mapping[str, Sequence[str]]] = {
    "a key of the rows, or all that they are grouped by, is shown: no row comes twice": {
        "DISTINCT added": (
            "between",
            "in list",
            "no composer",
            "or",
            "nested or",
            "albums per artist",
            "per country",
            "by genre",
            "big countries",
            "busy customers",
            "two groups",
            "years",
            "distinct reps",
            "cheapest",
            "recent",
            "exists",
            "not exists",
            "cte",
            "correlated",
            "case",
            "in 2023",
            "months",
            "coalesce",
            "rank",
            "north",
            "sold where",
            "all sellers",
            "unsold",
            "late",
            "day",
            "categories",
            "best shop",
            "oldest",
            "wages",
        ),
    },
    "each row refers to one, or the database holds no NULL there: an outer join adds nothing": {
        "JOIN 1 to LEFT JOIN": ("titles", "revenue", "by genre", "sold where"),
        "JOIN 2 to LEFT JOIN": ("three", "playlist tracks"),
        "JOIN 3 to LEFT JOIN": ("four",),
    },
    "a condition or a later join leaves out what an outer join adds": {
        "JOIN 1 to LEFT JOIN": (
            "album of",
            "rock tracks",
            "three",
            "four",
            "playlist tracks",
            "reps",
            "buyers",
            "north",
            "stocked",
            "boss",
            "prolific",
            "sellers",
            "wages",
        ),
        "JOIN 2 to LEFT JOIN": ("four",),
    },
    "a column that holds no NULL is NULL only where the outer join finds nothing, and is counted like any other": {
        "asks a.Title for a.AlbumId": ("without album",),
        "asks a.ArtistId for a.AlbumId": ("without album",),
        "shows a.Title for a.AlbumId": ("albums per artist",),
        "shows a.ArtistId for a.AlbumId": ("albums per artist",),
        "shows a.shop_id for a.sale_id": ("all sellers",),
        "shows a.sku for a.sale_id": ("all sellers",),
        "shows a.sold_at for a.sale_id": ("all sellers",),
        "shows a.quantity for a.sale_id": ("all sellers",),
        "shows a.seller_id for a.sale_id": ("all sellers",),
    },
    "a key is counted: it comes once": {
        "COUNT(x) to COUNT(DISTINCT x)": ("albums per artist", "all sellers"),
        "counts distinct l.InvoiceLineId": ("not exists",),
    },
    "the key that is left determines what is no longer grouped by": {
        "not grouped by r.Name": ("prolific",),
        "not grouped by g.Name": ("top genre",),
        "not grouped by p.name": ("sellers",),
        "not grouped by c.FirstName": ("top spender",),
        "not grouped by c.LastName": ("top spender",),
    },
    "Track.AlbumId holds no NULL": {
        "NOT AlbumId IS NULL dropped": ("not in",),
        "WHERE NOT AlbumId IS NULL dropped": ("not in",),
    },
    "the column holds a time of day too, and so never the bare date": {
        "InvoiceDate >= '2023-06-15' to InvoiceDate > '2023-06-15'": ("since",),
        "InvoiceDate < '2023-01-01' to InvoiceDate <= '2023-01-01'": ("months",),
        "sold_at >= '2023-12-01' to sold_at > '2023-12-01'": ("late",),
        "sold_at < '2024-01-01' to sold_at <= '2024-01-01'": ("late",),
    },
    "a person has one boss, so a team without circles names nobody twice": {"UNION [ALL] turned": ("team",)},
    "SQLite keeps rows in the order of their INTEGER PRIMARY KEY, groups by sorting, and sorts ties in the order in "
    "which they come: no rows can show that this order is not asked for": {
        "last sort key dropped": ("cheapest", "recent", "best shop"),
        "ORDER BY dropped": ("day",),
    },
    "each sku is P-000 with other digits": {"'P-0%' to '%P-0%'": ("code",)},
    "DISTINCT with an order by what is not shown: SQL leaves open what it means": {"DISTINCT added": ("top genre",)},
}

# reason -> mutation's beginning -> name of the query
_SAME_ANY: Mapping[str, Sequence[tuple[str, str]]] = {
    "the key that is left determines what is grouped by instead": (
        ("prolific", "for r.Name"),
        ("top genre", "for g.Name"),
        ("sellers", "for p.name"),
        ("top spender", "for c.FirstName"),
        ("top spender", "for c.LastName"),
    ),
}

EQUAL: Mapping[tuple[str, str], str] = {
    (name, how): reason for reason, hows in _SAME.items() for how, names in hows.items() for name in names
}


# query -> the primary key of what it counts
_KEYS = {
    "count some": "Track.TrackId",
    "prolific": "a.AlbumId",
    "derived": "Track.TrackId",
    "count all": "Customer.CustomerId",
}


def reason_for_equal(name: str, how: str) -> str | None:
    """Why a mutation of the query of that name means the same; None where it does not."""
    if name in _KEYS and how == f"counts distinct {_KEYS[name]}":
        return "a key is counted: it comes once"
    if (name, how) in EQUAL:
        return EQUAL[name, how]
    for reason, pairs in _SAME_ANY.items():
        if how.startswith("grouped by") and any(name == one and how.endswith(end) for one, end in pairs):
            return reason
    if name == "not in" and how.startswith("asks") and how.endswith("for AlbumId") and "Composer" not in how:
        return "neither column of Track holds NULL"
    return None
