"""Who may refer to whom, by imports and by texts that name a module: public names only, no circles, nothing above."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from public_api import public_modules, public_names
from references import PLUGINS, Reference, packages, references, registering


@cache
def importable() -> set[tuple[str, str]]:
    return public_names() | {(module, "") for module in public_modules()}


def listed(found: Sequence[Reference]) -> str:
    return "\n".join(map(str, found))


@pytest.mark.parametrize("package", packages())
def test_a_package_refers_to_public_names_of_the_others_only(package: str) -> None:
    others = [each for each in references() if each.package == package and each.module.partition(".")[0] != package]
    assert others or package in ("rlfactory_core", "rlfactory_sandbox")
    private = [each for each in others if (each.module, each.name) not in importable()]
    assert private == [], f"private names of other packages:\n{listed(private)}"


def test_no_circle_among_files() -> None:
    """Not for type checking, not inside a function, not by a text; a text may name the package that it stands in."""
    graph: dict[str, set[str]] = {}
    for each in references():
        within = each.text and (each.source in registering() or each.source.startswith(f"{each.target}."))
        if each.source != each.target and not within:
            graph.setdefault(each.source, set()).add(each.target)
    assert len(graph) > 300
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"These files refer to each other: {' -> '.join(reversed(error.args[1]))}")


def test_nothing_below_the_runner_reads_the_configuration_or_asks_the_registry() -> None:
    """The runner reads the whole configuration, finds the parts, and passes on what each needs."""
    edge = {"runner", "cli", "config", "plugins"}

    def room(module: str) -> str:
        return module.removeprefix("rlfactory_core").lstrip(".").partition(".")[0]

    found = [
        each
        for each in references()
        if each.package == "rlfactory_core" and room(each.source) not in edge and not each.text
        if room(each.target) == "config" or each.target == "rlfactory_core.plugins.registry"
    ]
    assert found == [], listed(found)


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_plugin_works_with_more_than_one_release_of_ours_and_without_the_devkit(plugin: Path) -> None:
    project = tomllib.loads((plugin / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [needed for some in project.get("optional-dependencies", {}).values() for needed in some]
    needed = project["dependencies"]
    pinned = [each for each in (*needed, *extras) if re.match(r"rlfactory-[\w\[\],-]+==", each)]
    assert pinned == []
    devkit = [each for each in needed if each.startswith("rlfactory-devkit")]
    assert not devkit
