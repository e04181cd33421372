"""A package's public names, each imported when it is first used.

They are listed once, as imports in the package's stub ``__init__.pyi``, which type checkers and editors read as well.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """The ``__getattr__`` and the ``__all__`` of a package.

    Args:
        package: its ``__name__``.
        file: its ``__file__``.
    """
    statements = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body
    homes = {
        alias.name: statement.module or ""
        for statement in statements
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find, list(homes)
