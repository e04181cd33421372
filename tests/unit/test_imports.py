"""No file imports itself through others: not for type checking, not inside a function, not through a package's face."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest


@pytest.mark.parametrize("package", ["core", "search", "nl2sql", "judge", "interpreter"])
def test_no_circle_among_files(package: str) -> None:
    grimp = pytest.importorskip("grimp", reason="comes with import-linter")
    graph = grimp.build_graph(f"rlfactory_{package}", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 10
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"These files import each other: {' -> '.join(reversed(error.args[1]))}")
