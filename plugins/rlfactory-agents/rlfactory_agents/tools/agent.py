"""Agents as tools: a call runs a rollout with a model, tools and budgets of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from rlfactory_agents.tools.model import DelegateSource, connected, name_call
from rlfactory_core import ToolContext
from rlfactory_core.clients import ServerModel
from rlfactory_core.errors import ToolError, ToolUnavailableError
from rlfactory_core.protocols import Env, Model, Request, Sampled, Tool, ToolManager, ToolSource
from rlfactory_core.rollout import Episode, RolloutLimits, ToolEnv, rollout
from rlfactory_core.settings import validate_section
from rlfactory_core.tools import DefaultToolManager, OpenTools, ToolsConfig
from rlfactory_core.types import FaultKind, Message, Sample, StopReason, ToolSpec, Trajectory
from rlfactory_core.utils.seeds import derive_seed

_log = logging.getLogger(__name__)

_DEPTH_LEFT = "delegates.depth_left"  # key in the context's state: how many more agents may be nested
_PARAMETERS = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "What to do or find out, with all the information it needs: nothing else is passed on.",
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
    """An agent that the policy can give a task, and that answers when it is done; for a task's ``tools``.

        agent_tool("researcher", "http://127.0.0.1:8000/v1", "Qwen/Qwen3-8B", [search, fetch],
                   description="Finds out about one subject and reports.", system="Answer in one paragraph.")

    The policy sees one argument, ``task``, and the agent's last message. The agent's turns, calls and tokens are logged
    at debug level. If the agent runs out of a budget, the call is a tool fault, with the agent's last message. An infra
    fault within the agent (its endpoint, one of its tools) is an infra fault of the call. Each call is an episode of
    its own: the agent's tools get a `ToolContext` with the trajectory's sample, an id below the trajectory's and a
    state of its own.

    Args:
        tools: as a task's tools: functions marked with ``@tool``, sources, other agents; started with the run.
        description: for the policy; by default it says that the agent works on a task, and with which tools.
        system: a system message before the task.
        max_turns, max_tool_calls: of the agent, in one call.
        max_turn_tokens: sampled in one turn.
        max_tokens: of the conversation, as the endpoint counts.
        max_depth: how many agents may be nested from this one down, itself included. The smallest limit on the way
            counts; a call beyond it is refused.
        temperature: each call is sampled with a seed derived from the trajectory and the call's number.
        limits: for the calls to the agent's tools: keys of the configuration's ``tools`` section.
        api_key: by default as `clients.OpenAIClient` says.
        deadline_s: seconds for one call; an override in the configuration takes precedence.

    Raises:
        ConfigError: ``limits`` does not fit.
    """
    config = validate_section(ToolsConfig, limits or {}, prefix=f"agent_tool('{name}').limits")
    budget = RolloutLimits(max_turns, max_tool_calls, max_turn_tokens, max_tokens)
    plan = Agent(name, description, system, budget, max_depth, temperature, deadline_s)

    async def start(opened: AsyncExitStack, group: str) -> Tool:
        sources = OpenTools(group)
        opened.push_async_callback(sources.close)
        await sources.open(tools)
        manager = DefaultToolManager(sources.tools, config)
        opened.push_async_callback(manager.close)
        client = await connected(opened, name, base_url, model, api_key, manager.specs)
        return AgentTool(plan, client, manager)

    return DelegateSource(name, start)


@dataclass(frozen=True, slots=True)
class Agent:
    """The arguments of `agent_tool` that describe the agent."""

    name: str
    description: str | None
    system: str | None
    budget: RolloutLimits
    max_depth: int
    temperature: float
    deadline_s: float


class AgentTool:
    """The tool that `agent_tool` opens."""

    idempotent = False
    stateful = True  # because its tools may be
    version = ""

    def __init__(self, agent: Agent, model: Model, manager: ToolManager) -> None:
        uses = f" with {', '.join(tool.name for tool in manager.specs)}" if manager.specs else ""
        general = f"An agent that works on a task by itself{uses} and reports what it found."
        self.spec = ToolSpec(agent.name, agent.description or general, _PARAMETERS)
        self.deadline_s: float | None = agent.deadline_s
        self._agent, self._model, self._manager = agent, model, manager

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """The agent's answer; see `protocols.Tool`."""
        agent = self._agent
        depth_left = min(context.state.get(_DEPTH_LEFT, agent.max_depth), agent.max_depth)
        if depth_left <= 0:
            raise ToolError(f"{agent.name} cannot be called from here: too many agents are nested.")

        def make_env(sample: Sample, inner: ToolContext) -> Env:
            inner.state[_DEPTH_LEFT] = depth_left - 1
            return ToolEnv(sample, self._manager, inner)

        session = name_call(context, agent.name)
        system = () if agent.system is None else (Message("system", agent.system),)
        sample = replace(context.sample, prompt=(*system, Message("user", arguments["task"])))
        seed = derive_seed(session)
        episode = Episode(sample, make_env, agent.budget, session, temperature=agent.temperature, seed=seed)
        model = _Counting(self._model)
        try:
            return _answer(agent, await rollout(episode, model))
        finally:
            _log.debug("%s: %s turns, %s tokens read, %s sampled", session, model.turns, model.read, model.sampled)

    async def close(self) -> None:
        """The client and the tools are closed with the source."""


def _answer(agent: Agent, trajectory: Trajectory) -> str:
    """The answer for the policy.

    Raises:
        ToolError: there is no answer, or none within the budget.
        ToolUnavailableError: an infra fault masks the agent's trajectory.
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


class _Counting(ServerModel):
    """A model behind a server; the turns and tokens of one episode are counted."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.turns = self.read = self.sampled = 0

    async def answer(self, request: Request) -> Sampled | None:
        sampled = await self._model.answer(request)
        if sampled is not None:
            self.turns += 1
            self.read += sampled.prompt_tokens
            self.sampled += sampled.sampled_tokens
        return sampled
