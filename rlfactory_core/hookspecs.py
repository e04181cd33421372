"""The hooks that a plugin implements, and the version of this interface.

A hook gets the function ``register(name, factory)``. A factory is called later, and only if a run uses its name, so
heavy imports belong inside the factory. Each hook's docstring has the factory's arguments. The core registers its own
parts through the same hooks (`builtin`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pluggy

__all__ = ["API_VERSION", "Register", "hookimpl"]

PROJECT = "rlfactory"  # pluggy's project name and the entry-point group
API_VERSION = "1.0"  # a plugin's RLFACTORY_API specifier must contain it

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Register(Protocol):
    """The argument of each hook."""

    def __call__(self, name: str, factory: Callable[..., Any]) -> None: ...


class Hookspecs:
    """The declarations that pluggy reads."""

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
    def rlfactory_tool_sources(self, register: Register) -> None:
        """``factory(given) -> protocols.ToolSource``, whose tools are added to the task's. ``given`` is the value of
        the key ``tools.NAME``. Optional attributes of the factory: `tools.ToolSourceFactoryTraits`."""

    @hookspec
    def rlfactory_reward_scorers(self, register: Register) -> None:
        """``factory(**options) -> RewardScorer | GroupScorer``; the configuration has the options beside name and
        weight. A scorer with a resource, such as a client, has ``open(task)`` and ``close()``: `tasks.ScorerLifecycle`.
        Optional attributes: `protocols.ScorerTraits`; of the factory: `protocols.RewardFactoryTraits`."""

    @hookspec
    def rlfactory_verifiers(self, register: Register) -> None:
        """``factory(**options) -> Verifier``, as for scorers. As a reward it scores 1 for passed and 0 for failed."""

    @hookspec
    def rlfactory_chat_formats(self, register: Register) -> None:
        """``factory(tokenizer, thinking: bool) -> ChatFormat``. Optional attributes of the factory, such as
        ``matches(chat_template: str) -> bool``: `protocols.ChatFormatFactoryTraits`."""

    @hookspec
    def rlfactory_engines(self, register: Register) -> None:
        """``factory() -> Engine``; optional attributes: `engines.EngineFactoryTraits` and `engines.EngineTraits`."""

    @hookspec
    def rlfactory_agent_players(self, register: Register) -> None:
        """``factory(agent, config: AgentConfig) -> AgentPlayer``, under the name ``agents``: plays the attempts of a
        task with a loop of its own. ``agent`` is the task's method, and ``config`` may name a program instead. The
        types are in `rlfactory_core.gateway`."""

    @hookspec
    def rlfactory_advantages(self, register: Register) -> None:
        """Takes an `algo.advantages.Advantage` instead of a factory: ``advantage(trajectories, credit)`` gives each
        attempt of a group one number for each turn. For ``train.advantage``, with the embedded engine."""

    @hookspec
    def rlfactory_loss_functions(self, register: Register) -> None:
        """Takes a policy loss instead of a factory: ``loss(tokens: Tokens, clip: Clip) -> TokenLoss``, with tensors of
        PyTorch. For ``train.loss``, with the embedded engine; the types are in `rlfactory_core.engines`."""

    @hookspec
    def rlfactory_prompt_samplers(self, register: Register) -> None:
        """``factory(samples: Sequence[Sample], per_step: int, seed: int) -> PromptSampler``, for ``train.prompts``; the
        protocol is in `algo.prompts`."""

    @hookspec
    def rlfactory_commands(self, register: Register) -> None:
        """``factory() -> click.Command`` for ``rlfactory NAME …``; NAME is the plugin's name."""

    @hookspec
    def rlfactory_config_sections(self, register: Register) -> None:
        """Takes a `Section` subclass, or a `Lazy` one, instead of a factory.

        Users set it with ``plugins: {NAME: {…}}`` in YAML or ``plugins.NAME.KEY=VALUE`` on the command line. A task
        reads ``task.run.sections[NAME]``, an engine ``run.sections[NAME]``. An `EngineSection` has
        an engine's name, and its keys are ``NAME.KEY``.
        """

    @hookspec
    def rlfactory_report_sections(self, register: Register) -> None:
        """``factory(run: RunData) -> ReportSection | None``, both of `reporting`: a part of ``report.html`` of each run
        that uses the plugin, also of a stopped one; None if the run has nothing to show."""

    @hookspec
    def rlfactory_trajectory_sections(self, register: Register) -> None:
        """``factory(trajectory: Trajectory, config: dict) -> reporting.ReportSection | None``, a part of a trajectory's
        page in ``rlfactory ui``, for runs that use the plugin. ``config`` is the run's, as in ``config.yaml``."""

    @hookspec
    def rlfactory_recipes(self, register: Register) -> None:
        """``factory() -> Path`` of a YAML file for ``--recipe NAME``; ``--config`` and the command line override it."""

    @hookspec
    def rlfactory_diagnostics(self, register: Register) -> None:
        """``factory(request: DoctorRequest) -> Iterable[Check]``, lines of ``rlfactory doctor``; both types are in
        `plugins.diagnostics`. Checks with an engine's name are shown by ``rlfactory doctor --engine NAME`` only."""
