"""Answers the requests of one trajectory's agent, and records what was sampled as turns and rows."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from rlfactory_agents.exchange import ModelAnswer, ModelRequest, RequestError
from rlfactory_agents.keys import Key, joined, rejoined
from rlfactory_agents.past import Past
from rlfactory_agents.reading import opening_ids, read_answer, unsampled_end
from rlfactory_agents.rows import LATE_SYSTEM, REPEATED, End, Place, RowState, place, tools_key
from rlfactory_core.errors import BackendError, ChatFormatError
from rlfactory_core.protocols import Model, Request, Sampled
from rlfactory_core.rollout import Episode
from rlfactory_core.types import Fault, FaultKind, Message, SamplingParams, StopReason, ToolCall, ToolSpec, Turn
from rlfactory_core.utils.aio import gather_all
from rlfactory_core.utils.seeds import derive_seed

MAX_ROWS = 64
"""Of a trajectory. An agent that rewrites its history more often has no end."""
_FULL = (
    "The conversation fills the context of {0.max_tokens} tokens (rollout.max_tokens). maximum context length exceeded."
)
_EDITS = (
    f"This attempt has {MAX_ROWS} separate conversations, which is the most: its agent edits its history again and "
    "again."
)
_LIMITS = {  # the code and the message of a request that a limit of the run refuses
    StopReason.MAX_TURNS: ("turn_limit", "This attempt has had its {0.max_turns} turns (rollout.max_turns)."),
    StopReason.TOOL_BUDGET: (
        "tool_call_limit",
        "This attempt has made more than {0.max_tool_calls} tool calls (rollout.max_tool_calls).",
    ),
    StopReason.LENGTH: ("context_length_exceeded", _FULL),
    StopReason.MAX_ROWS: ("row_limit", _EDITS),
}


@dataclass(slots=True)
class _Pending:
    """A request whose place is known and whose answer is being sampled."""

    row: RowState
    context: tuple[int, ...]  # new ids of the row
    fork: str
    number: int  # of the turn
    keys: list[Key]  # of the request's messages
    observed: tuple[Message, ...]  # as in `Turn`


class Conversation:
    """Everything that one agent says to the model; several requests may be answered at once.

    A limit that is reached refuses the request; `stop` then has the reason. A full context or too many rows refuse only
    this conversation with the model: `stop` is None again once another request is taken.

    Args:
        limited: called with the reason when a limit has refused a request, and with None when one is taken after that.
    """

    def __init__(
        self, episode: Episode, model: Model, limited: Callable[[StopReason | None], None] = lambda _: None
    ) -> None:
        self._episode, self._model, self._limited = episode, model, limited
        self._chat = model.chat
        self._rows: list[RowState] = []
        self._turns: dict[int, Turn] = {}  # by their numbers
        self._requests = 0  # with an answer, or being answered
        self._calls = 0
        self._closed = False
        self.past = Past()
        self.overridden = Counter[str]()  # how often a request set a parameter that the run decides
        self.tools: tuple[ToolSpec, ...] = ()  # of the first request
        self.stop: StopReason | None = None
        self.fault: Fault | None = None  # of the model's server

    @property
    def turns(self) -> tuple[Turn, ...]:
        """In the order of their requests."""
        return tuple(self._turns[number] for number in sorted(self._turns))

    async def answer(self, request: ModelRequest) -> tuple[ModelAnswer, ...]:
        """Sample ``request.n`` answers.

        Raises:
            RequestError: a limit is reached, the chat template does not take the conversation, or the model's server
                does not answer.
        """
        request = replace(request, messages=rejoined(request.messages))
        self.overridden.update(request.overridden)
        return tuple(await gather_all(self._answer(request, number) for number in range(request.n)))

    def count(self, request: ModelRequest) -> int:
        """The number of tokens of a request's prompt.

        Raises:
            RequestError: nobody knows it, or the chat template does not take the conversation.
        """
        if self._chat is None:
            raise RequestError("The model is behind a server, and its tokens are not known here.", 501, "not_supported")
        return len(self._prompt(request))

    async def close(self) -> None:
        """The agent has ended: refuse further requests, and release the sampler's caches."""
        self._closed = True
        for row in self._rows:
            await self._release(row)

    async def _answer(self, request: ModelRequest, number: int) -> ModelAnswer:
        if self._closed:
            raise _ended()
        if self._requests >= self._episode.limits.max_turns:
            raise self._refused(StopReason.MAX_TURNS)
        if self._calls > self._episode.limits.max_tool_calls:
            raise self._refused(StopReason.TOOL_BUDGET)
        pending = self._begin(request, number)
        row = pending.row
        params = self._params(request, len(row.ids) + len(pending.context), pending.number)
        ids = [*row.ids, *pending.context]
        before = time.perf_counter()
        try:
            await self._make_room(row)
            row.held = True
            sampled = await self._model.answer(
                Request(request.messages, request.tools, params, ids, self._session(row))
            )
        except BackendError as error:
            self.fault = self.fault or Fault(FaultKind.INFRA, "model", str(error), pending.number)
            raise RequestError(f"The model does not answer: {error}", 500, "model_unavailable") from error
        except BaseException:  # cancelled: the sampler may still be at it
            await self._release(row)
            raise
        finally:
            row.busy = False
        if sampled is None:
            raise self._refused(StopReason.LENGTH)
        if self._closed:
            raise _ended()
        return self._record(request, pending, sampled, time.perf_counter() - before)

    def _begin(self, request: ModelRequest, number: int) -> _Pending:
        """Find the request's place, and hold it, so that a concurrent request takes another."""
        messages = request.messages[:-1] if request.opening else request.messages
        keys, offered = [Key.of(each) for each in messages], tools_key(request.tools)
        found = place(self._rows, keys, offered)
        if number:  # the second answer to one request
            found = replace(found, fork=REPEATED)
        row, context, fork = self._enter(request, found, keys, offered)
        known = found.end.messages if found.end is not None and row is found.row else 0
        if self._chat is not None and len(row.ids) + len(context) >= self._episode.limits.max_tokens:
            raise self._refused(StopReason.LENGTH)
        if row not in self._rows:
            if len(self._rows) >= MAX_ROWS:
                raise self._refused(StopReason.MAX_ROWS)
            self._rows.append(row)
        row.busy = True
        self._requests += 1
        if self.stop is not None:
            self.stop = None
            self._limited(None)
        self.tools = self.tools or request.tools
        return _Pending(row, context, fork, self._requests - 1, keys, tuple(messages[known:]))

    def _enter(
        self, request: ModelRequest, found: Place, keys: Sequence[Key], offered: str
    ) -> tuple[RowState, tuple[int, ...], str]:
        """The row of a request, the ids that it appends to the row, and why it begins one."""
        new = RowState(len(self._rows), offered, len(keys), list(keys))
        if found.row is None or found.end is None:
            return new, self._prompt(request), found.fork
        added = request.messages[found.end.messages :]
        before = found.row.ids[: found.end.tokens]
        try:
            context = (*found.end.unsampled, *self._observation(added), *opening_ids(self._chat, request.opening))
        except ChatFormatError:  # such messages can only be rendered with the whole conversation
            return new, self._prompt(request), found.fork or LATE_SYSTEM
        if not found.fork:
            return found.row, context, ""
        return new, (*before, *context), found.fork

    def _prompt(self, request: ModelRequest) -> tuple[int, ...]:
        """The ids of a request that is rendered whole."""
        messages = request.messages[:-1] if request.opening else request.messages
        try:
            ids = self._chat.initial_ids(messages, request.tools) if self._chat is not None else ()
            self._check_systems(messages[1:], ids)
            return (*ids, *opening_ids(self._chat, request.opening))
        except ChatFormatError as error:
            raise RequestError(f"{error}") from error

    def _observation(self, messages: Sequence[Message]) -> tuple[int, ...]:
        if self._chat is None:
            return ()
        ids = self._chat.observation_ids([each for each in messages if each.role != "assistant"])
        self._check_systems(messages, ids)
        return ids

    def _check_systems(self, messages: Sequence[Message], ids: Sequence[int]) -> None:
        """Some templates leave out a system message that is not the conversation's first message.

        Raises:
            ChatFormatError: this one does.
        """
        texts = [each.content.strip() for each in messages if each.role == "system"]
        shown = self._chat.decode(ids) if texts and self._chat is not None else ""
        if lost := [text for text in texts if shown and text not in shown]:
            raise ChatFormatError(
                f"The model's chat template does not write this system message after others: {lost[0]!r:.80}. Send it "
                "as the first message, or as one of the user."
            )

    def _record(self, request: ModelRequest, pending: _Pending, sampled: Sampled, seconds: float) -> ModelAnswer:
        row, number, chat = pending.row, pending.number, self._chat
        if chat is not None:
            sampled = read_answer(chat, sampled, request)
        message = _with_ids(sampled.message, number)
        turn = replace(
            sampled.turn(pending.context, row.images),
            message=message,
            sample_s=seconds,
            row=row.index,
            fork=pending.fork,
            observed=pending.observed,
            tools=request.tools if request.tools != self.tools and not row.ends else None,
        )
        row.images = len(sampled.images)
        self._turns[number] = turn
        self._calls += len(message.tool_calls)
        given = _as_given(message, request.stop)
        whole = joined(request.messages[-1], given) if request.opening else given
        row.ids += [*pending.context, *sampled.token_ids]
        row.keys = [*pending.keys, Key.of(whole)]
        unsampled = unsampled_end(chat, sampled) if chat is not None else ()
        row.ends.append(End(len(row.keys), len(row.ids), sampled.finish == "stop", unsampled))
        texts = [chat.decode([each]) for each in sampled.token_ids] if chat is not None else []
        return ModelAnswer(
            given,
            "length" if sampled.finish == "length" else "tool_calls" if given.tool_calls else "stop",
            sampled.prompt_tokens,
            sampled.sampled_tokens,
            tuple(zip(texts, sampled.logprobs, strict=True)) if texts else (),
        )

    def _params(self, request: ModelRequest, used: int, number: int) -> SamplingParams:
        episode, most = self._episode, request.max_tokens
        limit = min(episode.limits.max_turn_tokens, episode.limits.max_tokens - used)
        if most is not None and most > episode.limits.max_turn_tokens:
            self.overridden["max_tokens"] += 1
        return SamplingParams(
            max_tokens=min(most or limit, limit),
            temperature=episode.temperature,
            top_p=episode.top_p,
            stop_token_ids=self._chat.stop_token_ids if self._chat is not None else (),
            seed=derive_seed(episode.seed, number),
        )

    async def _make_room(self, row: RowState) -> None:
        """Release the caches of rows that nobody waits for. One that goes on later is computed again."""
        if row.held or len(self._rows) == 1:
            return
        for other in self._rows:
            if other is not row and other.held and not other.busy:
                await self._release(other)

    async def _release(self, row: RowState) -> None:
        if row.held:
            row.held = False
            await self._model.release(self._session(row))

    def _session(self, row: RowState) -> str:
        return f"{self._episode.session}#{row.index}" if row.index else self._episode.session

    def _refused(self, stop: StopReason) -> RequestError:
        """A limit is reached."""
        self.stop = self.stop or stop
        self._limited(self.stop)
        code, message = _LIMITS[stop]
        return RequestError(message.format(self._episode.limits), code=code)


def _ended() -> RequestError:
    return RequestError("This attempt has ended; its key is no longer valid.", 403, "attempt_ended")


def _with_json(call: ToolCall) -> ToolCall:
    """JSON stays as the model wrote it; what families write in another way becomes JSON."""
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(call.arguments_text), dict):
            return call
    return replace(call, arguments_text=json.dumps(dict(call.arguments or {}), ensure_ascii=False))


def _with_ids(message: Message, number: int) -> Message:
    """The message with ids of its calls that no other turn of the trajectory has."""
    calls = (replace(call, id=f"call_{number}_{index}") for index, call in enumerate(message.tool_calls))
    return replace(message, tool_calls=tuple(calls)) if message.tool_calls else message


def _as_given(message: Message, stop: Sequence[str]) -> Message:
    """The message as the agent gets it: its text up to the first stop text, and malformed calls as text.

    Servers give what they cannot read as a call as text, too, and agents expect it so. Arguments are JSON, whatever the
    model writes.
    """
    malformed = [call.arguments_text for call in message.tool_calls if call.arguments is None or not call.name]
    content = "\n".join(filter(None, (message.content, *malformed)))
    calls = (call for call in message.tool_calls if call.arguments is not None and call.name)
    message = replace(message, content=content, tool_calls=tuple(map(_with_json, calls)))
    places = [place for text in stop if text and (place := message.content.find(text)) >= 0]
    return replace(message, content=message.content[: min(places)]) if places else message
