"""One plugin from its entry to its registrations: import, API check, hooks.

Each plugin gets a pluggy manager of its own, so a hook that fails cannot touch another plugin's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, get_args

import pluggy
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import PydanticUserError

from rlfactory_core.errors import MissingExtraError, PluginError, PluginVersionError, nearest
from rlfactory_core.hookspecs import API_VERSION, PROJECT, Hookspecs
from rlfactory_core.plugins.discovery import PluginEntry
from rlfactory_core.plugins.refused_options import refused_options
from rlfactory_core.plugins.single_file import import_file

Kind = Literal[
    "task", "env", "tool_manager", "reward_scorer", "verifier", "chat_format", "engine", "command",
    "config_section", "report_section", "recipe",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)

DEFAULT_API = ">=1,<2"
"""What a plugin without ``RLFACTORY_API`` is taken to say: it was written for the first API, as one file often is."""


@dataclass(frozen=True, slots=True)
class Registration:
    """One name that a plugin gives."""

    kind: Kind
    name: str
    factory: Callable[..., Any]
    plugin: PluginEntry

    def make(self, *args: Any, **options: Any) -> Any:
        """Call the factory.

        Raises:
            MissingExtraError: it imports a package that is not installed; says what to install.
            PluginError: its options are declared as they cannot be.
        """
        try:
            return self.factory(*args, **options)
        except PydanticUserError as error:
            raise PluginError(f"The {words(self.kind)} '{self.name}': {refused_options(error)}") from error
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] == self.plugin.module.split(".")[0]:
                raise  # a module of the plugin's own: its bug
            remedy = f"pip install '{self.plugin.distribution}'"
            if (self.kind, self.plugin.module) == ("engine", "rlfactory_core.builtin"):
                remedy = "pip install 'rlfactory-core[local]'"
            raise MissingExtraError(
                f"The {words(self.kind)} '{self.name}' needs the package '{error.name}', which is not installed. "
                f"Install it, for example with: {remedy}"
            ) from error


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """An imported plugin and all that it gives."""

    entry: PluginEntry
    api: str  # the version specifier
    registrations: tuple[Registration, ...]


def load_plugin(entry: PluginEntry) -> LoadedPlugin:
    """Import a plugin and call its hooks.

    Raises:
        PluginVersionError: it speaks another version of the plugin API.
        PluginError: anything else that went wrong in it; the plugin's own exception is the cause.
    """
    try:
        module = import_file(entry.module, entry.file) if entry.file else import_module(entry.module)
        api = _check_api(entry, module)
        return LoadedPlugin(entry, api, _call_hooks(entry, module))
    except PluginError:
        raise
    except PydanticUserError as error:
        raise PluginError(f"The plugin {entry} cannot be loaded: {refused_options(error)}") from error
    except (Exception, SystemExit) as error:  # the boundary: a plugin may fail in any way, and is only itself broken
        raise PluginError(
            f"The plugin {entry} cannot be loaded: {type(error).__name__}: {str(error).rstrip('.')}. "
            f"`rlfactory plugins info {entry.qualified}` shows where; mend or update it."
        ) from error


def _check_api(entry: PluginEntry, module: ModuleType) -> str:
    api = getattr(module, "RLFACTORY_API", DEFAULT_API)
    try:
        speaks = SpecifierSet(api).contains(API_VERSION, prereleases=True)
    except (InvalidSpecifier, TypeError, AttributeError):
        raise PluginVersionError(
            f"The plugin {entry} says RLFACTORY_API = {api!r}; expected a version specifier, such as '{DEFAULT_API}'."
        ) from None
    if not speaks:
        remedy = f"Install versions that agree: `pip install -U rlfactory-core {entry.distribution}`."
        if entry.file:
            remedy = "Change it in the file, or install a core that fits: `pip install -U rlfactory-core`."
        raise PluginVersionError(
            f"The plugin {entry} speaks plugin API {api}, this rlfactory-core {API_VERSION}. {remedy}"
        )
    return str(api)


def _call_hooks(entry: PluginEntry, module: ModuleType) -> tuple[Registration, ...]:
    _refuse_unknown_hooks(entry, module)
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hookspecs)
    manager.register(module)
    found: dict[tuple[Kind, str], Registration] = {}

    for kind in KINDS:

        def register(name: str, factory: Callable[..., Any], kind: Kind = kind) -> None:
            what = f"The plugin {entry} registers the {words(kind)} {name!r}"
            if not isinstance(name, str) or not name or ":" in name:
                raise PluginError(f"{what}; expected a name without ':', which is for choosing a distribution.")
            if not callable(factory):
                raise PluginError(f"{what} with {factory!r}; expected a factory that can be called.")
            if (kind, name) in found:
                raise PluginError(f"{what} twice; expected a name of its own for each.")
            found[kind, name] = Registration(kind, name, factory, entry)

        getattr(manager.hook, f"rlfactory_{kind}s")(register=register)
    if not found:
        raise PluginError(
            f"The plugin {entry} registers nothing. Expected functions in {entry.file or entry.module} such as "
            f"`@hookimpl def rlfactory_tasks(register): register({entry.name!r}, MyTask)`."
        )
    return tuple(found.values())


def _refuse_unknown_hooks(entry: PluginEntry, module: ModuleType) -> None:
    """A misspelt hook would otherwise be silently ignored, and pluggy's own words for another argument are no help."""
    for name, function in vars(module).items():
        if not isinstance(getattr(function, f"{PROJECT}_impl", None), dict):
            continue
        if not hasattr(Hookspecs, name):
            known = [hook for hook in vars(Hookspecs) if hook.startswith(PROJECT)]
            raise PluginError(f"The plugin {entry} has an unknown hook '{name}'. {nearest(name, known)}")
        taken = list(inspect.signature(function).parameters)
        if taken != ["register"]:
            raise PluginError(
                f"The plugin {entry} has {name}({', '.join(taken)}); expected {name}(register), which is called back "
                "with a name and a factory."
            )


def words(kind: str) -> str:
    """A kind as people say it."""
    return kind.replace("_", " ")
