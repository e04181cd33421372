"""Refuse queries before the database sees them, a second guard beside the database's own."""

from __future__ import annotations

import re
from fnmatch import translate
from itertools import zip_longest

from sqlglot import TokenType, exp

from rlfactory_nl2sql.checks.parsing import STARTS, NotUnderstoodError, Query, parse_query, statement
from rlfactory_nl2sql.connection import Failure, QueryError

# U&"pg\005fauthid" is a name with escapes, which sqlglot does not decode. Sought in the text and not among sqlglot's
# tokens, so that no difference between its lexer and the server's can hide it.
_ESCAPED_NAME = re.compile(r'u&"', re.IGNORECASE)
_TEXTS = {
    TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.RAW_STRING, TokenType.HEREDOC_STRING, TokenType.BYTE_STRING,
    TokenType.HEX_STRING, TokenType.BIT_STRING, TokenType.NUMBER,
}  # fmt: skip


class Forbidden:
    """Functions refused in calls, and relations refused anywhere: patterns in lower case, with spaces between them."""

    def __init__(self, functions: str = "", relations: str = "") -> None:
        self.function, self.relation = (
            re.compile("|".join(map(translate, names.split())) or "(?!)") for names in (functions, relations)
        )


def check(sql: str, dialect: str, forbidden: Forbidden) -> Query:
    """Parse one statement and check the names in it.

    Raises:
        QueryError: as `parse_query`, and ``REFUSED`` for what is forbidden.
    """
    if dialect == "postgres" and _ESCAPED_NAME.search(sql):
        raise QueryError(Failure.REFUSED, 'Refused: names with escapes (U&"...") cannot be used; write plain "...".')
    tokens = statement(sql, dialect)
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.token_type in _TEXTS:
            continue
        name, called = token.text.lower(), following is not None and following.token_type is TokenType.L_PAREN
        if called and forbidden.function.fullmatch(name):
            raise QueryError(Failure.REFUSED, f"Refused: the function {name} is not allowed here.")
        if forbidden.relation.fullmatch(name):
            raise QueryError(Failure.REFUSED, f"Refused: {name} is not part of the data.")
    return parse_query(sql, dialect)


def check_text(sql: str, dialect: str, forbidden: Forbidden) -> None:
    """`check` for a database that decides itself on queries which sqlglot cannot parse."""
    try:
        check(sql, dialect, forbidden)
    except NotUnderstoodError:
        if statement(sql, dialect)[0].token_type not in STARTS:
            raise


def without_schema(query: Query, schemas: frozenset[str]) -> str:
    """The query's SQL with ``table`` for ``schema.table``, if the schema is one of these in lower case."""
    if not any(node.text("db").lower() in schemas for node in query.tree.find_all(exp.Table, exp.Column)):
        return query.sql
    tree = query.tree.copy()
    for node in tree.find_all(exp.Table, exp.Column):
        if node.text("db").lower() in schemas:
            node.set("db", None)
            node.set("catalog", None)
    return tree.sql(dialect=query.dialect)
