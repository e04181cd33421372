"""The task ``openenv``: episodes on OpenEnv servers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from rlfactory_core import Message, Sample, ToolContext
from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import Env, ToolManager
from rlfactory_core.tiny import call
from rlfactory_core.types import ToolSpec
from rlfactory_environments.episodes import ENV_REWARDS, SolverOptions, SolverTask, seed_samples
from rlfactory_environments.openenv.actions import example, read_form
from rlfactory_environments.openenv.description import ServerDescription, describe
from rlfactory_environments.openenv.env import EpisodeForm, OpenEnvEnv
from rlfactory_environments.openenv.servers import Servers, Waiting

Seconds = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(gt=0)]


def _as_tuple(value: Any) -> Any:
    """One text, or several with commas between them."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


class OpenEnvTask(SolverTask):
    """Any OpenEnv server. Its environment gives the prompt, the tools and the rewards."""

    class Config(SolverOptions):
        """Options: ``--url``, ``--samples`` and so on, or ``task.NAME=VALUE``."""

        url: Texts = ()
        """The address of a server, such as ``http://127.0.0.1:8000``; several are a pool."""
        samples: Count = 1000
        """Training samples, each a seed for the environment's reset."""
        eval_samples: Count = 50
        """Samples for evaluation, with other seeds."""
        sessions: Count | None = None
        """Sessions at once per server and process; null: as many as the server allows."""
        field: str | None = None
        """The field of the action that gets the whole reply; null: the action's only field, if it is a text."""
        observation: Texts = ()
        """Fields of observations that the model sees, with commas between them; empty: all but metadata."""
        system: str = ""
        """A system message."""
        introduction: str | None = None
        """A text before the first observation; null: the server's description of its environment."""
        reset: dict[str, Any] = {}
        """Further parameters of each reset, such as a difficulty."""
        max_steps: Count | None = None
        """Steps after which an episode ends, for an environment that has no end of its own."""
        token_env: str | None = None
        """The environment variable with a token that the server asks for."""
        request_s: Seconds = 60.0
        """The deadline of one request."""
        connect_s: Seconds = 30.0
        """How long a server that cannot be reached is waited for, while no other episode goes on."""
        queue_s: Seconds = 600.0
        """How long a server that is full because of other programs is waited for."""

    config: Config
    rewards = ENV_REWARDS
    defaults: ClassVar[Mapping[str, Any]] = {"rollout": {"max_turns": 16, "max_tool_calls": 32}}

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        if not self.config.url:
            raise UsageError(
                "The task openenv needs the address of a server: --url http://127.0.0.1:8000. Several are a pool: "
                "--url http://127.0.0.1:8000 --url http://127.0.0.1:8001."
            )
        self.bound(0.0, 1.0)
        self._servers: Servers | None = None
        self._form: EpisodeForm | None = None
        self._offered: tuple[ToolSpec, ...] = ()

    def samples(self, split: str) -> Iterable[Sample]:
        config = self.config
        count = config.eval_samples if split == "eval" else config.samples
        return seed_samples(split, count, config.url[0])

    async def open(self) -> None:
        """
        Raises:
            BackendError: a server does not answer.
            UsageError: servers have different actions.
        """
        config, headers = self.config, self._headers()
        found = await asyncio.gather(
            *(describe(url, deadline_s=config.connect_s, headers=headers) for url in config.url), return_exceptions=True
        )
        described = [each for each in found if isinstance(each, ServerDescription)]
        if not described:
            raise next(each for each in found if isinstance(each, BaseException))
        first = described[0]
        for each in described:
            if each.action != first.action:
                raise UsageError(f"The servers have different actions: {first.name} and {each.name}. Run them apart.")
        self._form = EpisodeForm(
            actions=read_form(first.action, config.field),
            has_tools=bool(first.tools),
            system=config.system,
            introduction=first.text if config.introduction is None else config.introduction,
            fields=config.observation,
            max_steps=config.max_steps,
        )
        self._offered = self._form.actions.offered(first.tools)
        waiting = Waiting(config.request_s, config.connect_s, config.queue_s)
        self._servers = Servers(config.url, most=config.sessions, waiting=waiting, headers=headers)

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        assert self._servers is not None, "the task is not open"
        assert self._form is not None
        seed = {"seed": sample.metadata["seed"]} if "seed" in sample.metadata else {}
        return OpenEnvEnv(self._servers, self._form, {**seed, **self.config.reset, **sample.metadata.get("reset", {})})

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        """What the solver says; without one, an action that fits its schema, or one call and the end."""
        if self.solver is not None:
            return self.solver(sample, messages)
        assert self._form is not None, "the task is not open"
        plays_on = self._form.actions.act is not None or messages[-1].role == "user"
        if self._form.actions.field is None and self._offered and plays_on:
            first = self._offered[0]
            return Message(
                "assistant", "", tool_calls=(call(first.name, **example(first.parameters, first.parameters)),)
            )
        return Message("assistant", "example")

    def demonstrate(self, sample: Sample, messages: Sequence[Message]) -> Message:
        """
        Raises:
            UsageError: there is no solver.
        """
        if self.solver is None:
            raise UsageError(
                "A tiny model learns from a solution first, and an OpenEnv server does not say it: give a model "
                "(--model), or a function that solves the environment (--solver FILE.py:NAME)."
            )
        return self.solver(sample, messages)

    def _headers(self) -> dict[str, str]:
        name = self.config.token_env
        if name is None:
            return {}
        if not (token := os.environ.get(name)):
            raise UsageError(f"task.token_env names the variable {name}, which is not set.")
        return {"Authorization": f"Bearer {token}"}
