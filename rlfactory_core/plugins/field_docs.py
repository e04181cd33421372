"""What a section's class says of its fields: a description, a docstring below one, or the comment beside it.

The comment is the house style of this repository, and Python forgets it, so it is read from the class's source; where
there is no source, such a field simply has no documentation.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Mapping
from textwrap import dedent

from pydantic import BaseModel

_FOR_TOOLS = re.compile(r"#\s*(noqa|type:|pragma|fmt:|pylint|pyright).*$")


def field_docs(section: type[BaseModel]) -> dict[str, str]:
    """The documentation of each field that has any, inherited ones too."""
    found: dict[str, str] = {}
    for cls in reversed(section.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            found |= _from_source(cls)
    described = {name: field.description for name, field in section.model_fields.items() if field.description}
    return {name: text for name, text in {**found, **described}.items() if name in section.model_fields}


def _from_source(cls: type) -> dict[str, str]:
    try:
        source = dedent(inspect.getsource(cls))
        (node,) = ast.parse(source).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}  # made by a program, or its source is not there
    if not isinstance(node, ast.ClassDef):
        return {}
    comments, alone = _comments(source)
    found = {}
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = _docstring(after) or _beside(statement, comments, alone) or _above(statement, comments, alone)
            found[statement.target.id] = text
    return {name: text for name, text in found.items() if text}


def _docstring(statement: ast.stmt | None) -> str:
    """A text that stands by itself below a field."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return " ".join(value.split()) if isinstance(value, str) else ""
    return ""


def _beside(statement: ast.stmt, comments: Mapping[int, str], alone: frozenset[int]) -> str:
    lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    return " ".join(comments[line] for line in lines if comments.get(line) and line not in alone)


def _above(statement: ast.stmt, comments: Mapping[int, str], alone: frozenset[int]) -> str:
    lines: list[str] = []
    line = statement.lineno - 1
    while line in alone:
        lines.insert(0, comments[line])
        line -= 1
    return " ".join(lines).strip()


def _comments(source: str) -> tuple[dict[int, str], frozenset[int]]:
    """Each line's comment, and the lines that hold nothing else."""
    comments, alone = {}, set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = _FOR_TOOLS.sub("", token.string).lstrip("#").strip()
            if token.line.lstrip().startswith("#"):
                alone.add(token.start[0])
    return comments, frozenset(alone)
