"""What the commands share: options and their way into the configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import reduce
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.errors import ConfigError, MissingExtraError, UsageError
from rlfactory_core.settings import merge

if TYPE_CHECKING:
    from rlfactory_core.config import RunConfig
    from rlfactory_core.plugins.registry import Registry
    from rlfactory_core.settings import EngineSection

__all__ = [
    "CONFIG",
    "DATA",
    "EVAL_DATA",
    "JSON",
    "JUDGE",
    "MCP",
    "PLACES",
    "REST",
    "REWARD",
    "SEED",
    "SETTINGS",
    "described_run",
    "needs_local",
    "nested",
    "run_options",
    "task_options",
    "whole_run_options",
]

_OPTION = re.compile(r"--([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_NUMBER = re.compile(r"-[\d.]")


def task_options(args: Sequence[str], engine: Mapping[str, str] = {}) -> list[str]:
    """The words that a command does not know, as overrides.

    ``--top-k 3`` and ``--top-k=3`` become ``task.top_k=3``, ``--verbose`` alone ``task.verbose=true``.
    ``--url A --url B`` becomes a list, ``task.url=["A", "B"]``. ``train.lr=3e-4`` stays as it is.

    Args:
        engine: options of an engine, and the key that each sets.

    Raises:
        UsageError: anything else, such as a short option or a word without ``=``.
    """
    words = list(args)
    found: dict[str, list[str]] = {}  # by key, the values; a word with ``=`` stays whole
    while words:
        word = words.pop(0)
        option = _OPTION.fullmatch(word)
        if option:
            name, value = option[1].replace("-", "_"), option[2]
            if value is None and words and (words[0][:1] != "-" or words[0] == "-" or _NUMBER.match(words[0])):
                value = words.pop(0)
            if value is None and name in engine:
                raise UsageError(f"{word} needs a value: it sets {engine[name]}.")
            key = engine.get(name, f"task.{name}")
            found.setdefault(key, []).append("true" if value is None else value)
        elif "=" in word and not word.startswith("-"):
            found.pop(word, None)  # the last one counts
            found[word] = []
        else:
            raise UsageError(
                f"Got '{word}'; expected an option of the task such as --top-k 3, or KEY=VALUE such as train.lr=3e-4."
            )
    return [
        f"{key}={values[0] if len(values) == 1 else json.dumps(values)}" if values else key
        for key, values in found.items()
    ]


@contextmanager
def meant_options(command: click.Command) -> Iterator[None]:
    """Add a hint to a `ConfigError` if the unknown option of a task looks like one of the command or of an engine."""
    from rlfactory_core.plugins.registry import Registry

    try:
        yield
    except ConfigError as error:
        section, _, wrong = (error.unknown or ("",))[0].partition(".")
        if section != "task":
            raise
        for engine, keys in Registry().engine_sections(installed=True).items():
            if wrong in keys.options:
                raise ConfigError(f"{error} It is an option of the {engine} engine: add --engine {engine}") from error
        names = [name for parameter in command.params for name in parameter.opts if name.startswith("--")]
        close = get_close_matches(f"--{wrong.replace('_', '-')}", names, n=1, cutoff=0.75)
        if not close:
            raise
        raise ConfigError(f"{error} Or did you mean the command's own option {close[0]}?") from error


def nested(options: Mapping[str, Any], places: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """A command's own options as nested data of the configuration, without those that were not given.

    Args:
        places: the paths of options in the configuration, for those whose key has another name.
    """
    found: dict[str, Any] = {}
    for name, value in options.items():
        if value not in (None, ()):
            *path, last = places.get(name, (name,))
            target = found
            for part in path:
                target = target.setdefault(part, {})
            target[last] = list(value) if isinstance(value, tuple) else value
    return found


def _reward(text: str) -> dict[str, Any]:
    """``exact_match`` or ``format=0.1`` as an item of ``rewards``."""
    name, equals, number = text.partition("=")
    try:
        weight = float(number) if equals else 1.0
    except ValueError:
        weight = nan
    if not name or not isfinite(weight):
        raise UsageError(f"--reward {text}: expected NAME or NAME=WEIGHT, such as exact_match or format=0.1.")
    if name.endswith(".py"):
        raise UsageError(f"--reward {text}: expected FILE.py:NAME with the name of a class or a function in the file.")
    return {"name": name, "weight": weight}


def _plugins(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> str | dict[str, Any] | None:
    """The only plugin, or ``search=2`` and ``nl2sql`` as ``tasks`` of the configuration."""
    if len(given) < 2 and not any("=" in item for item in given):
        return given[0] if given else None
    tasks: dict[str, Any] = {}
    for item in given:
        plugin, _, weight = item.rpartition("=") if "=" in item else (item, "", "1")
        name = Path(plugin).stem.rpartition(":")[2]
        try:
            share = {"plugin": plugin, "weight": float(weight)}
        except ValueError:
            raise UsageError(f"--plugin {item}: expected NAME=WEIGHT, such as search=2.") from None
        if tasks.setdefault(name, share) is not share:
            raise UsageError(f"--plugin {item}: there are two of the name {name}. Name them apart in a --config file.")
    return tasks


_PATH = click.Path(path_type=Path)
SETTINGS: dict[str, Any] = {"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}
REST = click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[--TASK-OPTION VALUE] [KEY=VALUE]...")
CONFIG = click.option("--config", "file", type=_PATH, help="A YAML file with keys of the configuration.")
SEED = click.option("--seed", type=int, help="The seed of everything random.")
JSON = click.option("--json", "as_json", is_flag=True, help="Write the results as JSON; progress goes to stderr.")
DATA = click.option("--data", type=_PATH, help="Training data of your own: JSONL or parquet.")
EVAL_DATA = click.option("--eval-data", type=_PATH, help="Held-out data of your own.")
MCP = click.option("--mcp", type=_PATH, help="MCP servers whose tools are added: mcpServers JSON.")
REWARD = click.option(
    "--reward",
    "rewards",
    multiple=True,
    metavar="NAME|FILE.py:NAME[=WEIGHT]",
    callback=lambda _context, _parameter, given: tuple(map(_reward, given)),
    help="Instead of the task's rewards; may be repeated.",
)
JUDGE = click.option(
    "--judge", metavar="URL", help="Adds the reward judge, or moves it, to the server at this address."
)
_SHARED = (
    click.option(
        "--agent", metavar="CMD", help="A program of your own that plays instead of the task's loop, in any language."
    ),
    click.option(
        "--agent-workers",
        type=click.IntRange(min=0),
        help="Processes of it that play on and on. Default: one an attempt.",
    ),
    MCP,
    REWARD,
    JUDGE,
    click.option(
        "--recipe", metavar="NAME", help="A configuration that a plugin brings; all other options and keys override it."
    ),
    CONFIG,
)
_WHOLE = (
    click.option(
        "--plugin",
        multiple=True,
        metavar="NAME|FILE.py[=WEIGHT]",
        callback=_plugins,
        help="The task: an installed plugin's name, or a one-file plugin. Several are trained together, by weight.",
    ),
    click.option("--engine", metavar="NAME", help="The engine that trains. Default: local, in this process."),
    click.option(
        "--model",
        metavar="MODEL",
        help="Folder or id of a Hugging Face model, a run, a .gguf file, or an adapter's folder. Default: a tiny one.",
    ),
    DATA,
    EVAL_DATA,
    *_SHARED,
    SEED,
    click.option("--device", help="auto, cpu, cuda or cuda:N."),
)
PLACES = {
    "data": ("data", "train"),
    "eval_data": ("data", "eval"),
    "mcp": ("tools", "mcp"),
    "agent": ("agent", "command"),
    "agent_workers": ("agent", "workers"),
    "steps": ("train", "steps"),
    "warm_start": ("warm_start", "source"),
    "where": ("warm_start", "where"),
}


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that ``run`` and ``eval`` share."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_SHARED), command)


def whole_run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds those that say what a run is; `PLACES` has where they stand in the configuration."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_WHOLE), command)


def given_run(options: Mapping[str, Any]) -> dict[str, Any]:
    """`whole_run_options` as nested data of the configuration, without those that were not given."""
    plugin = options["plugin"]
    return nested({**options, "tasks": plugin, "plugin": None} if isinstance(plugin, dict) else options, PLACES)


def engine_sections(
    registry: Registry, plugins: str | Mapping[str, Any] | None, engine: str | None
) -> dict[str, type[EngineSection]]:
    """The sections of the engines that the command line names; the chosen engine is the last."""
    for plugin in [plugins] if isinstance(plugins, str) else [task["plugin"] for task in (plugins or {}).values()]:
        registry.task(plugin)
    chosen = engine and registry.find(engine, "engine").name
    return dict(sorted(registry.engine_sections().items(), key=lambda item: item[0] == chosen))


def engine_options(engines: Mapping[str, type[EngineSection]]) -> dict[str, str]:
    """The options of engines for `task_options`, and the key that each sets."""
    return {name: f"{engine}.{name}" for engine, section in engines.items() for name in section.options}


def run_overrides(
    options: Mapping[str, Any], rest: Sequence[str], registry: Registry, passed_on: Sequence[str] = ()
) -> list[str | Mapping[str, Any]]:
    """`whole_run_options` and the words behind them, as overrides.

    Args:
        passed_on: the words after ``--``.
    """
    engines = engine_sections(registry, options["plugin"], options["engine"])
    given = given_run(options)
    if passed_on:
        takers = [{engine: {item.after_dashes: passed_on}} for engine, item in engines.items() if item.after_dashes]
        if not takers:
            raise UsageError(f"`-- {passed_on[0]}` is for an engine's own configuration. Add --engine, such as verl.")
        given = merge(given, takers[-1])
    return [given, *task_options(rest, engine_options(engines))]


def described_run(
    options: Mapping[str, Any], rest: Sequence[str], passed_on: Sequence[str] = ()
) -> tuple[RunConfig, dict[str, Any]]:
    """The configuration of a run with these `whole_run_options`, which no engine has checked; and as plain data."""
    from rlfactory_core.plugins.registry import Registry
    from rlfactory_core.runner.resolving import load_recipe, read, resolve, written_config

    given, registry = dict(options), Registry()
    file, judge, recipe = (given.pop(name) for name in ("file", "judge", "recipe"))
    base = load_recipe(recipe, registry) if recipe else {}
    config = resolve(registry, read(file, run_overrides(given, rest, registry, passed_on), base), judge).config
    return config, written_config(config, registry)


@contextmanager
def needs_local() -> Iterator[None]:
    """For imports of the local engine: a `MissingExtraError` if one of its packages is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"This needs {error.name}, which is not installed: python -m pip install 'rlfactory-core[local]'"
        ) from error


def found_text(problems: int) -> str:
    """The last line of a report on problems."""
    return f"{problems} problem{'' if problems == 1 else 's'} found." if problems else "No problems found."
