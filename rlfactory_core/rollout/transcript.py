"""What the model sees of an episode: the messages and, for a model in tokens, the exact ids of the current row."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rlfactory_core.errors import ChatFormatError, PluginError
from rlfactory_core.protocols import ChatFormat, EnvStart, EnvStep, Model, Request
from rlfactory_core.rollout.episode import Episode
from rlfactory_core.rollout.history import CHANGED_TOOLS, DROPPED_THINKING, SUMMARIZE, SUMMARIZED, with_notes
from rlfactory_core.types import Message, Sample, SamplingParams, ToolSpec, Turn
from rlfactory_core.utils.seeds import derive_seed


@contextmanager
def naming(sample: Sample) -> Iterator[None]:
    """Errors of a chat format name the sample whose prompt it writes."""
    try:
        yield
    except ChatFormatError as error:
        raise ChatFormatError(f"The prompt of sample '{sample.id}': {error}") from error


class Transcript:
    """Asks the model for the turns of one episode, and keeps what they see."""

    def __init__(self, episode: Episode, model: Model) -> None:
        self._episode, self._model, self._chat = episode, model, model.chat
        self._tools: tuple[ToolSpec, ...] = ()  # that the row shows
        self._offered: tuple[ToolSpec, ...] = ()  # that the next row shows
        self._first_tools: tuple[ToolSpec, ...] = ()  # that the first row shows
        self._prompt: tuple[Message, ...] = ()
        self._messages: tuple[Message, ...] = ()  # all that the next turn sees
        self._observation: tuple[Message, ...] = ()  # the last of them, after the last turn
        self._observed: tuple[Message, ...] = ()  # as in `Turn`, of the next turn
        self._ids: list[int] = []  # of the row, without the context
        self._context: tuple[int, ...] = ()  # what the next turn appends before it samples
        self._used = 0  # tokens of the row's last prompt and answer; a server counts its own
        self._images = 0  # in the row
        self._row, self._fork = 0, ""

    def begin(self, start: EnvStart) -> None:
        """Take the prompt and the tools."""
        self._tools = self._offered = self._first_tools = start.tools
        self._prompt = self._messages = start.messages
        self._observed = () if start.messages == self._episode.sample.messages else tuple(start.messages)
        if self._chat is not None:
            with naming(self._episode.sample):
                self._context = self._chat.initial_ids(start.messages, start.tools)

    def observe(self, step: EnvStep) -> None:
        """Append the environment's response to the last turn."""
        if step.tools is not None:
            if not self._episode.changes_tools:
                raise PluginError("An EnvStep has tools, and its task does not say `changes_tools = True`: add it.")
            self._offered = tuple(step.tools)
        messages = self._observation = tuple(step.messages)
        self._observed = () if messages == tuple(each.message for each in step.results) else messages
        self._messages = (*self._messages, *messages)
        self._context = self._chat.observation_ids(messages) if self._chat is not None else ()

    async def revise(self, number: int) -> Turn | None:
        """Change what turn ``number`` sees, as `History` asks, or because the environment offers other tools.

        A summary is a turn that the environment never sees.
        """
        history, chat, changed = self._episode.history, self._chat, None
        if chat is not None:
            ids = (*self._ids, *self._context)
            if history.mode == "summarize" and len(ids) > history.tokens:
                return await self._summarize(chat, number)
            changed = history.changed(chat, self._episode.sample, self._messages, self._offered, ids)
        if self._offered != self._tools:
            context = chat.initial_ids(self._messages, self._offered) if chat is not None else ()
            changed = (CHANGED_TOOLS, *changed[1:]) if changed is not None else (CHANGED_TOOLS, self._messages, context)
        if changed is not None:
            await self._begin_row(*changed)
        return None

    async def turn(self, number: int, seed: int | None = None) -> Turn | None:
        """Turn ``number`` (from 0), without the environment's response; None if no token fits into the budget.

        Args:
            seed: None: the episode's.

        Raises:
            BackendError: the model's server does not answer.
        """
        episode, context, most = self._episode, self._context, self._episode.limits.max_tokens
        if self._used + len(context) >= most:
            return None
        self._ids += context
        stop_ids = self._chat.stop_token_ids if self._chat is not None else ()
        params = SamplingParams(
            max_tokens=min(episode.limits.max_turn_tokens, most - self._used - len(context)),
            temperature=episode.temperature,
            top_p=episode.top_p,
            stop_token_ids=stop_ids,
            seed=derive_seed(episode.seed if seed is None else seed, number),
        )
        request = Request(self._messages, self._tools, params, self._ids, self._session)
        before = time.perf_counter()
        sampled = await self._model.answer(request)
        sample_s = time.perf_counter() - before
        if sampled is None:
            return None
        self._ids += sampled.token_ids
        served = sampled.prompt_tokens + sampled.sampled_tokens
        self._used = served if self._chat is None else len(self._ids)
        self._messages = (*self._messages, sampled.message)
        fork, self._fork = self._fork, ""
        turn, self._images = sampled.turn(context, self._images), len(sampled.images)
        observed, self._observed = self._observed, ()
        return replace(
            turn,
            sample_s=sample_s,
            row=self._row,
            fork=fork,
            observed=observed,
            tools=self._tools if self._tools != self._first_tools else None,
        )

    async def close(self) -> None:
        await self._model.release(self._session)

    async def _summarize(self, chat: ChatFormat, number: int) -> Turn | None:
        """Ask for a summary after the last observation, and begin a row with it; None if no token fits."""
        self._observed = (*self._observation, SUMMARIZE)
        self._context = chat.observation_ids(self._observed)
        turn = await self.turn(number, derive_seed(self._episode.seed, "summary"))
        if turn is not None:
            turn = replace(turn, message=replace(turn.message, tool_calls=()))  # nobody makes them
            messages = with_notes(self._prompt, turn.message.content)
            await self._begin_row(SUMMARIZED, messages, chat.initial_ids(messages, self._offered))
        return turn

    async def _begin_row(self, fork: str, messages: Sequence[Message], context: tuple[int, ...]) -> None:
        await self._model.release(self._session)
        self._fork, self._messages, self._context, self._tools = fork, tuple(messages), context, self._offered
        if fork != DROPPED_THINKING:
            self._observed = self._messages
        self._ids, self._used, self._images, self._row = [], 0, 0, self._row + 1

    @property
    def _session(self) -> str:
        return f"{self._episode.session}#{self._row}" if self._row else self._episode.session
