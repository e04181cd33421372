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
    head = "# API in full\n\n[What of it is public](../api.md), and for how long.\n\n"
    return {"reference/index.md": f"{head}{contents}\n", **pages}


def _page(module: str, purpose: str, public: Collection[str]) -> str:
    """What the module lists; what another public module lists too stands there, where it is defined."""
    elsewhere, here = [], []
    names = (name for name in import_module(module).__all__ if not name.startswith("__"))
    for name in names:
        home = _home(module, name)
        if home != module and home in public:
            elsewhere.append(f"- [`{name}`]({home}.md#{home}.{name})")
        else:
            here.append(f"::: {home}.{name}")
    return "\n\n".join([f"# `{module}`", f"For: {purpose}.", "\n".join(elsewhere), *here]) + "\n"


def _home(module: str, name: str) -> str:
    """Where a name is defined, which is where its documentation is read from."""
    item = getattr(import_module(module), name)
    home = getattr(item, "__module__", None)
    known = isinstance(home, str) and home.startswith("rlfactory_core") and getattr(item, "__qualname__", "") == name
    return str(home) if known else module
