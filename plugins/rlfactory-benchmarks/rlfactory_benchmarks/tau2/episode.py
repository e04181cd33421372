"""One attempt: the package's orchestrator, whose agent is the policy and whose user is the core's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rlfactory_benchmarks.tau2.official import MENDED, official, speakers, specs, task
from rlfactory_core import EnvStart, EnvStep, FaultKind, Message, Sample, StopReason, ToolCall, ToolContext, ToolResult
from rlfactory_core.errors import BackendError
from rlfactory_core.protocols import Model
from rlfactory_core.rollout import Persona, SimulatedUser, user_fault
from rlfactory_core.types import ToolSpec

__all__ = ["INFO", "Conversation", "shown"]

INFO = "tau2"  # in the trajectory's info: why the conversation has ended, and its messages
REPEATS = 3  # as often the package asks a model again that says nothing
_KEPT = {"role", "content", "tool_calls", "id", "requestor", "error"}  # of a message
_STOPS = {"max_steps": StopReason.MAX_TURNS, "agent_error": StopReason.NO_TOOL_CALL}  # else ENV_DONE


class _OverError(Exception):
    """The conversation has ended while the user was calling its tools."""


@dataclass(slots=True)
class Conversation:
    """An `Env` around an orchestrator, which is moved step by step, and the `ToolManager` of its user's tools.

    Calls of both speakers are messages of one conversation, which the package's evaluators read.
    """

    sample: Sample
    context: ToolContext
    make_user: Callable[[Any], Model] | None  # the user's model for a task; None: the agent is alone
    temperature: float  # the user's
    max_steps: int  # messages of agent and user, and answers of the environment, as the package counts them
    max_errors: int  # calls that fail, of both
    specs: tuple[ToolSpec, ...] = ()  # the user's tools
    _running: Any = None  # the orchestrator
    _user: SimulatedUser | None = None

    async def start(self) -> EnvStart:
        running = self._running = await asyncio.to_thread(self._prepare)
        messages, tools = self.sample.messages, specs(running.agent)
        if self.make_user is None:
            return EnvStart(messages, tools)
        self.specs = specs(running.user)
        persona = Persona(
            running.user.system_prompt,
            tools=self if self.specs else None,
            temperature=self.temperature,
            max_turn_tokens=1024,
            max_calls=self.max_steps,
            repeats=REPEATS,
        )
        self._user = SimulatedUser(self.make_user(running.task), persona, self.context)
        for message in messages:
            self._user.hear(message)
        if messages[-1].role == "assistant":
            messages = (*messages, *await self._answer_of_user())
        if running.done:
            raise BackendError("The user breaks its role: it ends the conversation before the agent has spoken.")
        return EnvStart(messages, tools)

    async def step(self, message: Message) -> EnvStep:
        running, calls = self._running, message.tool_calls
        results: tuple[ToolResult, ...] = ()
        said: tuple[Message, ...] = ()
        if calls or message.content.strip():
            results = self._say("assistant", message.content, calls)
        else:
            self._end("agent_error")
        if not calls and not running.done:
            try:
                said = await self._answer_of_user(message.content)
            except BackendError as error:
                return user_fault(error)
        seen = (*(result.message for result in results), *said)
        if not running.done:
            return EnvStep(seen, results=results)
        reason = running.termination_reason.value
        rows = [each.model_dump(mode="json", include=_KEPT, exclude_none=True) for each in running.trajectory]
        info = {INFO: {"termination": reason, "messages": rows}}
        return EnvStep(seen, _STOPS.get(reason, StopReason.ENV_DONE), results=results, info=info)

    async def close(self) -> None:
        """Nothing is open."""

    def _prepare(self) -> Any:
        """The orchestrator of the task, with an environment of its own."""
        code, domain, solo = official(), self.sample.metadata["domain"], self.make_user is None
        subject = task(domain, self.sample.metadata["task"])
        environment = code.registry.get_env_constructor(MENDED + domain)(solo_mode=solo)
        who, limits = speakers(domain, subject, solo=solo), (self.max_steps, self.max_errors)
        running = code.orchestrator.Orchestrator(domain, *who, environment, subject, *limits, solo_mode=solo)
        if not solo:
            running.initialize()
        return running

    def _say(self, role: str, text: str, calls: Sequence[ToolCall] = ()) -> tuple[ToolResult, ...]:
        """What the agent (``assistant``) or the user says; the results of its calls, none after ``done``.

        A call that could not be read is for the package one of a tool that does not exist.
        """
        code, running = official(), self._running
        made = [
            code.messages.ToolCall(
                id=call.id,
                name="" if call.arguments is None else call.name,
                arguments=call.arguments or {},
                requestor=role,
            )
            for call in calls
        ]
        is_users = role == "user"
        speaker = running.user if is_users else running.agent
        kind = code.messages.UserMessage if is_users else code.messages.AssistantMessage
        said = kind(role=role, content=text or None, tool_calls=made or None)
        if running.solo_mode and made:
            said = running.agent._check_if_stop_toolcall(said)
        speaker.generate_next_message = lambda _heard, state: (said, state)
        before = len(running.trajectory)
        (running.initialize if running.message is None else running.step)()  # alone, it asks the agent
        if running.to_role == "env":
            running.step()
        if running.step_count >= running.max_steps:
            self._end("max_steps")
        if running.num_errors >= running.max_errors:
            self._end("too_many_errors")
        answers = [each for each in running.trajectory[before:] if each.role == "tool"]
        return tuple(self._result(*each) for each in zip(calls, answers, strict=False))

    def _end(self, reason: str) -> None:
        self._running.done = True
        self._running.termination_reason = official().simulation.TerminationReason(reason)

    def _result(self, call: ToolCall, answer: Any) -> ToolResult:
        if call.arguments is None:
            return ToolResult(call.id, call.name, f"Error: {call.error}", FaultKind.POLICY, attempts=0)
        is_known = call.name in {tool.name for tool in self._running.agent.tools}
        fault = (FaultKind.TOOL if is_known else FaultKind.POLICY) if answer.error else None
        return ToolResult(call.id, call.name, answer.content, fault, size_bytes=len(answer.content))

    async def _answer_of_user(self, said: str = "") -> tuple[Message, ...]:
        """What the user says; nothing where its calls end the conversation."""
        assert self._user is not None
        with suppress(_OverError):
            reply = await self._user.reply(said)
            self._say("user", reply.text)
            return (Message("user", reply.text),)
        return ()

    async def invoke(self, calls: Sequence[ToolCall], context: ToolContext) -> tuple[ToolResult, ...]:
        """Make the user's calls.

        Raises:
            _OverError: they end the conversation.
        """
        results = self._say("user", "", calls)
        if self._running.done:
            raise _OverError
        return results


def shown(message: Any) -> Message:
    """A message of the package as the policy sees it."""
    made = getattr(message, "tool_calls", None) or ()
    calls = tuple(ToolCall(each.id, each.name, json.dumps(each.arguments), each.arguments) for each in made)
    result = {"tool_call_id": message.id} if message.role == "tool" else {}
    return Message(message.role, message.content or "", tool_calls=calls, **result)
