"""Which modules our packages refer to: by imports, also for type checkers and inside functions, and by texts.

A text refers to a module if it is the module's path and nothing else, with or without a name, as in the ``module:name``
of a lazy factory.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PLUGINS = sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))
_TEXT = re.compile(r"(rlfactory_\w+(?:\.\w+)*)(?::(\w[\w.]*))?")


@dataclass(frozen=True)
class Reference:
    """One module refers to a name of another, or to all of it."""

    file: str
    package: str  # that refers
    source: str  # the module that refers
    module: str
    name: str  # empty: the module
    text: bool = False  # by a text, in the place of an import

    @property
    def target(self) -> str:
        """The module that is imported: a name can be a module as well."""
        whole = f"{self.module}.{self.name}"
        return whole if self.name and whole in modules() else self.module

    def __str__(self) -> str:
        return f"{self.file}: {self.module}{f'.{self.name}' if self.name else ''}"


def packages() -> dict[str, Path]:
    """The folders of our packages."""
    folders = [ROOT / "rlfactory_core", *(plugin / plugin.name.replace("-", "_") for plugin in PLUGINS)]
    return {folder.name: folder for folder in folders}


def registering() -> set[str]:
    """The modules that only register parts: naming a part in a text does not make them depend on it."""
    projects = [tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"] for folder in (ROOT, *PLUGINS)]
    points = [project.get("entry-points", {}) for project in projects]
    named = {value.partition(":")[0] for groups in points for group in groups.values() for value in group.values()}
    return {*named, "rlfactory_core.builtin"}


@cache
def modules() -> dict[str, Path]:
    """All modules of our packages."""
    found = {}
    for package, folder in packages().items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


@cache
def references() -> tuple[Reference, ...]:
    """All references of our packages to each other, and within each."""
    return tuple(each for source, path in modules().items() for each in _of(source, path))


def _of(source: str, path: Path) -> Iterator[Reference]:
    package, file = source.partition(".")[0], str(path.relative_to(ROOT))
    for each in (path, path.with_suffix(".pyi")):  # a stub has the imports of a package whose names are loaded lazily
        if not each.exists():
            continue
        for node in ast.walk(ast.parse(each.read_text(encoding="utf-8"))):
            for module, name, text in _named(node):
                if module.partition(".")[0] in packages():
                    yield Reference(file, package, source, module, name, text)


def _named(node: ast.AST) -> Iterator[tuple[str, str, bool]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, "", False) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from ((node.module or "", alias.name, False) for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := _TEXT.fullmatch(node.value)):
        yield found[1], found[2] or "", True
