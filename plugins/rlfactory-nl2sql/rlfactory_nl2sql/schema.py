"""Tables, columns and keys of a database of any kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    type: str  # as the database writes it, such as "INTEGER" or "VARCHAR(20)"
    nullable: bool = True  # as declared
    generated: bool = False  # a column of SQLite that takes no values, since it is computed from others


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """``columns`` of the table that has it refer to ``target_columns`` of ``target``, in this order."""

    columns: tuple[str, ...]
    target: str
    target_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A base table or a view. A view has no keys, and its rows follow from those of tables."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()  # declared unique besides the primary key
    view: bool = False
    checks: tuple[str, ...] = ()  # the conditions of declared CHECKs, as SQL of SQLite
    sql: str = ""  # of SQLite, its definition as it was written
    collated: bool = False  # of SQLite, whether a column may have a collation other than the default


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables in the order in which the database lists them."""

    tables: tuple[Table, ...]

    def table(self, name: str) -> Table | None:
        """The table with that name, ignoring case; None if there is none."""
        return next((table for table in self.tables if table.name.lower() == name.lower()), None)
