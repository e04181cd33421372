"""Plays attempts with an agent that is not ours: a function, or the configuration's program."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

from rlfactory_agents.conversation import Conversation
from rlfactory_agents.function import FunctionAgents
from rlfactory_agents.program import ProgramAgents
from rlfactory_agents.server import Gateway
from rlfactory_core.gateway import Agent, AgentConfig, AgentError, AgentResult, Endpoint
from rlfactory_core.protocols import Model
from rlfactory_core.rollout import Episode
from rlfactory_core.tools import error_line, is_infra_error
from rlfactory_core.types import Fault, FaultKind, Sample, StopReason, Trajectory

SOURCE = "agent"  # of its faults
GRACE_S = 10.0  # in which an agent may still answer after a limit of the run has refused its request


class Player:
    """A `gateway.AgentPlayer`, with a gateway of its own.

    Args:
        function: the agent, unless the configuration has a program.

    Raises:
        ConfigError: the agent's command cannot be used.
    """

    def __init__(self, function: Callable[[Sample, Endpoint], Any], config: AgentConfig) -> None:
        self._deadline_s = config.deadline_s
        # The deadline of an attempt begins when its program can start.
        self._room = asyncio.Semaphore(config.workers or config.concurrency) if config.command else nullcontext()
        self._gateway = Gateway()
        self._agent: FunctionAgents | ProgramAgents = (
            ProgramAgents(config.command, config.environment, config.workers)
            if config.command
            else FunctionAgents(function)
        )

    async def open(self) -> None:
        """Start the gateway."""
        await self._gateway.open()

    async def close(self) -> None:
        """End what is left of the agents, and the gateway; it may be called before `open`, and repeatedly."""
        await self._agent.close()
        await self._gateway.close()

    async def play(self, episode: Episode, model: Model) -> Trajectory:
        """One attempt, not scored; see `play_agent`."""
        async with self._room:
            return await play_agent(episode, self._agent, model, self._gateway, self._deadline_s)


async def play_agent(episode: Episode, agent: Agent, model: Model, gateway: Gateway, deadline_s: float) -> Trajectory:
    """One attempt at a sample by an agent that asks the model through the gateway.

    The agent's answer is the trajectory's. Faults:

    - An agent that raises, or gives no answer, or never asks the model, has failed (kind ``agent``): there is no
      answer, and the trajectory is scored so. If a limit of the run ended it, that limit is the stop reason. After the
      limit it has `GRACE_S` to answer.
    - Connection errors, by their type, a model that does not answer, and an agent that is not done in time are infra
      faults, which mask the trajectory.

    Raises:
        ValueError: the sampler returned different numbers of ids and log-probs.
    """
    started = time.perf_counter()
    end = asyncio.get_running_loop().time() + deadline_s
    deadline = asyncio.timeout_at(end)

    def limited(stop: StopReason | None) -> None:
        with suppress(RuntimeError):  # it has expired, or the agent has just ended
            soon = asyncio.get_running_loop().time() + GRACE_S
            deadline.reschedule(end if stop is None else min(deadline.when() or end, soon))

    conversation = Conversation(episode, model, limited)
    result, fault = AgentResult(None), None
    try:
        with gateway.serving(conversation) as endpoint:
            async with deadline:
                result = AgentResult.of(await agent(episode.sample, endpoint))
    except TimeoutError as error:
        late = deadline.expired()
        message = f"not done within {deadline_s:g} s (agent.deadline_s)" if late else error_line(error)
        kind = FaultKind.AGENT if late and conversation.stop is not None else FaultKind.INFRA
        fault = Fault(kind, SOURCE, message, code="late" if late else "crashed")
    except Exception as error:  # noqa: BLE001 the boundary to the user's agent
        kind = FaultKind.INFRA if is_infra_error(error) else FaultKind.AGENT
        said = str(error) if isinstance(error, AgentError) else error_line(error)
        fault = Fault(kind, SOURCE, said, code="crashed")
    finally:
        await conversation.close()
    fault = conversation.fault or fault or _without_answer(conversation, result)
    if not conversation.turns and conversation.stop is StopReason.LENGTH:
        fault = episode.limits.no_room()
    if fault is not None and fault.turn < 0:
        fault = replace(fault, turn=max(len(conversation.turns) - 1, 0))
    return _trajectory(episode, conversation, result, fault, time.perf_counter() - started)


def _without_answer(conversation: Conversation, result: AgentResult) -> Fault | None:
    if not conversation.turns:
        return Fault(FaultKind.AGENT, SOURCE, "it never asked the model")
    if result.answer is None:
        return Fault(FaultKind.AGENT, SOURCE, "it ended without an answer")
    return None


def _trajectory(
    episode: Episode, conversation: Conversation, result: AgentResult, fault: Fault | None, seconds: float
) -> Trajectory:
    turns = conversation.turns
    failed = fault is not None and fault.kind is FaultKind.AGENT
    if failed and conversation.stop is not None:  # the run's limit ended it, which is nobody's fault
        fault, stop = None, conversation.stop
    elif fault is None:
        stop = conversation.stop or StopReason.FINAL_ANSWER  # an agent may answer after the run's limit refused it
    else:
        stop = StopReason.AGENT_FAILED if failed else StopReason.FAULT
    answered = fault is None and not failed
    if turns and answered and result.reward:
        turns = (*turns[:-1], replace(turns[-1], reward=result.reward))
    return Trajectory(
        episode.sample,
        episode.attempt,
        turns,
        stop,
        () if fault is None else (fault,),
        seconds=seconds,
        tools=conversation.tools,
        info=_info(conversation, result),
        answer=result.answer if answered else None,
    )


def _info(conversation: Conversation, result: AgentResult) -> dict[str, Any]:
    forks = Counter(turn.fork for turn in conversation.turns if turn.fork)
    own = {"forks": dict(forks), "overridden": dict(conversation.overridden)}
    return {**result.metadata, **{name: counts for name, counts in own.items() if counts}}
