"""The positions of a statement's clauses in its text, so that the text can be edited without regenerating it."""

from __future__ import annotations

from sqlglot import Token, TokenType

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_TAIL = {TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH}
_AFTER_PROJECTIONS = {
    *_TAIL,
    TokenType.FROM,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.WINDOW,
    TokenType.QUALIFY,
    TokenType.ORDER_BY,
}


class StatementText:
    """A statement's text, divided at the tokens outside all brackets."""

    def __init__(self, sql: str, tokens: list[Token]) -> None:
        self.sql = sql
        self.tokens = tokens
        self.top: list[int] = []  # places of the tokens outside all brackets
        depth = 0
        for place, token in enumerate(tokens):
            depth -= token.token_type in _CLOSE
            if depth == 0:
                self.top.append(place)
            depth += token.token_type in _OPEN
        self.order = self._last(TokenType.ORDER_BY)
        start = 0 if self.order is None else self.order
        self.tail = next((i for i in self.top if i > start and tokens[i].token_type in _TAIL), len(tokens))

    def _last(self, kind: TokenType) -> int | None:
        return next((place for place in reversed(self.top) if self.tokens[place].token_type is kind), None)

    def slice(self, start: int, end: int) -> str:
        """The text from one token up to another, which is excluded."""
        return self.sql[self.tokens[start].start : self.tokens[end - 1].end + 1] if start < end else ""

    def body(self) -> str:
        """All but LIMIT and OFFSET."""
        return self.slice(0, self.tail)

    def keys(self) -> list[list[int]]:
        """The tokens of each sort key."""
        return [] if self.order is None else self._split(self.order + 1, self.tail)

    def projections(self) -> list[list[int]]:
        """The tokens of each output column, if there is a single SELECT outside brackets; otherwise empty."""
        selects = [place for place in self.top if self.tokens[place].token_type is TokenType.SELECT]
        if not selects:
            return []
        start = selects[0] + 1
        while self.tokens[start : start + 1] and self.tokens[start].token_type in (TokenType.DISTINCT, TokenType.ALL):
            start += 1
        end = next((place for place in self.top if place > start and self._ends_projections(place)), len(self.tokens))
        return self._split(start, end)

    def _ends_projections(self, place: int) -> bool:
        kind = self.tokens[place].token_type
        if kind is TokenType.FROM:  # not that of IS DISTINCT FROM
            return self.tokens[place - 1].token_type is not TokenType.DISTINCT
        return kind in _AFTER_PROJECTIONS

    def _split(self, start: int, end: int) -> list[list[int]]:
        parts: list[list[int]] = [[]]
        top = set(self.top)
        for place in range(start, end):
            if place in top and self.tokens[place].token_type is TokenType.COMMA:
                parts.append([])
            else:
                parts[-1].append(place)
        return parts
