"""What Python 3.10 cannot compile and newer releases, on which the tests may run, can."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = [path for folder in ("rlfactory_core", "plugins", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)


def asynchronous_within_another(tree: ast.AST) -> list[int]:
    """Lines of comprehensions that await inside another one: a SyntaxError before 3.11."""
    return [
        inner.lineno
        for outer in ast.walk(tree)
        if isinstance(outer, COMPREHENSIONS)
        for inner in ast.walk(outer)
        if isinstance(inner, COMPREHENSIONS) and inner is not outer
        if any(isinstance(node, ast.Await) for node in ast.walk(inner))
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_oldest_supported_python_compiles_it(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 10))
    assert asynchronous_within_another(tree) == []


def test_the_check_finds_what_it_looks_for() -> None:
    source = "async def f():\n    return [[await g(x) for x in y] for y in z]\n"
    assert asynchronous_within_another(ast.parse(source)) == [2]
    if sys.version_info < (3, 11):
        with pytest.raises(SyntaxError):
            compile(source, "", "exec")
