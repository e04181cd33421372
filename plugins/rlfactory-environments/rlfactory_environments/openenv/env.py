"""One episode in an OpenEnv server's environment."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import BackendError, nearest
from rlfactory_core.protocols import EnvStart, EnvStep
from rlfactory_core.types import FaultKind, Message, StopReason, ToolCall, ToolResult, ToolSpec
from rlfactory_environments.episodes import observation_text
from rlfactory_environments.openenv.actions import ActionForm
from rlfactory_environments.openenv.results import ToolAnswer, read_mcp_result, read_tool_observation
from rlfactory_environments.openenv.servers import Servers
from rlfactory_environments.openenv.session import Observed, Refusal, Session

_HIDDEN = ("metadata",)  # of an observation: notes for people, which may hold the answer
_MOST_CHARS = 2_000  # of an error message


@dataclass(frozen=True, slots=True)
class EpisodeForm:
    """What all episodes of a task share."""

    actions: ActionForm
    has_tools: bool  # whether the environment has tools by MCP
    system: str = ""  # the system message
    introduction: str = ""  # stands before the first observation
    fields: tuple[str, ...] = ()  # of an observation that are shown; empty: all
    max_steps: int | None = None  # after which an episode is over, where the environment has no end of its own


class OpenEnvEnv:
    """An episode; a session is leased at its start.

    Args:
        parameters: of the reset, such as the seed.
    """

    deadline_s = math.inf  # each call ends by itself

    def __init__(self, servers: Servers, form: EpisodeForm, parameters: Mapping[str, Any]) -> None:
        self._servers, self._form, self._parameters = servers, form, parameters
        self._open = AsyncExitStack()
        self._session: Session
        self._tools: tuple[ToolSpec, ...] = ()
        self._taken = 0  # steps

    async def start(self) -> EnvStart:
        """
        Raises:
            BackendError: no server could be had, or the environment cannot begin.
        """
        form = self._form
        self._session, begun = await self._open.enter_async_context(self._servers.lease(self._parameters))
        if begun.done:
            raise BackendError(f"{self._session.url}: the environment's episode is over after its reset.")
        if form.has_tools:
            self._tools = await self._session.tools()
        parts = (form.introduction, form.actions.help, self._shown(begun.observation))
        prompt = Message("user", "\n\n".join(part for part in parts if part))
        system = (Message("system", form.system),) if form.system else ()
        return EnvStart((*system, prompt), form.actions.offered(self._tools))

    async def step(self, message: Message) -> EnvStep:
        """
        Raises:
            BackendError: the server failed.
        """
        if message.tool_calls:
            return await self._calls(message.tool_calls)
        if self._form.actions.field is None:
            return EnvStep(stop=StopReason.NO_TOOL_CALL)
        taken = await self._session.step(self._form.actions.text_action(message.content.strip()))
        if isinstance(taken, Refusal):
            refused = _refused(taken)
            failed = ToolResult("", "action", refused.text, refused.fault)
            return EnvStep((Message("user", failed.content),), results=(failed,))
        shown = Message("user", self._shown(taken.observation))
        return EnvStep((shown,), StopReason.ENV_DONE if self._ends(taken) else None, taken.reward)

    async def close(self) -> None:
        """End the session. A broken connection raises nothing."""
        await self._open.aclose()

    async def _calls(self, calls: Sequence[ToolCall]) -> EnvStep:
        """Make the calls of a turn one after the other, until the episode ends."""
        results: list[ToolResult] = []
        reward, done = 0.0, False
        for call in calls:
            if done:
                over = "Error: the episode was over before this call"
                results.append(ToolResult(call.id, call.name, over, FaultKind.POLICY, attempts=0))
                continue
            before = time.perf_counter()
            answer, taken = await self._call(call)
            latency = time.perf_counter() - before
            size = len(answer.text.encode())
            results.append(ToolResult(call.id, call.name, answer.text, answer.fault, latency, size_bytes=size))
            if answer.fault is FaultKind.INFRA:
                return _step(results, StopReason.FAULT, reward)
            if taken is not None:
                reward, done = reward + taken.reward, self._ends(taken)
        return _step(results, StopReason.ENV_DONE if done else None, reward)

    async def _call(self, call: ToolCall) -> tuple[ToolAnswer, Observed | None]:
        """The result of a call, and the environment's response if the call was a step."""
        form, known = self._form.actions, [tool.name for tool in self._form.actions.offered(self._tools)]
        if call.error is not None or call.name not in known:
            problem = call.error or f"there is no tool {call.name[:64]!r}. {nearest(call.name[:64], known)}"
            return ToolAnswer(f"Error: {problem}", FaultKind.POLICY), None
        action = form.call_action(call)
        if action is None:
            answered = await self._session.call(call.name, call.arguments or {})
            return (_refused(answered) if isinstance(answered, Refusal) else read_mcp_result(answered)), None
        taken = await self._session.step(action)
        if isinstance(taken, Refusal):
            return _refused(taken), None
        if form.mcp_steps:
            return read_tool_observation(taken.observation), taken
        return ToolAnswer(self._shown(taken.observation)), taken

    def _ends(self, taken: Observed) -> bool:
        self._taken += 1
        return taken.done or self._taken == self._form.max_steps

    def _shown(self, observation: Mapping[str, Any]) -> str:
        kept = {key: value for key, value in observation.items() if key in self._form.fields or key not in _HIDDEN}
        return observation_text(kept, self._form.fields)


def _step(results: Sequence[ToolResult], stop: StopReason | None, reward: float) -> EnvStep:
    read = (Message("tool", each.content, tool_call_id=each.call_id, name=each.name) for each in results)
    return EnvStep(tuple(read), stop, reward, tuple(results))


def _refused(refusal: Refusal) -> ToolAnswer:
    return ToolAnswer(f"Error: {refusal.text[:_MOST_CHARS]}", FaultKind.POLICY if refusal.invalid else FaultKind.TOOL)
