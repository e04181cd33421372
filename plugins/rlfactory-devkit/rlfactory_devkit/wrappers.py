"""Base classes that pass every call on to a real tool or environment; a subclass changes single methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from rlfactory_core import ToolContext
from rlfactory_core.protocols import Env, EnvStart, EnvStep, Tool
from rlfactory_core.rollout import ask_env
from rlfactory_core.types import Message


class ToolWrapper:
    """A `Tool` with the attributes of another one, which it calls."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.spec, self.version, self.deadline_s = tool.spec, tool.version, tool.deadline_s
        self.idempotent, self.stateful = tool.idempotent, tool.stateful

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        return await self._tool.call(arguments, context)

    async def close(self) -> None:
        await self._tool.close()


class EnvWrapper:
    """An `Env` that plays another one, the one given to `around`."""

    _env: Env

    def around(self, env: Env) -> Self:
        self._env = env
        return self

    async def start(self) -> EnvStart:
        return await ask_env(self._env, "start", EnvStart)

    async def step(self, message: Message) -> EnvStep:
        return await ask_env(self._env, "step", EnvStep, message)

    async def close(self) -> None:
        await ask_env(self._env, "close", object)
