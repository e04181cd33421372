"""Describes what a plugin registers: each part's name, its documentation and its options.

``rlfactory plugins info`` and the generated pages of the documentation show it. The parts' classes are imported for it;
an error of one of them becomes a part of the description.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
from pydantic import PydanticUserError

from rlfactory_core.plugins.discovery import PluginEntry
from rlfactory_core.plugins.fingerprint import Fingerprint, fingerprint
from rlfactory_core.plugins.lazy import Lazy, LazyReward
from rlfactory_core.plugins.loading import Kind, LoadedPlugin, Registration, refused_options, section_class
from rlfactory_core.plugins.options import Option, section_options, signature_options
from rlfactory_core.settings import EngineSection


@dataclass(frozen=True, slots=True)
class Part:
    """One name that a plugin registers."""

    kind: Kind
    name: str
    doc: str  # the first line of its docstring, or empty
    options: tuple[Option, ...] = ()
    given_as: str = ""  # how an option is given, with KEY in it; empty if there are no options
    problem: str = ""  # why the part cannot be described


@dataclass(frozen=True, slots=True)
class Description:
    """A plugin."""

    entry: PluginEntry
    api: str  # its version specifier
    fingerprint: Fingerprint
    parts: tuple[Part, ...]


def describe(plugin: LoadedPlugin) -> Description:
    """Import what the plugin registers, and read its documentation and options."""
    parts = tuple(_part(item) for item in plugin.registrations)
    return Description(plugin.entry, plugin.api, fingerprint(plugin.entry), parts)


def _part(item: Registration) -> Part:
    try:
        target = item.factory.load() if isinstance(item.factory, Lazy) else item.factory
        describe_part = _PARTS.get(item.kind)
        part = describe_part(item, target) if describe_part else Part(item.kind, item.name, _first_line(target))
    except PydanticUserError as error:
        return Part(item.kind, item.name, "", problem=refused_options(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to a plugin's code, which may fail in any way
        return Part(item.kind, item.name, "", problem=f"{type(error).__name__}: {error}")
    return part if part.options else replace(part, given_as="")


def _task(item: Registration, target: Any) -> Part:
    cls = target if hasattr(target, "Config") else type(item.make({}, 0))
    return Part(item.kind, item.name, _first_line(cls), section_options(cls.Config), "--KEY or task.KEY")


def _scorer(item: Registration, target: Any) -> Part:
    """The options are those of the section that checks them, or else the arguments of the factory."""
    named = item.factory.options if isinstance(item.factory, LazyReward) else ""
    options = section_options(Lazy(named).load()) if named else signature_options(target)
    return Part(item.kind, item.name, _first_line(target), options, f"rewards: [{{name: {item.name}, KEY: …}}]")


def _section(item: Registration, target: Any) -> Part:
    section = section_class(item)
    place = item.name if issubclass(section, EngineSection) else f"plugins.{item.name}"
    return Part(item.kind, item.name, _first_line(section), section_options(section), f"{place}.KEY")


def _command(item: Registration, target: Any) -> Part:
    command = item.make()
    assert isinstance(command, click.Command), f"{command!r} is no command of click"
    return Part(item.kind, item.name, command.get_short_help_str(limit=120))


def _recipe(item: Registration, target: Any) -> Part:
    """The first paragraph of the comment at the beginning of the file."""
    lines = Path(item.make()).read_text(encoding="utf-8").splitlines()
    comment = takewhile(lambda line: line.startswith("# "), lines)
    return Part(item.kind, item.name, " ".join(line.lstrip("#").strip() for line in comment))


_PARTS: dict[Kind, Callable[[Registration, Any], Part]] = {
    "task": _task,
    "reward_scorer": _scorer,
    "verifier": _scorer,
    "config_section": _section,
    "command": _command,
    "recipe": _recipe,
}


def _first_line(target: Any) -> str:
    """The docstring's first paragraph on one line; empty if it is inherited or made by `dataclass`."""
    own = target.__dict__.get("__doc__") if isinstance(target, type) else getattr(target, "__doc__", None)
    if not isinstance(own, str) or (isinstance(target, type) and own.startswith(f"{target.__name__}(")):
        return ""
    return " ".join(inspect.cleandoc(own).split("\n\n")[0].split())
