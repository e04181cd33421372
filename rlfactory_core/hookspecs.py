"""The hooks that a plugin implements, and the version of this contract.

Each hook is called with ``register(name, factory)``. Factories are called later, and only for the names that a run
uses, so a hook body must do nothing heavy: import inside the factory. The core's own parts register through the same
hooks (`builtin`). What each factory is called with stands in its hook's docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pluggy

__all__ = ["API_VERSION", "Register", "hookimpl"]

PROJECT = "rlfactory"  # pluggy's project name and the entry-point group
API_VERSION = "1.1"  # a plugin's RLFACTORY_API specifier must contain it

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Register(Protocol):
    """Given to each hook; the registry knows which distribution is calling."""

    def __call__(self, name: str, factory: Callable[..., Any]) -> None: ...


class Hookspecs:
    """pluggy reads these; nobody calls them directly."""

    @hookspec
    def rlfactory_tasks(self, register: Register) -> None:
        """``factory(config: dict, seed: int) -> Task``; a `Task` subclass is such a factory."""

    @hookspec
    def rlfactory_envs(self, register: Register) -> None:
        """``factory(sample, manager, context) -> Env``; ``env=NAME`` uses it instead of the task's own."""

    @hookspec
    def rlfactory_tool_managers(self, register: Register) -> None:
        """``factory(tools, config: ToolsConfig, count_tokens: Callable[[str], int]) -> ToolManager``."""

    @hookspec
    def rlfactory_reward_scorers(self, register: Register) -> None:
        """``factory(**options) -> RewardScorer | GroupScorer``; options stand beside name and weight in the config. One
        that holds something, such as a client, also has `protocols.Opened`'s ``open(task)`` and ``close()``."""

    @hookspec
    def rlfactory_verifiers(self, register: Register) -> None:
        """``factory(**options) -> Verifier``, as for scorers. As a reward it scores 1 for passed and 0 for failed."""

    @hookspec
    def rlfactory_chat_formats(self, register: Register) -> None:
        """``factory(tokenizer, thinking: bool) -> ChatFormat`` with ``factory.matches(chat_template: str) -> bool``."""

    @hookspec
    def rlfactory_engines(self, register: Register) -> None:
        """``factory() -> Engine``; with ``factory.adapt(defaults) -> defaults`` where an engine cannot honour all of a
        task's own defaults (nested plain data), which were chosen with the local one."""

    @hookspec
    def rlfactory_commands(self, register: Register) -> None:
        """``factory() -> click.Command``, reached as ``rlfactory NAME …``; NAME is the plugin's own name."""

    @hookspec
    def rlfactory_config_sections(self, register: Register) -> None:
        """Not a factory but the schema: a `Section` subclass, or a `Lazy` one.

        In YAML ``plugins: {NAME: {…}}``, on the command line ``plugins.NAME.KEY=VALUE``, checked like any other. Read
        from ``task.run.sections[NAME]``, by engines from ``run.registry.sections(run.config)[NAME]``.
        """

    @hookspec
    def rlfactory_report_sections(self, register: Register) -> None:
        """``factory(run: reporting.RunData) -> reporting.Section | None``, a part of ``report.html`` of every run that
        uses the plugin, also of one that was stopped; None where the run has nothing to show."""

    @hookspec
    def rlfactory_recipes(self, register: Register) -> None:
        """``factory() -> Path`` of a YAML file; ``--recipe NAME`` takes it, below ``--config`` and the command line."""
