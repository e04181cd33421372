"""An instance while rows are added to it: they can be copied with other values, and queries can measure the result."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlfactory_nl2sql.checks.scopes import Origin
from rlfactory_nl2sql.connection import Row, quoted
from rlfactory_nl2sql.instances.domains import Kind, comparable
from rlfactory_nl2sql.instances.links import Link, Part
from rlfactory_nl2sql.instances.scratch import plain

_STEPS = 20_000  # instructions of SQLite's machine between two checks of the budget
_BUDGET = 2_000  # such checks for all queries on one instance: some tenths of a second
_DIGITS, _DIGITS_TRIED = re.compile(r"\d+"), 4
_DEEPEST = 3  # links from a row to the one that holds a value

Place = tuple[str, int]  # a row's table and number
Measured = Mapping[tuple[Any, ...], tuple[Any, Any]]


class Workshop:
    """The rows of an instance, also as a SQLite database without constraints."""

    def __init__(self, parts: Mapping[str, Part], rows: Mapping[str, Sequence[Row]], rng: random.Random) -> None:
        self.parts, self.rng = parts, rng
        self.rows: dict[str, dict[int, list[Any]]] = {name: {} for name in parts}
        self._next = dict.fromkeys(parts, 0)
        self._taken: dict[tuple[str, tuple[int, ...]], set[Any]] = {}
        self._found: dict[tuple[str, tuple[int, ...]], dict[tuple[Any, ...], list[int]]] = {}  # rows by some values
        self._values: dict[tuple[str, int], set[Any]] = {}  # that a column has had
        self._greatest: dict[tuple[str, int], int] = {}
        self._checks = 0
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.set_progress_handler(self._over, _STEPS)
        for name, part in parts.items():
            columns = ", ".join(f"{quoted(one.name)} {_type(one.type)}" for one in part.table.columns)
            self._connection.execute(f"CREATE TABLE {quoted(name)} ({columns})")
            for link in part.links:
                places = ", ".join(quoted(part.table.columns[place].name) for place in link.places)
                self._connection.execute(f"CREATE INDEX {quoted(f'{name} {link.places}')} ON {quoted(name)} ({places})")
        self._connection.execute("BEGIN")
        for name, some in rows.items():
            for row in some:
                self.add(name, list(row))

    def _over(self) -> bool:
        self._checks += 1
        return self._checks > _BUDGET

    def close(self) -> None:
        self._connection.close()

    def measure(self, sql: str) -> Measured:
        """Both sides of a threshold for each group; raises `sqlite3.Error`."""
        return {tuple(keys): (left, right) for *keys, left, right in self._connection.execute(sql)}

    def add(self, table: str, row: list[Any]) -> Place:
        number = self._next[table] = self._next[table] + 1
        self.rows[table][number] = row
        marks = ", ".join("?" * len(row))
        values = [number, *map(plain, row)]
        names = ", ".join(("rowid", *(quoted(one.name) for one in self.parts[table].table.columns)))
        self._connection.execute(f"INSERT INTO {quoted(table)} ({names}) VALUES (?, {marks})", values)  # noqa: S608
        for places in self.parts[table].keys.unique:
            self._held(table, places).add(_key(row, places))
        for (name, places), found in self._found.items():
            if name == table:
                found.setdefault(tuple(row[at] for at in places), []).append(number)
        return table, number

    def remove(self, place: Place) -> list[Any]:
        table, number = place
        row = self.rows[table].pop(number)
        self._connection.execute(f"DELETE FROM {quoted(table)} WHERE rowid = ?", (number,))  # noqa: S608
        for places in self.parts[table].keys.unique:
            self._held(table, places).discard(_key(row, places))
        for (name, places), found in self._found.items():
            if name == table:
                found[tuple(row[at] for at in places)].remove(number)
        return row

    def change(self, place: Place, at: int, value: Any) -> None:
        """Give a row another value in a column that is no key."""
        table, number = place
        self.rows[table][number][at] = value
        name = quoted(self.parts[table].table.columns[at].name)
        self._connection.execute(
            f"UPDATE {quoted(table)} SET {name} = ? WHERE rowid = ?",  # noqa: S608
            (plain(value), number),
        )

    def copied(self, table: str, row: Sequence[Any], changes: Mapping[int, Any]) -> list[Any] | None:
        """A further row like this one, with some values changed, and others where keys need it; None if it may not be.

        Where only a reference can make a key unique, the row refers to a copy of the row that it referred to.
        """
        part, made = self.parts[table], list(row)
        for at, value in changes.items():
            made[at] = value
        for places in part.keys.unique:
            if any(made[at] is None for at in places) or _key(made, places) not in self._held(table, places):
                continue
            free = [at for at in places if at not in changes]
            links = [link for link in part.links if {*link.places} & {*free} and link.declared]
            linked = {at for link in links for at in link.places}
            own = [at for at in free if at not in linked]
            if own and (value := self.new(table, own[-1])) is not None:
                made[own[-1]] = value
            elif own and part.domains[own[-1]].nulls and own[-1] not in part.keys.filled:
                made[own[-1]] = None
            elif links and (other := self._again(links[-1], made)) is not None:
                for at, value in links[-1].reference(other).items():
                    made[at] = value
            else:
                return None
        return made if self._is_sound(table, made) else None

    def _again(self, link: Link, row: Sequence[Any]) -> list[Any] | None:
        """A new copy of the row that another refers to."""
        target = self.target(link, row)
        made = self.copied(link.target, target, {}) if target is not None else None
        if made is not None:
            self.add(link.target, made)
        return made

    def target(self, link: Link, row: Sequence[Any]) -> list[Any] | None:
        """The row to which a row refers."""
        numbers = self._index(link.target, link.target_places).get(link.at(row))
        return self.rows[link.target][numbers[-1]] if numbers else None

    def _index(self, table: str, places: tuple[int, ...]) -> dict[tuple[Any, ...], list[int]]:
        found = self._found.get((table, places))
        if found is None:
            found = self._found[table, places] = {}
            for number, row in self.rows[table].items():
                found.setdefault(tuple(row[at] for at in places), []).append(number)
        return found

    def _is_sound(self, table: str, row: Sequence[Any]) -> bool:
        """Whether a row satisfies the CHECKs, NOT NULL and foreign keys."""
        part = self.parts[table]
        links = (link for link in part.links if link.declared and None not in link.at(row))
        filled = all(row[at] is not None for at in part.keys.filled)
        return filled and all(self.target(link, row) is not None for link in links) and part.checks.hold(row)

    def new(self, table: str, at: int) -> Any:
        """A value that no row has had in this column; None if there is none."""
        domain = self.parts[table].domains[at]
        if (table, at) not in self._values:
            self._values[table, at] = {comparable(row[at]) for row in self.rows[table].values()}
            numbers = [one for one in self._values[table, at] if isinstance(one, int)]
            self._greatest[table, at] = max(numbers, default=0)
        if domain.kind is Kind.NUMBER and isinstance(domain.step, int) and not domain.closed:
            self._greatest[table, at] += 1
            if domain.accepts(self._greatest[table, at]):
                return self._greatest[table, at]
        taken = self._values[table, at]
        value = domain.invent(self.rng, taken=taken)
        if value is None and domain.kind is Kind.TEXT and domain.known:
            value = next((one for one in _counted(str(domain.known[-1])) if comparable(one) not in taken), None)
            value = value if domain.accepts(value) else None
        taken.add(comparable(value))
        return value

    def renewed(self, table: str, row: Sequence[Any], origin: Origin, depth: int = _DEEPEST) -> list[Any] | None:
        """A copy of a row that has, itself or in a row to which it leads, a value of its own in a column."""
        part = self.parts[table]
        for at in range(len(row)) if table == origin.table else ():
            if part.table.columns[at].name != origin.column:
                continue
            link = next((one for one in part.links if at in one.places), None)
            if link is not None:
                other = self._again(link, row)
                return None if other is None else self.copied(table, row, link.reference(other))
            if any(at in places and len(places) == 1 for places in part.keys.unique):
                return self.copied(table, row, {})
            value = self.new(table, at)
            return None if value is None else self.copied(table, row, {at: value})
        for link in part.links if depth else ():
            if self._leads(link.target, origin.table, depth - 1) and (target := self.target(link, row)):
                other = self.renewed(link.target, target, origin, depth - 1)
                if other is not None:
                    self.add(link.target, other)
                    return self.copied(table, row, link.reference(other))
        return None

    def _leads(self, table: str, to: str, depth: int) -> bool:
        return table == to or (
            depth > 0 and any(self._leads(link.target, to, depth - 1) for link in self.parts[table].links)
        )

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

    def depth(self, table: str, above: frozenset[str] = frozenset()) -> int:
        """The longest chain of references from a table."""
        links = [link for link in self.parts[table].links if link.target not in above | {table}]
        return max((1 + self.depth(link.target, above | {table}) for link in links), default=0)

    def _held(self, table: str, places: tuple[int, ...]) -> set[Any]:
        return self._taken.setdefault((table, places), set())


def _counted(text: str) -> Iterator[str]:
    """The text with each other number of as many digits in place of its longest one."""
    found = max(_DIGITS.finditer(text), key=lambda one: len(one[0]), default=None)
    if found is not None:
        most = 10 ** min(len(found[0]), _DIGITS_TRIED)
        yield from (
            f"{text[: found.start()]}{number:0{len(found[0])}}{text[found.end() :]}" for number in range(1, most)
        )


def _key(row: Sequence[Any], places: Iterable[int]) -> tuple[Any, ...]:
    return tuple(comparable(row[place]) for place in places)


def _type(declared: str) -> str:
    """The type with the affinity by which SQLite converts values of a column."""
    upper = declared.upper()
    kinds = ("INT", "INTEGER"), ("CHAR", "TEXT"), ("CLOB", "TEXT"), ("TEXT", "TEXT"), ("BLOB", "BLOB")
    reals = (part in upper for part in ("REAL", "FLOA", "DOUB"))
    other = "REAL" if any(reals) else "NUMERIC" if upper else "BLOB"
    return next((kind for part, kind in kinds if part in upper), other)
