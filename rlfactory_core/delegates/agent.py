"""An agent as a tool: a rollout within a call, with a model, tools and budgets of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from rlfactory_core.chat_rollout import chat_rollout
from rlfactory_core.clients.base import ChatClient, Completion
from rlfactory_core.config import ToolsConfig
from rlfactory_core.config_load import validate_section
from rlfactory_core.delegates.source import DelegateSource, Endpoint, name_call
from rlfactory_core.env import ToolEnv
from rlfactory_core.errors import ToolError, ToolUnavailableError
from rlfactory_core.protocols import Env, Tool, ToolManager, ToolSource
from rlfactory_core.rollout import Episode, RolloutLimits, derive_seed
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.tools.manager import DefaultToolManager
from rlfactory_core.tools.opening import OpenTools
from rlfactory_core.types import FaultKind, Message, Sample, SamplingParams, StopReason, ToolSpec, Trajectory

_log = logging.getLogger(__name__)

_DEPTH_LEFT = "delegates.depth_left"  # in the context's state: how many more agents may stand inside each other
_PARAMETERS = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "What to do or find out, with all that one needs to know for it: nothing else is passed on.",
        }
    },
    "required": ["task"],
    "additionalProperties": False,
}


def agent_tool(  # noqa: PLR0913 - one flat list of options, all but four have a default
    name: str,
    base_url: str,
    model: str,
    tools: Sequence[Any],
    *,
    description: str | None = None,
    system: str | None = None,
    max_turns: int = 8,
    max_tool_calls: int = 16,
    max_turn_tokens: int = 1024,
    max_tokens: int = 16384,
    max_depth: int = 2,
    temperature: float = 0.7,
    limits: Mapping[str, Any] | None = None,
    api_key: str | None = None,
    deadline_s: float = 300.0,
) -> ToolSource:
    """A helper that the policy gives a task and that answers when it is done, for a task's ``tools``.

        agent_tool("researcher", "http://127.0.0.1:8000/v1", "Qwen/Qwen3-8B", [search, fetch],
                   description="Finds out about one subject and reports.", system="Answer in one paragraph.")

    The policy sees one argument, ``task``, and the agent's last message. Of what goes on between, turns, calls and
    tokens are in the log at debug level. An agent that runs out of a budget is a tool fault, with its last words; an
    infra fault within it (its endpoint, one of its tools) is one of the call. Each call is an episode of its own: its
    tools see a `ToolContext` with the trajectory's sample, an id below the trajectory's and a state of its own.

    Args:
        tools: as a task's: functions marked with ``@tool``, sources, other agents; started with the run.
        description: what the policy is told of the agent; by default that it works on a task, and with which tools.
        system: a system message before the task.
        max_turns, max_tool_calls: of the agent, in one call.
        max_turn_tokens: sampled in one turn.
        max_tokens: of the conversation, as the endpoint counts.
        max_depth: how many agents may stand inside each other from this one down, itself included; each agent on the
            way has its say. A call beyond is refused.
        temperature: each call is sampled with a seed that the trajectory and the call's number determine.
        limits: how the agent's tools are called: keys of the configuration's ``tools`` section.
        api_key: by default the first of `clients.openai.KEY_VARIABLES` that is set.
        deadline_s: seconds for one call, where the configuration gives none for this tool by name.

    Raises:
        ConfigError: ``limits`` does not fit.
    """
    config = validate_section(ToolsConfig, limits or {}, prefix=f"agent_tool('{name}').limits")
    budget = RolloutLimits(max_turns, max_tool_calls, max_turn_tokens, max_tokens)
    plan = Agent(name, description, system, budget, max_depth, temperature, deadline_s)
    endpoint = Endpoint(name, base_url, model, api_key)

    async def start(opened: AsyncExitStack, group: str) -> Tool:
        sources = OpenTools(group)
        opened.push_async_callback(sources.close)
        await sources.open(tools)
        manager = DefaultToolManager(sources.tools, config)
        opened.push_async_callback(manager.close)
        return AgentTool(plan, await endpoint.connect(opened, manager.specs), manager)

    return DelegateSource(name, start)


@dataclass(frozen=True, slots=True)
class Agent:
    """What `agent_tool` was told."""

    name: str
    description: str | None
    system: str | None
    budget: RolloutLimits
    max_depth: int
    temperature: float
    deadline_s: float


class AgentTool:
    """What `agent_tool` opens to."""

    idempotent = False
    stateful = True  # as far as one can tell, its tools are
    version = ""

    def __init__(self, agent: Agent, client: ChatClient, manager: ToolManager) -> None:
        self.spec = ToolSpec(agent.name, agent.description or _described(manager.specs), _PARAMETERS)
        self.deadline_s: float | None = agent.deadline_s
        self._agent, self._client, self._manager = agent, client, manager

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """The agent's answer; see `protocols.Tool`."""
        agent = self._agent
        depth_left = min(context.state.get(_DEPTH_LEFT, agent.max_depth), agent.max_depth)
        if depth_left <= 0:
            raise ToolError(f"{agent.name} cannot be asked from here: too many agents stand inside each other.")

        def make_env(sample: Sample, inner: ToolContext) -> Env:
            inner.state[_DEPTH_LEFT] = depth_left - 1
            return ToolEnv(sample, self._manager, inner)

        session = name_call(context, agent.name)
        system = () if agent.system is None else (Message("system", agent.system),)
        sample = replace(context.sample, prompt=(*system, Message("user", arguments["task"])))
        seed = derive_seed(session)
        episode = Episode(sample, make_env, agent.budget, session, temperature=agent.temperature, seed=seed)
        client = _Counting(self._client)
        try:
            return _answer(agent, await chat_rollout(episode, client))
        finally:
            _log.debug("%s: %s turns, %s tokens read, %s sampled", session, client.turns, client.read, client.sampled)

    async def close(self) -> None:
        """The client and the tools are closed with the source."""


def _described(tools: Sequence[ToolSpec]) -> str:
    names = ", ".join(tool.name for tool in tools)
    return f"An agent that works on a task by itself{f' with {names}' if names else ''} and reports what it found."


def _answer(agent: Agent, trajectory: Trajectory) -> str:
    """What the policy gets to see.

    Raises:
        ToolError: no answer, or none within the budget.
        ToolUnavailableError: an infra fault spoilt it.
    """
    _log.debug("%s stopped with %s after %s calls", agent.name, trajectory.stop.value, trajectory.num_tool_calls)
    fault = next((fault for fault in trajectory.faults if fault.kind is FaultKind.INFRA), None)
    if fault is not None:
        raise ToolUnavailableError(f"{fault.source}: {fault.message}")
    said = [turn.message.content for turn in trajectory.turns if turn.message.content]
    spent = {
        StopReason.MAX_TURNS: f"its {agent.budget.max_turns} turns",
        StopReason.TOOL_BUDGET: f"its {agent.budget.max_tool_calls} tool calls",
        StopReason.LENGTH: "its tokens",
    }.get(trajectory.stop)
    if spent is not None:
        words = f" Its last words: {said[-1]}" if said else ""
        raise ToolError(f"{agent.name} ran out of {spent} before it was done.{words}")
    if not trajectory.turns[-1].message.content:
        raise ToolError(f"{agent.name} gave no answer.")
    return said[-1]


class _Counting:
    """A client that knows what one episode used."""

    def __init__(self, client: ChatClient) -> None:
        self._client = client
        self.turns = self.read = self.sampled = 0

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: SamplingParams
    ) -> Completion | None:
        completion = await self._client.complete(messages, tools, params)
        if completion is not None:
            self.turns += 1
            self.read += completion.prompt_tokens
            self.sampled += completion.sampled_tokens
        return completion
