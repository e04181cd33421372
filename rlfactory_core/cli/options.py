"""From the command line to the configuration: what a command knows, and a task's own options, which it does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any

import click

from rlfactory_core.errors import UsageError

_OPTION = re.compile(r"--([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_NUMBER = re.compile(r"-[\d.]")


def task_options(args: Sequence[str]) -> list[str]:
    """What a command did not know, as overrides.

    ``--top-k 3`` and ``--top-k=3`` become ``task.top_k=3``, ``--verbose`` alone ``task.verbose=true``, and
    ``train.lr=3e-4`` stays as it is.

    Raises:
        UsageError: anything else, such as a short option or a word without ``=``.
    """
    return list(_overrides(list(args)))


def nested(options: Mapping[str, Any], places: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """A command's own options as a part of the configuration; those that were not given are left out.

    Args:
        places: the path of each option in the configuration, where that is not its own name.
    """
    found: dict[str, Any] = {}
    for name, value in options.items():
        if value in (None, ()):
            continue
        *path, last = places.get(name, (name,))
        target = found
        for part in path:
            target = target.setdefault(part, {})
        target[last] = list(value) if isinstance(value, tuple) else value
    return found


def _rewards(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """``exact_match`` and ``format=0.1`` as items of ``rewards``."""
    return tuple(map(_reward, given))


def _reward(text: str) -> dict[str, Any]:
    name, equals, number = text.partition("=")
    try:
        weight = float(number) if equals else 1.0
    except ValueError:
        weight = nan
    if not name or not isfinite(weight):
        raise UsageError(f"--reward {text}: expected NAME or NAME=WEIGHT, such as exact_match or format=0.1.")
    return {"name": name, "weight": weight}


CONFIG = click.option(
    "--config", "file", type=click.Path(path_type=Path), help="A YAML file with keys of the configuration."
)
RECIPE = click.option(
    "--recipe", metavar="NAME", help="A configuration that a plugin brings; all other options and keys go over it."
)
MCP = click.option("--mcp", type=click.Path(path_type=Path), help="MCP servers whose tools are added: mcpServers JSON.")
REWARD = click.option(
    "--reward",
    "rewards",
    multiple=True,
    metavar="NAME[=WEIGHT]",
    callback=_rewards,
    help="Instead of the task's rewards; may be repeated.",
)
JUDGE = click.option(
    "--judge",
    metavar="URL|FILE",
    help="Adds the reward judge, or moves it: a server's address, or an endpoint file of `rlfactory judge serve`.",
)


def _overrides(args: list[str]) -> Iterator[str]:
    while args:
        word = args.pop(0)
        option = _OPTION.fullmatch(word)
        if option:
            name, value = option.groups()
            if value is None:
                value = args.pop(0) if args and _is_value(args[0]) else "true"
            yield f"task.{name.replace('-', '_')}={value}"
        elif "=" in word and not word.startswith("-"):
            yield word
        else:
            raise UsageError(
                f"Got '{word}'; expected an option of the task such as --top-k 3, or KEY=VALUE such as train.lr=3e-4."
            )


def _is_value(word: str) -> bool:
    return not word.startswith("-") or word == "-" or bool(_NUMBER.match(word))
