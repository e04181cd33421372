"""Rewrite a gold query so that its result shows ties, which are rows that its ORDER BY does not distinguish.

``SELECT name FROM singer ORDER BY age LIMIT 3`` has several right answers if singers have the same age. The rewritten
query returns all rows in order, each with the rank of its age as an extra column. Rows of one rank are a tie. The rank
is the database's own (``DENSE_RANK``), so that collations, NULLs and signed zeros tie exactly as they do in ORDER BY.

The text of the query is edited, then parsed and compared with the intended tree. Text that sqlglot generates from the
tree might change a function.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import TokenType, exp

from rlfactory_nl2sql.checks.clauses import StatementText
from rlfactory_nl2sql.checks.ordering import is_volatile, sort_keys
from rlfactory_nl2sql.checks.parsing import Query, parse_query, statement
from rlfactory_nl2sql.connection import QueryError
from rlfactory_nl2sql.schema import Schema

_RANK = "untied_rank"


@dataclass(frozen=True, slots=True)
class Untied:
    """The query without its outermost LIMIT and OFFSET, and with the rank of its rows as last column.

    Rows ``offset`` to ``offset + limit`` are one right answer, and rows of equal rank may change places. Ranks above
    ``limit + offset`` are left out, because they are in no answer. A database may refuse ``sql``, or return too many
    rows if many are tied. Then the original query's result is the only right answer.
    """

    sql: str
    keys: int  # number of extra columns at the end: 1, or 0 if the query has no order
    limit: int | None
    offset: int


def untie(query: Query, schema: Schema) -> Untied | None:
    """The rewritten query; None if that is not reliably possible."""
    tree, tokens = query.tree, statement(query.sql, query.dialect)
    while isinstance(tree, exp.Subquery) and not _set_arguments(tree):
        tree, tokens = tree.this, tokens[1:-1]
    cut = _cut(tree)
    if not isinstance(tree, (exp.Select, exp.SetOperation)) or cut is None:
        return None
    limit, offset = cut
    keys = _deciding(sort_keys(tree))
    text = StatementText(query.sql, tokens)
    if not keys:
        bare = text.body() if limit is not None or offset else text.slice(0, len(tokens))
        rewritten = bare if _means(bare, query.dialect, _without_limit(tree)) else None
    elif isinstance(tree, exp.SetOperation) or any(_sorts_by_window(key, tree) for key in keys):
        rewritten = _wrap(tree, text, len(keys), query.dialect)
    else:
        rewritten = _extend(tree, text, keys, query.dialect, schema)
    if rewritten is not None and keys and limit is not None and _can_be_table(tree, query.dialect):
        rewritten = f"SELECT * FROM (\n{rewritten}\n) AS untied_all WHERE {_RANK} <= {limit + offset} ORDER BY {_RANK}"  # noqa: S608
    return None if rewritten is None else Untied(rewritten, 1 if keys else 0, limit, offset)


def _extend(tree: exp.Select, text: StatementText, keys: list[exp.Ordered], dialect: str, schema: Schema) -> str | None:
    """The query with the rank behind its own columns."""
    places, projections = text.keys(), text.projections()
    if (
        len(projections) != len(tree.expressions)
        or len(places) != len(sort_keys(tree))
        or not all(projections + places)
        or tree.args.get("operation_modifiers")
        or not _allows_more_columns(tree, keys)
    ):
        return None
    written = []
    for key, place in zip(keys, places, strict=False):
        expression = _as_projection(key.this, place, tree, text, projections, dialect, schema)
        if expression is None:
            return None
        written.append(expression)
    rank = f", DENSE_RANK() OVER (ORDER BY {', '.join(written)}) AS {_RANK}"
    after = text.tokens[projections[-1][-1]].end + 1
    start, end = text.tokens[0].start, text.tokens[text.tail - 1].end + 1
    sql = f"{text.sql[start:after]}{rank}\n{text.sql[after:end]}"
    return sql if _means(sql, dialect, _without_limit(tree), extended=True) else None


def _wrap(tree: exp.Query, text: StatementText, number: int, dialect: str) -> str | None:
    """The query as a derived table, ranked by its output columns. A set operation can be sorted only by these."""
    names = {name.lower() for name in tree.named_selects}
    written = []
    for key, place in list(zip(sort_keys(tree), text.keys(), strict=False))[:number]:
        column = key.this.this if isinstance(key.this, exp.Collate) else key.this
        first = text.tokens[place[0]] if place else None
        if first is None:
            return None
        if isinstance(column, exp.Literal) and column.is_int:
            projections = text.projections()
            ordinal = int(column.name)
            if tree.is_star or not 0 < ordinal <= len(projections) == len(tree.selects):
                return None
            name = _name(tree.selects[ordinal - 1], text, projections[ordinal - 1])
        elif isinstance(column, exp.Column) and not column.table and (tree.is_star or column.name.lower() in names):
            name = text.sql[first.start : first.end + 1]
        else:
            return None
        if name is None or sum(name.strip('"`[]').lower() == known.lower() for known in tree.named_selects) > 1:
            return None
        written.append(f"untied.{name}{text.sql[first.end + 1 : text.tokens[place[-1]].end + 1]}")
    if not written or text.order is None:
        return None
    body = text.slice(0, text.order)
    rank = f"DENSE_RANK() OVER (ORDER BY {', '.join(written)}) AS {_RANK}"
    inner = _without_limit(tree)
    inner.set("order", None)
    if not _means(body, dialect, inner):
        return None
    return f"SELECT untied.*, {rank} FROM (\n{body}\n) AS untied ORDER BY {_RANK}"  # noqa: S608 - the gold's own text


def _as_projection(
    key: exp.Expr,
    places: list[int],
    tree: exp.Select,
    text: StatementText,
    projections: list[list[int]],
    dialect: str,
    schema: Schema,
) -> str | None:
    """A sort key's text, with names of output columns replaced by their expressions. Only ORDER BY can use these
    names."""
    if isinstance(key, exp.Var):
        return None  # ORDER BY ALL
    if isinstance(key.unnest(), exp.Literal) and key is not key.unnest():
        return None  # ORDER BY (1) is a place for some databases, and a constant for others
    aliases = {
        item.alias.lower(): number for number, item in enumerate(tree.expressions) if isinstance(item, exp.Alias)
    }
    alone = isinstance(key, exp.Column) and not key.table
    pieces: list[str] = []
    position = text.tokens[places[0]].start
    for place in places:
        token, number = text.tokens[place], None
        if isinstance(key, exp.Literal) and key.is_int and place == places[0]:
            number = int(key.name) - 1
            if not 0 <= number < len(projections) or any(item.is_star for item in tree.expressions[: number + 1]):
                return None
        elif token.text.lower() in aliases and _is_name(text, place):
            if not alone:
                if dialect == "postgres":
                    continue  # where it can only be a column
                if key.find(exp.Query) or any(
                    column.name.lower() == token.text.lower() for table in schema.tables for column in table.columns
                ):
                    return None
            number = aliases[token.text.lower()]
        if number is None:
            continue
        meaning = _unaliased(tree.expressions[number], text, projections[number])
        if meaning is None:
            return None
        pieces += [text.sql[position : token.start], f"({meaning})"]
        position = token.end + 1
    return "".join(pieces) + text.sql[position : text.tokens[places[-1]].end + 1]


def _is_name(text: StatementText, place: int) -> bool:
    """Whether a token that reads like an output column is one, and not a qualified name, a function or a literal."""
    before = text.tokens[place - 1].token_type
    after = text.tokens[place + 1].token_type if place + 1 < len(text.tokens) else None
    named = text.tokens[place].token_type not in (TokenType.STRING, TokenType.NUMBER)
    return (
        named and before not in (TokenType.DOT, TokenType.COLLATE) and after not in (TokenType.DOT, TokenType.L_PAREN)
    )


def _unaliased(item: exp.Expr, text: StatementText, places: list[int]) -> str | None:
    """An output column's text without its name."""
    end = len(places)
    if isinstance(item, exp.Alias):
        if text.tokens[places[-1]].text != item.alias:
            return None
        end -= 2 if end > 1 and text.tokens[places[-2]].token_type is TokenType.ALIAS else 1
    return text.slice(places[0], places[end - 1] + 1) if end > 0 else None


def _name(item: exp.Expr, text: StatementText, places: list[int]) -> str | None:
    """An output column's name as it is written."""
    last = text.tokens[places[-1]]
    named = isinstance(item, (exp.Alias, exp.Column)) and last.text == item.alias_or_name
    return text.sql[last.start : last.end + 1] if named and last.token_type is not TokenType.STRING else None


def _allows_more_columns(tree: exp.Select, keys: list[exp.Ordered]) -> bool:
    """Whether the rank can be added as a column without changing the rows."""
    distinct = tree.args.get("distinct")
    if distinct is not None:
        outputs = [item.unalias() for item in tree.expressions]
        names = {item.alias.lower() for item in tree.expressions if isinstance(item, exp.Alias)}
        stars = any(isinstance(item, exp.Star) for item in outputs)
        for key in keys:
            column = key.this
            named = isinstance(column, exp.Column) and (stars or (not column.table and column.name.lower() in names))
            if not named and column not in outputs and not column.is_int:
                return False
        return distinct.args.get("on") is None
    grouped = tree.args.get("group") is not None or any(_aggregates(item, tree) for item in tree.expressions)
    return grouped or not any(_aggregates(key, tree) for key in keys)


def _aggregates(node: exp.Expr, tree: exp.Select) -> bool:
    """Whether an expression holds an aggregate of this SELECT, rather than of a SELECT inside it."""
    return any(one.find_ancestor(exp.Select) is tree for one in node.find_all(exp.AggFunc))


def _sorts_by_window(key: exp.Ordered, tree: exp.Query) -> bool:
    """Whether a key is, or names, a window function. Another window function cannot sort by it."""
    if key.find(exp.Window):
        return True
    names = {column.name.lower() for column in key.find_all(exp.Column) if not column.table}
    ordinal = int(key.this.name) - 1 if key.this.is_int else -1
    return any(
        item.find(exp.Window) is not None
        for number, item in enumerate(tree.selects)
        if number == ordinal or item.alias_or_name.lower() in names
    )


def _deciding(keys: list[exp.Ordered]) -> list[exp.Ordered]:
    """The keys before the first random one. The keys after it decide nothing."""
    for place, key in enumerate(keys):
        if is_volatile(key.this):
            return keys[:place]
    return keys


def _cut(tree: exp.Expr) -> tuple[int | None, int] | None:
    """The outermost LIMIT and OFFSET; None if they are not plain numbers, or include ties."""
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    most: int | None = None
    if limit is not None:
        options = limit.args.get("limit_options")
        if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
            return None
        count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
        most = 1 if count is None and isinstance(limit, exp.Fetch) else _number(count)
        if most is None:
            return None
    start = 0 if offset is None else _number(offset.expression)
    return None if start is None else (most, start)


def _number(expression: exp.Expr | None) -> int | None:
    plain = isinstance(expression, exp.Literal) and expression.is_int
    return int(expression.name) if expression is not None and plain else None


def _can_be_table(tree: exp.Query, dialect: str) -> bool:
    """Whether a SELECT can be used in FROM. MySQL requires different names of its columns."""
    names = [name.lower() for name in tree.named_selects]
    return dialect != "mysql" or not (tree.is_star or "" in names or len(set(names)) < len(names))


def _set_arguments(node: exp.Expr) -> set[str]:
    return {name for name, value in node.args.items() if name != "this" and value}


def _without_limit(tree: exp.Expr) -> exp.Expr:
    bare = tree.copy()
    bare.set("limit", None)
    bare.set("offset", None)
    return bare


def _means(sql: str, dialect: str, tree: exp.Expr, *, extended: bool = False) -> bool:
    """Whether a text is parsed to this tree. ``extended``: the text has one more output column at its end."""
    try:
        found = parse_query(sql, dialect).tree.copy()
    except QueryError:
        return False
    if extended:
        found.set("expressions", found.expressions[:-1])
    return found == tree
