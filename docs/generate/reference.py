"""Pages of the public Python API, one a module: those that docs/api.md names, with what their ``__all__`` lists."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib import import_module

from repository import ROOT

MODULE = re.compile(r"^\| `(rlfactory_core[\w.]*)` \| (.*?) \|$", re.M)


def reference_pages() -> dict[str, str]:
    """Path -> text; mkdocstrings puts signatures and docstrings in."""
    modules = dict(MODULE.findall((ROOT / "docs" / "api.md").read_text(encoding="utf-8")))
    pages = {f"reference/{module}.md": _page(module, purpose, modules) for module, purpose in modules.items()}
    contents = "\n".join(f"- [`{module}`]({module}.md): {purpose}" for module, purpose in modules.items())
    head = "# API in full\n\nLook up here every public class and function. [What is public](../api.md)\n\n"
    return {"reference/index.md": f"{head}{contents}\n", **pages}


def _page(module: str, purpose: str, public: Collection[str]) -> str:
    """What the module lists. A name that several public modules list is described in one; the others link to it."""
    elsewhere, here = [], []
    names = (name for name in import_module(module).__all__ if not name.startswith("__"))
    for name in names:
        home = _home(module, name)
        if (page := _page_of(module, name, home, public)) == module:
            here.append(f"::: {home}.{name}")
        else:
            elsewhere.append(f"- [`{name}`]({page}.md#{home}.{name})")
    return "\n\n".join([f"# `{module}`", f"Look up here: {purpose}.", "\n".join(elsewhere), *here]) + "\n"


def _page_of(module: str, name: str, home: str, public: Collection[str]) -> str:
    """The public module that describes the name: where it is defined, or else the one closest to that."""
    above = [other for other in public if f"{home}.".startswith(f"{other}.")]
    return max((other for other in above if name in import_module(other).__all__), key=len, default=module)


def _home(module: str, name: str) -> str:
    """Where a name is defined, which is where its documentation is read from."""
    item = getattr(import_module(module), name)
    home = getattr(item, "__module__", None)
    known = isinstance(home, str) and home.startswith("rlfactory_core") and getattr(item, "__qualname__", "") == name
    return str(home) if known else module
