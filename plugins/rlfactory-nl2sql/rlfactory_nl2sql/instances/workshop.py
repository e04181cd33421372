"""An instance while rows are added to it: they can be copied with other values, and queries can measure the result."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlfactory_nl2sql.checks.scopes import Origin
from rlfactory_nl2sql.connection import Row, quoted
from rlfactory_nl2sql.instances.domains import Kind, comparable
from rlfactory_nl2sql.instances.links import Link, Part
from rlfactory_nl2sql.instances.scratch import plain

_STEPS = 20_000  # instructions of SQLite's machine between two checks of the budget
_BUDGET = 2_000  # such checks for all queries on one instance: some tenths of a second
_DEEPEST = 3  # links from a row to the one that holds a value

Place = tuple[str, int]
"""A row's table and number."""


class Workshop:
    """The rows of an instance, also as a SQLite database with their keys; raises `sqlite3.Error`."""

    def __init__(self, parts: Mapping[str, Part], rows: Mapping[str, Sequence[Row]], rng: random.Random) -> None:
        self.parts, self.rng = parts, rng
        self.rows: dict[str, dict[int, list[Any]]] = {name: {} for name in parts}
        self._values: dict[tuple[str, int], set[Any]] = {}  # that a column has had
        self._columns = {name: [quoted(one.name) for one in part.table.columns] for name, part in parts.items()}
        self._checks = 0
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.set_progress_handler(self._over, _STEPS)
        for name, part in parts.items():
            types = [quoted(one.type) if one.type else "" for one in part.table.columns]  # for their affinity
            columns = list(map(" ".join, zip(self._columns[name], types, strict=True)))
            columns += [f"UNIQUE ({self._names(name, places)})" for places in part.keys.unique]
            self._connection.execute(f"CREATE TABLE {quoted(name)} ({', '.join(columns)})")
            for link in part.links:
                index, names = quoted(f"{name} {link.places}"), self._names(name, link.places)
                self._connection.execute(f"CREATE INDEX {index} ON {quoted(name)} ({names})")
        self._connection.execute("BEGIN")
        for name, some in rows.items():
            for row in some:
                self.add(name, list(row))

    def _over(self) -> bool:
        self._checks += 1
        return self._checks > _BUDGET

    def _names(self, table: str, places: Iterable[int]) -> str:
        return ", ".join([self._columns[table][place] for place in places])

    def close(self) -> None:
        self._connection.close()

    def measure(self, sql: str) -> Mapping[tuple[Any, ...], tuple[Any, Any]]:
        """Both sides of a threshold for each group."""
        return {tuple(keys): (left, right) for *keys, left, right in self._connection.execute(sql)}

    def add(self, table: str, row: list[Any]) -> Place:
        names, marks = self._names(table, range(len(row))), ", ".join("?" * len(row))
        insert = f"INSERT INTO {quoted(table)} ({names}) VALUES ({marks})"  # noqa: S608
        number = self._connection.execute(insert, list(map(plain, row))).lastrowid
        assert number is not None
        self.rows[table][number] = row
        return table, number

    def remove(self, place: Place) -> list[Any]:
        table, number = place
        self._connection.execute(f"DELETE FROM {quoted(table)} WHERE rowid = ?", (number,))  # noqa: S608
        return self.rows[table].pop(number)

    def change(self, place: Place, at: int, value: Any) -> None:
        """Give a row another value in a column that is no key."""
        table, number = place
        self.rows[table][number][at] = value
        update = f"UPDATE {quoted(table)} SET {self._names(table, [at])} = ? WHERE rowid = ?"  # noqa: S608
        self._connection.execute(update, (plain(value), number))

    def _find(self, table: str, places: tuple[int, ...], values: Sequence[Any]) -> list[Any] | None:
        """The last row that has these values."""
        same = " AND ".join([f"{self._columns[table][at]} = ?" for at in places])
        select = f"SELECT max(rowid) FROM {quoted(table)} WHERE {same}"  # noqa: S608
        ((number,),) = self._connection.execute(select, list(map(plain, values)))
        return None if number is None else self.rows[table][number]

    def target(self, link: Link, row: Sequence[Any]) -> list[Any] | None:
        """The row to which a row refers."""
        return self._find(link.target, link.target_places, link.at(row))

    def copied(self, table: str, row: Sequence[Any], changes: Mapping[int, Any]) -> list[Any] | None:
        """A further row like this one, with some values changed, and others where keys need it; None if it may not be.

        Where only a reference can make a key unique, the row refers to a copy of the row that it referred to.
        """
        part, made = self.parts[table], [changes.get(at, value) for at, value in enumerate(row)]
        for places in part.keys.unique:
            if self._find(table, places, [made[at] for at in places]) is None:
                continue
            free = {*places} - changes.keys()
            links = [link for link in part.links if free.intersection(link.places) and link.declared]
            own = max(free.difference(at for link in links for at in link.places), default=None)
            if own is not None:
                made[own] = self.new(table, own)
            elif links and (other := self.copy_of_target(links[-1], made)) is not None:
                for at, value in links[-1].reference(other).items():
                    made[at] = value
            else:
                return None
        sound = all(made[at] is not None for at in part.keys.filled) and part.checks.hold(made)
        declared = (link for link in part.links if link.declared and None not in link.at(made))
        return made if sound and all(self.target(link, made) for link in declared) else None

    def copy_of_target(self, link: Link, row: Sequence[Any]) -> list[Any] | None:
        """A new copy of the row that another refers to."""
        target = self.target(link, row)
        made = self.copied(link.target, target, {}) if target is not None else None
        if made is not None:
            self.add(link.target, made)
        return made

    def new(self, table: str, at: int) -> Any:
        """A value that no row has had in this column; None if there is none."""
        domain, place = self.parts[table].domains[at], (table, at)
        if place not in self._values:
            self._values[place] = {comparable(row[at]) for row in self.rows[table].values()}
        taken, value = self._values[place], None
        if domain.kind is Kind.NUMBER and isinstance(domain.step, int) and not domain.closed:
            select = f"SELECT max({self._names(table, [at])}) FROM {quoted(table)}"  # noqa: S608
            ((greatest,),) = self._connection.execute(select)
            value = greatest + 1 if isinstance(greatest, int) else 1
        if value is None or not domain.accepts(value):
            value = domain.invent(self.rng, taken=taken)
        taken.add(comparable(value))
        return value

    def renewed(self, table: str, row: Sequence[Any], origin: Origin, depth: int = _DEEPEST) -> list[Any] | None:
        """A copy of a row that has, itself or in a row to which it leads, a value of its own in a column."""
        part = self.parts[table]
        at = next((at for at, one in enumerate(part.table.columns) if Origin(table, one.name) == origin), None)
        if at is not None:
            link = next((one for one in part.links if at in one.places), None)
            if link is not None:
                other = self.copy_of_target(link, row)
                return None if other is None else self.copied(table, row, link.reference(other))
            if (at,) in part.keys.unique:
                return self.copied(table, row, {})
            value = self.new(table, at)
            return None if value is None else self.copied(table, row, {at: value})
        for link in part.links:
            if self._leads(link.target, origin.table, depth - 1) and (target := self.target(link, row)):
                other = self.renewed(link.target, target, origin, depth - 1)
                if other is not None:
                    self.add(link.target, other)
                    return self.copied(table, row, link.reference(other))
        return None

    def _leads(self, table: str, to: str, depth: int) -> bool:
        links = self.parts[table].links if depth > 0 else ()
        return depth >= 0 and (table == to or any(self._leads(link.target, to, depth - 1) for link in links))

    def holding(self, table: str, keys: Iterable[Origin]) -> set[int]:
        """The columns of a table's rows that decide what group they are in: own ones, and references towards others."""
        part, held = self.parts[table], set[int]()
        for origin in keys:
            if origin.table == table:
                held |= {at for at, one in enumerate(part.table.columns) if one.name == origin.column}
                held |= {at for link in part.links if held & {*link.places} for at in link.places}
            else:
                ways = [link for link in part.links if self._leads(link.target, origin.table, _DEEPEST - 1)]
                held |= {at for link in ways[:1] for at in link.places}
        return held
