"""Finds an environment of verifiers by its name, and which of the two interfaces it has."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from rlfactory_core.errors import ConfigError, MissingExtraError
from rlfactory_environments.verifiers.environment import Environment


def load(name: str, arguments: Mapping[str, Any], settings: Mapping[str, Any], max_turns: int | None) -> Environment:
    """The environment of this name.

    Args:
        name: of an installed environment; MODULE:NAME is a function or class that makes one of the first interface.
        arguments: of ``load_environment``, or the fields of the task set's configuration.
        settings: further fields of the configuration of an environment of the second interface.
        max_turns: of one rollout; None: the environment's own.

    Raises:
        MissingExtraError: verifiers is not installed.
        ConfigError: there is no such environment, or it does not take these arguments.
    """
    try:
        importlib.import_module("verifiers")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "This needs verifiers: python -m pip install 'rlfactory-environments[verifiers]'"
        ) from error
    try:
        if (module := _first_interface(name)) is not None:
            from rlfactory_environments.verifiers.first import FirstEnvironment

            return FirstEnvironment.load(module, name, arguments)
        from rlfactory_environments.verifiers.second import SecondEnvironment

        return SecondEnvironment.load(name, arguments, settings, max_turns)
    except (ConfigError, MissingExtraError):
        raise
    except Exception as error:  # the boundary to verifiers and to whoever wrote the environment
        raise ConfigError(
            f"verifiers cannot load the environment '{name}' with {dict(arguments) or 'no arguments'}: "
            f"{type(error).__name__}: {error}. Install its package, and see its arguments there."
        ) from error


def _first_interface(name: str) -> ModuleType | None:
    """The module of an environment of the first interface; None: it is no such environment."""
    place = name.partition(":")[0]
    try:
        module = importlib.import_module(place.replace("-", "_").rsplit("/", 1)[-1])
    except ModuleNotFoundError as error:
        if ":" in name or error.name not in (place, place.replace("-", "_").rsplit("/", 1)[-1].split(".")[0]):
            raise
        return None
    return module if ":" in name or hasattr(module, "load_environment") else None
