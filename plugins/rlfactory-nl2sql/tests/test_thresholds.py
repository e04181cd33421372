"""Varied databases for HAVING and other conditions on groups: they show which rows a prediction counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from red_team.judging import write_shop
from rlfactory_nl2sql.checks.constants import uses
from rlfactory_nl2sql.checks.parsing import parse_query
from rlfactory_nl2sql.checks.thresholds import thresholds
from rlfactory_nl2sql.connection import QueryLimits, Row
from rlfactory_nl2sql.databases.reference import parse_reference
from rlfactory_nl2sql.instances.vary import vary
from rlfactory_nl2sql.schema import Column, ForeignKey, Schema, Table
from rlfactory_nl2sql.verification.connections import Database

AIMED = (1, 2, 5, 6, 8, 9, 10)  # instances with groups beside thresholds


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = write_shop(tmp_path_factory.mktemp("shop") / "shop.sqlite")
    with closing(Database(parse_reference(path), QueryLimits())) as database:
        yield database


@pytest.mark.parametrize(
    ("gold", "wrong"),
    [
        (
            "SELECT sku FROM sale{} WHERE quantity > 2 GROUP BY sku HAVING COUNT(*) > 30",
            [
                ("WHERE quantity > 2 ", ""),
                ("> 2", ">= 2"),
                ("> 30", ">= 30"),
                ("> 30", "> 31"),
                ("(*)", "(discount)"),
                ("(*)", "(DISTINCT seller_id)"),
                ("{}", " JOIN person ON person_id = seller_id"),
            ],
        ),
        (
            (
                "SELECT name FROM person WHERE (SELECT COUNT(*) FROM sale a WHERE a.seller_id = person.person_id "
                "AND a.sold_at >= '2023-12-01') >= 12"
            ),
            [("2023-12", "2023-11"), (">= 12", "> 12"), ("AND a.sold_at >= '2023-12-01'", ""), ("(*)", "(discount)")],
        ),
        (
            "SELECT seller_id FROM sale WHERE shop_id <> 3 GROUP BY seller_id HAVING SUM(quantity) > 100",
            [("WHERE shop_id <> 3", ""), ("> 100", ">= 100"), ("SUM(", "SUM(DISTINCT ")],
        ),
        (
            "SELECT sku FROM sale WHERE shop_id <> 3 GROUP BY sku HAVING AVG(quantity) >= 4",
            [("WHERE shop_id <> 3", ""), (">=", ">"), ("AVG(", "AVG(DISTINCT ")],
        ),
        (
            "SELECT sku FROM sale GROUP BY sku HAVING COUNT(*) > 0.2 * (SELECT COUNT(*) FROM sale)",
            [(">", ">="), ("0.2", "0.25"), ("(*) >", "(discount) >")],
        ),
        ("SELECT COUNT(*) > 40 FROM sale WHERE quantity = 3", [(" WHERE quantity = 3", ""), ("40", "41"), (">", ">=")]),
        (
            (
                "SELECT EXISTS (SELECT 1 FROM person WHERE active = 1 AND NOT EXISTS "
                "(SELECT 1 FROM sale WHERE seller_id = person_id))"
            ),
            [("active = 1 AND NOT", "active = 0 AND"), ("active = 1 AND ", ""), ("AND NOT EXISTS", "OR EXISTS")],
        ),
    ],
)
def test_groups_beside_a_threshold_show_which_rows_are_counted(
    shop: Database, gold: str, wrong: Sequence[tuple[str, str]]
) -> None:
    right = gold.replace("{}", "")
    unseen = {gold.replace(*change, 1).replace("{}", "") for change in wrong}
    schema, query, limits = shop.connection.schema(), parse_query(right, "sqlite"), QueryLimits()
    used = uses(query, schema)
    for number in AIMED:
        rows = vary(schema, shop.rows, used.constants, 0, number, used, thresholds(query, schema))
        with closing(shop.connection.instance(rows)) as instance:
            answer = Counter(instance.query(right, limits).rows)
            unseen -= {one for one in unseen if Counter(instance.query(one, limits).rows) != answer}
    assert unseen == set()


def test_groups_by_one_part_of_a_key_have_the_sizes_that_are_asked_about() -> None:
    actor, film = (
        Table(name, (Column("id", "int", nullable=False),), primary_key=("id",)) for name in ("actor", "film")
    )
    columns = (
        Column("actor_id", "int", nullable=False),
        Column("film_id", "int", nullable=False),
        Column("role", "enum('a','b')"),
    )
    keys = (ForeignKey(("actor_id",), "actor", ("id",)), ForeignKey(("film_id",), "film", ("id",)))
    schema = Schema((actor, film, Table("played", columns, ("actor_id", "film_id"), keys)))
    data: dict[str, list[Row]] = {
        "actor": [(n,) for n in range(40)],
        "film": [(n,) for n in range(40)],
        "played": [(n, n, "ab"[n % 2]) for n in range(40)],
    }
    gold = parse_query("SELECT actor_id FROM played GROUP BY actor_id HAVING COUNT(*) > 50", "sqlite")
    rows = vary(schema, data, (), 0, 1, thresholds=thresholds(gold, schema))
    assert {50, 51} <= set(Counter(actor for actor, *_ in rows["played"]).values())
    assert len({row[:2] for row in rows["played"]}) == len(rows["played"])
    data["actor"].append((10**40,))  # nothing that SQLite can hold
    assert vary(schema, data, (), 0, 1, thresholds=thresholds(gold, schema))["played"]
