"""Parse a query, which is one statement that only reads and is small enough to be analysed in milliseconds.

The text comes from a model. Characters and tokens are limited before sqlglot's recursive parser sees them. The
read-only connection protects the database; this check only gives an early and helpful message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import Dialect, ParseError, Token, TokenError, TokenType, exp

from rlfactory_nl2sql.connection import Failure, QueryError

MAX_CHARACTERS = 16_384  # the longest gold query of the public sets has some thousands
MAX_TOKENS = 4_000  # some of sqlglot's steps are quadratic; this many take 0.1 s
MAX_NESTING = 32  # sqlglot needs some 20 Python frames a level, of 1,000; SQLite's own parser ends at 100 levels
MAX_SQUARE_NESTING = 8  # sqlglot reads what is in INT[INT[... twice a level
MAX_NODES = 10_000  # of sqlglot: MAX_TOKENS make 3,000, but those after n JOINs without ON are read 2**n times
MAX_DEPTH = 200  # of the tree, where a chain such as 1+1+1+... grows without brackets; SQLite allows 1,000
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "mysql": "MySQL"}
"""The dialects: sqlglot's names, and those for people."""

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}
STARTS = {TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.L_PAREN, TokenType.TABLE}
# sqlglot knows only some of these as keywords.
_STATEMENT = re.compile(
    "alter|analyze|attach|begin|call|checkpoint|comment|commit|copy|create|deallocate|declare|delete|desc|describe|"
    "detach|do|drop|end|execute|explain|export|fetch|grant|handler|import|insert|install|kill|listen|load|lock|merge|notify|"
    "optimize|pragma|prepare|refresh|reindex|release|rename|repair|replace|reset|revoke|rollback|savepoint|set|"
    "show|start|truncate|unlock|update|use|vacuum",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WRITES = (exp.DML, exp.DDL, exp.Into, exp.Command, exp.Drop, exp.Alter, exp.Pragma, exp.Set, exp.TruncateTable)
_READS = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)


@dataclass(frozen=True, slots=True)
class Query:
    """One statement that only reads. ``tree`` is shared: copy it before changing it."""

    sql: str
    dialect: str  # as sqlglot calls it: sqlite, postgres, mysql
    tree: exp.Expr = field(compare=False, repr=False)

    @property
    def tables(self) -> frozenset[str]:
        """The tables that it reads, in lower case."""
        return frozenset(table.name.lower() for table in self.named_tables())

    def named_tables(self) -> Iterator[exp.Table]:
        """Tables and views in the tree, without functions and without what a WITH clause defines where they stand."""
        for table in self.tree.find_all(exp.Table):
            if isinstance(table.this, exp.Identifier) and (table.db or table.name.lower() not in self._defined(table)):
                yield table

    def _defined(self, table: exp.Table) -> set[str]:
        """The names that WITH clauses define where the table stands, in lower case.

        Without RECURSIVE, which SQLite does not need, a part of a WITH clause sees only the parts before it: in ``WITH
        x AS (SELECT * FROM x)`` the inner ``x`` is a table.
        """
        found: list[exp.Expr] = []
        inside: exp.Expr = table
        while outside := inside.parent:
            if isinstance(outside, exp.With):
                every = outside.recursive or self.dialect == "sqlite"
                found += outside.expressions if every else outside.expressions[: inside.index]
            elif (clause := outside.args.get("with_")) is not inside and clause is not None:
                found += clause.expressions
            inside = outside
        return {common.alias.lower() for common in found}


class NotUnderstoodError(QueryError):
    """sqlglot cannot parse the query. It is probably wrong, but only the database can tell."""


def _not_understood(dialect: str, why: str) -> NotUnderstoodError:
    return NotUnderstoodError(Failure.ERROR, f"Not understood as {NAMES[dialect]} SQL: {why}")


def parse_query(sql: str, dialect: str) -> Query:
    """Parse one statement, optionally with a semicolon and comments around it.

    Raises:
        QueryError: ``REFUSED`` for another statement than a query, for several, and for a query that writes or locks;
            ``ERROR`` for text that is empty, too long or too deeply nested.
        NotUnderstoodError: sqlglot cannot read it.
    """
    tokens = statement(sql, dialect)
    _check_start(tokens[0])
    _check_nesting(tokens)
    tree = _parse(tokens, sql, dialect)
    _check_tree(tree)
    for call in list(tree.find_all(exp.Anonymous)):
        if dialect == "sqlite" and call.name.lower() == "total" and len(call.expressions) == 1:
            call.replace(exp.AnonymousAggFunc(this="TOTAL", expressions=call.expressions))
    operations = tree.find_all(exp.SetOperation)
    parts = [tree, *(side for operation in operations for side in (operation.this, operation.expression))]
    if not all(isinstance(part, _READS) for part in parts):
        raise _not_understood(dialect, "a query starts with SELECT, WITH or VALUES.")
    return Query(sql, dialect, tree)


def same_form(first: str, second: str, dialect: str) -> bool:
    """Whether two statements differ only in layout, comments, and the letter case of words that are not in quotes.

    MySQL's letter case counts, because names of tables may differ in it. Raises as `statement`.
    """
    forms = ([sql[token.start : token.end + 1] for token in statement(sql, dialect)] for sql in (first, second))
    one, other = (
        [text.lower() if _WORD.fullmatch(text) and dialect != "mysql" else text for text in form] for form in forms
    )
    return one == other


def check_characters(sql: str, most: int) -> None:
    """Raises `QueryError` if the text is too long, or none that a database could take."""
    if len(sql) > most:
        raise QueryError(Failure.ERROR, f"The query has {len(sql)} characters; {most} is the most.")
    if "\0" in sql or _SURROGATE.search(sql):
        raise QueryError(Failure.ERROR, "The query holds a NUL character or half of a character (a lone surrogate).")


def statement(sql: str, dialect: str) -> list[Token]:
    """The tokens of the one statement in ``sql``, without comments and semicolons.

    Raises:
        QueryError: as `check_characters`; there is none, or several, or a part that only looks like a comment.
        NotUnderstoodError: the text is no sequence of SQL tokens.
    """
    check_characters(sql, MAX_CHARACTERS)
    try:
        tokens = Dialect.get_or_raise(dialect).tokenize(sql)
    except TokenError as error:
        near = _shorten(sql[error.start : error.end] if error.start is not None else sql[-30:])
        why = f"a quote or comment without its end, or a character that SQL does not know, near '{near}'."
        raise _not_understood(dialect, why) from None
    for token in tokens:
        # MySQL executes such comments and follows their hints, one of which sets the time limit of a query.
        hidden = token.token_type is TokenType.HINT or any(note.startswith(("!", "M!")) for note in token.comments)
        if dialect == "mysql" and hidden:
            raise QueryError(
                Failure.REFUSED, "Comments that the server obeys, /*! … */ and /*+ … */, cannot stand here."
            )
        token.comments = []  # comments can change how sqlglot parses
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise QueryError(Failure.ERROR, "There is no SQL in it.")
    if len(tokens) > MAX_TOKENS:
        raise QueryError(Failure.ERROR, f"The query has {len(tokens)} words and signs; {MAX_TOKENS} are the most.")
    if any(token.token_type is TokenType.SEMICOLON for token in tokens):
        raise QueryError(Failure.REFUSED, "There is more than one statement; write a single SELECT.")
    return tokens


def _check_start(first: Token) -> None:
    if first.token_type not in STARTS and _STATEMENT.fullmatch(first.text):
        raise QueryError(
            Failure.REFUSED, f"Only a query can run here, and this is {first.text.upper()}; write a single SELECT."
        )


def _check_nesting(tokens: list[Token]) -> None:
    depth = square = run = subscripts = 0
    before: TokenType | None = None
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            depth += 1
        elif kind in _CLOSING:
            depth = max(depth - 1, 0)
        square = max(square + (kind is TokenType.L_BRACKET) - (kind is TokenType.R_BRACKET), 0)
        run = run + 1 if kind in _PREFIXES else 0
        # sqlglot parses a[1][1][1]… again for each subscript.
        subscripts += kind is TokenType.L_BRACKET and before is TokenType.R_BRACKET
        if max(depth, run, subscripts) > MAX_NESTING or square > MAX_SQUARE_NESTING:
            raise _too_deep()
        if kind is TokenType.INTO:
            raise QueryError(Failure.REFUSED, "INTO writes; only a query that reads can run here.")
        before = kind


def _parse(tokens: list[Token], sql: str, dialect: str) -> exp.Expr:
    """Call sqlglot's parser, which may raise any exception on hostile text."""
    try:
        tree = Dialect.get_or_raise(dialect).parser(max_nodes=MAX_NODES).parse(tokens, sql)[0]
    except ParseError as error:
        raise _not_understood(dialect, _explain(error)) from None
    except RecursionError:
        raise _too_deep() from None
    except Exception as error:  # noqa: BLE001 - such as a ValueError over a number of 5,000 digits
        raise _not_understood(dialect, f"{type(error).__name__}.") from None
    if tree is None:
        raise _not_understood(dialect, "it is empty.")
    return tree


def _check_tree(tree: exp.Expr) -> None:
    level: list[exp.Expr] = [tree]
    for _ in range(MAX_DEPTH):
        for node in level:
            if isinstance(node, exp.Lock):
                raise QueryError(Failure.REFUSED, "A query that locks rows cannot run here; take FOR … out.")
            if isinstance(node, _WRITES):
                name = type(node).__name__.upper()
                raise QueryError(Failure.REFUSED, f"Only a query that reads can run here, and there is {name} in it.")
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> QueryError:
    return QueryError(Failure.ERROR, f"The query is nested too deeply; {MAX_NESTING} levels of brackets are the most.")


def _explain(error: ParseError) -> str:
    """sqlglot's first error as one short line, without colours and class names."""
    if not error.errors:
        return _shorten(str(error))
    first = error.errors[0]
    what = str(first["description"] or "").split(" but got <Token")[0].rstrip(". ")
    near = _shorten(str(first["highlight"] or ""))
    if what.startswith("Invalid expression"):
        what = "unexpected text"
    elif what.startswith("Required keyword"):
        what = "something is missing"
    elif what.startswith("Maximum number"):
        what = "there are too many ways to read it; write ON after each JOIN"
    column = max(int(first["col"] or 1) - len(near) + 1, 1)
    return f"{what[:1].lower()}{what[1:]}, at '{near}' (line {first['line']}, column {column})."


def _shorten(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= 40 else plain[:39] + "…"
