"""A tool and an environment that pass every call on to a real one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory_core import ToolContext
from rlfactory_core.protocols import Env, EnvStart, EnvStep, Tool
from rlfactory_core.rollout import ask_env
from rlfactory_core.types import Message

Around = Callable[[str, Awaitable[Any]], Awaitable[Any]]
"""Awaits a call of the wrapped object. It also gets the name of the method."""


class ToolWrapper:
    """A `Tool` with the attributes of another one, which it calls."""

    def __init__(self, tool: Tool, around: Around | None = None) -> None:
        self._tool, self._around = tool, around
        self.spec, self.version, self.deadline_s = tool.spec, tool.version, tool.deadline_s
        self.idempotent, self.stateful = tool.idempotent, tool.stateful

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        called = self._tool.call(arguments, context)
        return await (self._around("call", called) if self._around else called)

    async def close(self) -> None:
        await self._tool.close()


@dataclass(frozen=True, slots=True)
class EnvWrapper:
    """An `Env` that plays another one."""

    env: Env
    around: Around

    async def start(self) -> EnvStart:
        start: EnvStart = await self.around("start", ask_env(self.env, "start", EnvStart))
        return start

    async def step(self, message: Message) -> EnvStep:
        step: EnvStep = await self.around("step", ask_env(self.env, "step", EnvStep, message))
        return step

    async def close(self) -> None:
        await self.around("close", ask_env(self.env, "close", object))
