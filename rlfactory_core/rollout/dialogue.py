"""A second speaker in an episode: a user of another model, or of a script, with whom the policy talks.

The user is asked as a `protocols.Model`, like the policy. What it says reaches the policy as observations, so its
tokens are never in the policy's loss. Its turns are kept as `types.Turn`, for a trainer that learns from them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlfactory_core.clients import OpenAIClient
from rlfactory_core.context import ToolContext
from rlfactory_core.errors import BackendError
from rlfactory_core.protocols import EnvStart, EnvStep, Model, Request, Sampled, ToolManager
from rlfactory_core.rollout.settings import UserOptions
from rlfactory_core.rollout.tool_env import ToolEnv, has_answer_tag
from rlfactory_core.types import (
    FaultKind,
    Message,
    Sample,
    SamplingParams,
    StopReason,
    ToolCall,
    ToolResult,
    ToolSpec,
    Turn,
)
from rlfactory_core.utils.display import shortened
from rlfactory_core.utils.seeds import derive_seed

USER_STOP = "###STOP###"
"""The token with which a user ends the conversation, unless its `Persona` has others."""
SOURCE = "user"  # of its faults
_BEGIN = Message("user", "(The conversation begins. Write your first message.)")
_ASKED_AGAIN = 0.7  # the temperature; a greedy model would say the same again


@dataclass(frozen=True, slots=True)
class Persona:
    """Who the user is, what it can do, and its limits."""

    system: str  # its system prompt: who it is, what it wants, and when it writes a stop token
    stops: tuple[str, ...] = (USER_STOP,)  # a message with one of them is its last
    tools: ToolManager | None = None  # of its own, which the policy does not see
    temperature: float = 0.0
    max_turn_tokens: int = 512
    max_calls: int = 16  # turns with calls of its own tools before it says something
    repeats: int = 2  # how often it is asked again if it breaks its role


@dataclass(frozen=True, slots=True)
class UserReply:
    """What the user says."""

    text: str
    last: bool  # it holds a stop token


class SimulatedUser:
    """The user of one episode, with the conversation as it sees it.

    There its own words are the assistant's and the policy's words the user's; calls and results of the policy's tools
    are hidden from it. The model gets its system prompt, this conversation, and its tools. A model with a chat format
    gets exact ids, too: each turn is asked with the whole rendered conversation, and is a row of its own.

    Args:
        context: of the episode, for the user's tools; its ``trajectory_id`` goes into the user's seeds.
    """

    def __init__(self, model: Model, persona: Persona, context: ToolContext) -> None:
        self._model, self._persona, self._context = model, persona, context
        self._conversation: list[Message] = []  # as the user sees it
        self._tools = persona.tools.specs if persona.tools is not None else ()
        self.turns: list[Turn] = []  # all that it was asked for, also what broke its role
        self.log: list[Mapping[str, Any]] = []  # what it has said and called, as JSON data

    def hear(self, message: Message) -> None:
        """Take a message of the policy's conversation: the policy's words, or what the user has said before."""
        if message.role in ("user", "assistant") and message.content and not message.tool_calls:
            self._conversation.append(Message("user" if message.role == "assistant" else "assistant", message.content))

    async def reply(self, said: str = "") -> UserReply:
        """The user's next words, after the calls of its own tools.

        Args:
            said: the policy's words since the last reply; empty: the user speaks first.

        Raises:
            BackendError: the model's server or one of the user's tools does not answer, or the user breaks its role:
                it says nothing, calls a tool that it does not have, or exceeds its limits.
        """
        self.hear(Message("assistant", said))
        for _ in range(self._persona.max_calls + 1):
            message = await self._turn()
            self._conversation.append(message)
            if not message.tool_calls:
                self.log.append({"content": message.content})
                return UserReply(message.content, any(stop in message.content for stop in self._persona.stops))
            self._conversation += await self._call(message.tool_calls)
        raise self._broken(f"it calls tools in more than {self._persona.max_calls} turns and says nothing")

    async def _call(self, calls: Sequence[ToolCall]) -> list[Message]:
        assert self._persona.tools is not None
        results = await self._persona.tools.invoke(calls, self._context)
        for call, result in zip(calls, results, strict=True):
            self.log.append({"call": call.name, "arguments": dict(call.arguments or {}), "result": result.content})
            if result.fault is FaultKind.INFRA:
                raise BackendError(f"The user's tool {result.name} gives no answer: {result.reason or result.content}")
        return [result.message for result in results]

    async def _turn(self) -> Message:
        """A turn that keeps to the role, at the first or a later try."""
        begins = not self._conversation or self._conversation[0].role == "assistant"  # templates refuse that
        messages = (Message("system", self._persona.system), *((_BEGIN,) if begins else ()), *self._conversation)
        problem = ""
        for repeat in range(self._persona.repeats + 1):
            sampled = await self._sample(messages, again=repeat > 0)
            problem = self._problem(sampled)
            if not problem:
                return sampled.message
        raise self._broken(problem)

    async def _sample(self, messages: Sequence[Message], *, again: bool) -> Sampled:
        persona, chat, number = self._persona, self._model.chat, len(self.turns)
        session = f"{self._context.trajectory_id}/user/{number}"
        params = SamplingParams(
            persona.max_turn_tokens,
            max(persona.temperature, _ASKED_AGAIN) if again else persona.temperature,
            stop_token_ids=chat.stop_token_ids if chat is not None else (),
            seed=derive_seed(session),
        )
        ids = chat.initial_ids(messages, self._tools) if chat is not None else ()
        try:
            sampled = await self._model.answer(Request(messages, self._tools, params, ids, session))
        finally:
            await self._model.release(session)
        if sampled is None:
            raise BackendError("The conversation is longer than the context of the user's model.")
        self.turns.append(replace(sampled.turn(ids), row=number, observed=tuple(messages)))
        return sampled

    def _problem(self, sampled: Sampled) -> str:
        """How a turn breaks the role; empty: it does not."""
        message, known = sampled.message, {tool.name for tool in self._tools}
        if sampled.finish == "length":
            return f"its message is longer than {self._persona.max_turn_tokens} tokens"
        if not message.content.strip() and not message.tool_calls:
            return "it says nothing"
        for call in message.tool_calls:
            if call.error is not None or call.arguments is None:
                return f"it writes a call that cannot be read ({shortened(call.error or '')})"
            if call.name not in known:
                return f"it calls {call.name!r:.80}, which is none of its tools ({', '.join(sorted(known)) or 'none'})"
        return ""

    def _broken(self, problem: str) -> BackendError:
        return BackendError(
            f"The user breaks its role: {shortened(problem, 400)}. It was asked {self._persona.repeats + 1} times. A "
            "better model, a clearer system prompt or higher limits for it may help."
        )


class DialogueEnv(ToolEnv):
    """`ToolEnv` with a user: a turn without calls is said to the user, whose answer the policy reads.

    If the sample's prompt ends with the user's words, the policy speaks first, else the user does. The episode ends
    when the user writes a stop token (``ENV_DONE``), when the policy gives a final answer, or when it says nothing
    (``NO_TOOL_CALL``). A user that breaks its role or does not answer is an infra fault, whose source is ``user``.
    ``Trajectory.info["user"]`` has what the user has said and called.
    """

    def __init__(
        self,
        sample: Sample,
        manager: ToolManager,
        context: ToolContext,
        user: SimulatedUser,
        *,
        final_answer: Callable[[str], bool] = has_answer_tag,
    ) -> None:
        super().__init__(sample, manager, context, final_answer=final_answer)
        self._user, self._ends = user, final_answer

    async def start(self) -> EnvStart:
        start = await super().start()
        for message in start.messages:
            self._user.hear(message)
        if start.messages and start.messages[-1].role == "user":
            return start
        reply = await self._user.reply()
        if reply.last:
            raise BackendError("The user breaks its role: it ends the conversation with its first message.")
        return EnvStart((*start.messages, Message("user", reply.text)), start.tools, {SOURCE: tuple(self._user.log)})

    async def step(self, message: Message) -> EnvStep:
        if message.tool_calls or not message.content.strip() or self._ends(message.content):
            return await super().step(message)
        try:
            reply = await self._user.reply(message.content)
        except BackendError as error:
            return user_fault(error)
        stop = StopReason.ENV_DONE if reply.last else None
        return EnvStep((Message("user", reply.text),), stop, info={SOURCE: tuple(self._user.log)})


def user_fault(error: BackendError) -> EnvStep:
    """The last step of an episode whose user does not answer, or breaks its role."""
    return EnvStep(stop=StopReason.FAULT, results=(ToolResult("", SOURCE, "", FaultKind.INFRA, reason=str(error)),))


async def open_user(options: UserOptions, tools: Sequence[ToolSpec] = ()) -> OpenAIClient:
    """The model behind ``--user``, once it has answered a request with these tools; the caller closes it.

    Raises:
        BackendError: nothing answers there, the key is refused, or the model cannot be used with tools.
        UsageError: ``user`` is not an address, or several models are served and none is named.
    """
    client = OpenAIClient(options.user, options.user_model)
    await client.open(tools, choose="with --user-model")
    return client
