"""Loads one plugin: imports its module or its single file, checks its API version and calls its hooks.

Each plugin has a pluggy manager of its own, so that a hook that fails does not affect other plugins.

A plugin that is one file (``--plugin ./my_task.py``) becomes a module whose name holds a hash of the file's content. So
two files of the same name do not collide, and what the module defines can be unpickled in any process that has loaded
the same content, wherever the file is there.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

import pluggy
import pydantic
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import PydanticUserError

from rlfactory_core.errors import MissingExtraError, PluginError, PluginVersionError, nearest
from rlfactory_core.hookspecs import API_VERSION, PROJECT, Hookspecs
from rlfactory_core.plugins.discovery import PluginEntry
from rlfactory_core.plugins.lazy import Lazy
from rlfactory_core.settings import Section

Kind = Literal[
    "task", "env", "tool_manager", "reward_scorer", "verifier", "chat_format", "engine", "command",
    "config_section", "report_section", "trajectory_section", "recipe", "diagnostic", "prompt_sampler",
    "advantage", "loss_function", "agent_player", "tool_source",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)

DEFAULT_API = ">=1,<2"
"""The API versions of a plugin without ``RLFACTORY_API``, which was written for the first API."""


@dataclass(frozen=True, slots=True)
class Registration:
    """One name that a plugin registers."""

    kind: Kind
    name: str
    factory: Callable[..., Any]
    plugin: PluginEntry

    def make(self, *args: Any, **options: Any) -> Any:
        """Call the factory.

        Raises:
            MissingExtraError: it imports a package that is not installed; the message says what to install.
            PluginError: its options have an invalid declaration.
        """
        try:
            return self.factory(*args, **options)
        except PydanticUserError as error:
            raise PluginError(f"The {words(self.kind)} '{self.name}': {refused_options(error)}") from error
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] == self.plugin.module.split(".")[0]:
                raise  # a bug of the plugin: it imports a module of its own that does not exist
            remedy = f"pip install '{self.plugin.distribution}'"
            if (self.kind, self.plugin.module) == ("engine", "rlfactory_core.builtin"):
                remedy = "pip install 'rlfactory-core[local]'"
            raise MissingExtraError(
                f"The {words(self.kind)} '{self.name}' needs the package '{error.name}', which is not installed. "
                f"Install it, for example with: {remedy}"
            ) from error


def takes(factory: Callable[..., Any], *args: Any, **options: Any) -> bool:
    """Whether a factory can be called like this, by its signature."""
    try:
        inspect.signature(factory.load() if isinstance(factory, Lazy) else factory).bind(*args, **options)
    except TypeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """An imported plugin and everything that it registers."""

    entry: PluginEntry
    api: str  # the version specifier
    registrations: tuple[Registration, ...]


def load_plugin(entry: PluginEntry) -> LoadedPlugin:
    """Import a plugin and call its hooks.

    Raises:
        PluginVersionError: it needs another version of the plugin API.
        PluginError: the plugin fails in any other way; its own exception is the cause.
    """
    name, colon, member = entry.module.partition(":")
    if colon and not entry.file:
        raise PluginError(
            f"The plugin {entry} has the entry point '{entry.module}'; expected a module, '{name}', with "
            f"`@hookimpl def rlfactory_tasks(register): register({entry.name!r}, {member})`."
        )
    try:
        module = import_file(entry.module, entry.file) if entry.file else import_module(entry.module)
        api = _check_api(entry, module)
        return LoadedPlugin(entry, api, _call_hooks(entry, module))
    except PluginError:
        raise
    except PydanticUserError as error:
        raise PluginError(f"The plugin {entry} cannot be loaded: {refused_options(error)}") from error
    except (Exception, SystemExit) as error:  # the boundary to a plugin's code, which may fail in any way
        if beside := _neighbour(entry, error):
            raise PluginError(
                f"The plugin {entry} imports {beside}, which lies beside it. A plugin of one file cannot import its "
                "neighbours: other processes and machines get that file alone. Put the code into it, or make a package "
                "of both: rlfactory new"
            ) from error
        raise PluginError(
            f"The plugin {entry} cannot be loaded: {type(error).__name__}: {str(error).rstrip('.')}. "
            f"`rlfactory plugins info {entry.qualified}` shows where; mend or update it."
        ) from error


def _neighbour(entry: PluginEntry, error: BaseException) -> str:
    """The file or folder beside a one-file plugin that it tried to import; empty if it failed for another reason."""
    if not (entry.file and isinstance(error, ModuleNotFoundError) and error.name):
        return ""
    name = error.name.split(".")[0]
    beside = [Path(entry.file).with_name(f"{name}.py"), Path(entry.file).with_name(name)]
    return next((each.name for each in beside if each.exists()), "")


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

    def register(kind: Kind, name: str, factory: Callable[..., Any]) -> None:
        what = f"The plugin {entry} registers the {words(kind)} {name!r}"
        if not isinstance(name, str) or not name or ":" in name:
            raise PluginError(f"{what}; expected a name without ':', which is for choosing a distribution.")
        if not callable(factory):
            raise PluginError(f"{what} with {factory!r}; expected a factory that can be called.")
        if (kind, name) in found:
            raise PluginError(f"{what} twice; expected a name of its own for each.")
        found[kind, name] = Registration(kind, name, factory, entry)

    for kind in KINDS:
        getattr(manager.hook, f"rlfactory_{kind}s")(register=partial(register, kind))
    return tuple(found.values())


def require_registrations(plugin: LoadedPlugin) -> None:
    """Raise a `PluginError` if a plugin registers nothing."""
    if not plugin.registrations:
        entry = plugin.entry
        raise PluginError(
            f"The plugin {entry} registers nothing. Expected functions in {entry.file or entry.module} such as "
            f"`@hookimpl def rlfactory_tasks(register): register({entry.name!r}, MyTask)`."
        )


def reward_in_file(plugin: LoadedPlugin, name: str) -> Registration:
    """A reward of a file, as ``--reward FILE.py:NAME`` names it: one that it registers, a class, or a function."""
    rewards = {item.name: item for item in plugin.registrations if item.kind in ("reward_scorer", "verifier")}
    module = sys.modules[plugin.entry.module]
    for key, value in vars(module).items():
        if getattr(value, "__module__", "") != module.__name__ or hasattr(value, f"{PROJECT}_impl") or key in rewards:
            continue
        if inspect.isclass(value) and any(hasattr(value, each) for each in ("score", "score_group", "verify")):
            rewards[key] = Registration("reward_scorer", key, value, plugin.entry)
        elif inspect.isfunction(value):
            rewards[key] = Registration("reward_scorer", key, partial(_same, value), plugin.entry)
    if name not in rewards:
        raise PluginError(
            f"--reward {plugin.entry.file}:{name}: the file has no reward of that name. {nearest(name, rewards)} A "
            "reward is a class with `async def score(self, trajectory)`, or a function of a trajectory."
        )
    return rewards[name]


def _same(function: Any) -> Any:
    return function


def _refuse_unknown_hooks(entry: PluginEntry, module: ModuleType) -> None:
    """Refuse a misspelt hook, which would be ignored, and a wrong argument, for which pluggy's message is no help."""
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
    return kind.replace("_", " ")


def section_class(item: Registration) -> type[Section]:
    """The class that a plugin registers as a config section."""
    found = item.factory.load() if isinstance(item.factory, Lazy) else item.factory
    if isinstance(found, type) and issubclass(found, Section):
        return found
    raise PluginError(
        f"The plugin {item.plugin} registers the {words(item.kind)} '{item.name}' with {found!r}; expected a subclass "
        "of rlfactory_core.Section, or Lazy('module:Class') of one."
    )


_OURS = (str(Path(pydantic.__file__).parent), str(Path(__file__).parents[1]))
_REMEDIES = {  # by pydantic's code of an error
    "model-field-missing-annotation": "Give the option a type, such as `top_k: int = 3`.",
    "class-not-fully-defined": "Import the types of options at the top of the file, not under TYPE_CHECKING.",
    "schema-for-unknown-type": "The type of an option is plain data (str, int, Path, Literal, lists, …) or a Section.",
}


def refused_options(error: PydanticUserError) -> str:
    """What is wrong with the declaration of an option, where, and what to write instead."""
    what = error.message.splitlines()[0].partition(". ")[0].rstrip(".").replace("pydantic-core schema", "a schema")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((*_OURS, "<"))]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{what}{where}. {_REMEDIES.get(error.code or '', '')}".rstrip()


def is_file(spec: str) -> bool:
    """Whether a value of ``--plugin`` is a file: it ends with .py or contains a directory."""
    return spec.endswith(".py") or os.sep in spec


def file_entry(spec: str) -> PluginEntry:
    """The plugin in a file."""
    path = Path(spec).expanduser().resolve()
    if path.suffix != ".py" or not path.is_file():
        raise PluginError(f"No plugin file {path}. Expected a Python file, such as --plugin ./my_task.py.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    module = f"rlfactory_file_{re.sub(r'[^0-9A-Za-z]', '_', path.stem)}_{digest}"
    return PluginEntry(path.stem, path.name, "", module, file=str(path))


def import_file(name: str, file: str) -> ModuleType:
    """Run the file as module ``name``, once in a process."""
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"no loader for {file}")
    module = module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as in an import, because dataclasses and pickle look modules up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
