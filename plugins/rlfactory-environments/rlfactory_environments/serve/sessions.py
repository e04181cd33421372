"""The sessions of a server: each has one episode at a time, which its client plays message by message, as the model."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_core.clients import ServerModel
from rlfactory_core.errors import BackendError, UsageError, nearest
from rlfactory_core.protocols import EnvStep, Request, Sampled
from rlfactory_core.tasks import StepwiseEpisode, TaskRuntime
from rlfactory_core.types import Message, Sample, StopReason, ToolResult, ToolSpec, Trajectory

_SPLITS = ("train", "eval")


class FullError(BackendError):
    """The server has as many sessions as it allows; ``data`` has the numbers for the client."""

    def __init__(self, active: int, most: int) -> None:
        super().__init__(f"Server at capacity: {active}/{most} sessions active. Cannot accept new connections.")
        self.data = {"active_sessions": active, "max_sessions": most}


@dataclass(frozen=True, slots=True)
class Response:
    """What a client gets for a message, and at the beginning."""

    messages: tuple[Message, ...]  # that the model reads next; at the beginning the prompt
    tools: tuple[ToolSpec, ...] = ()  # that the model is offered; at the beginning, and where they change
    results: tuple[ToolResult, ...] = ()  # of the message's calls
    reward: float | None = None  # since the last response; None: there was none
    stop: StopReason | None = None  # why the episode is over; None: it goes on


class ServedSession:
    """One client's session. Requests are answered one after the other."""

    def __init__(self, name: str, sessions: Sessions) -> None:
        self.name = name
        self.attached = False  # whether a WebSocket uses it
        self.used = time.monotonic()
        self._sessions = sessions
        self._episode: StepwiseEpisode | None = None
        self._episode_id: str | None = None
        self._rewarded = 0.0  # what the responses of this episode have given so far
        self._one_by_one = asyncio.Lock()

    async def reset(self, parameters: Mapping[str, Any]) -> Response:
        """Begin an episode.

        Args:
            parameters: ``sample``, the id of a sample; or ``seed``, which chooses one; ``split``, train or eval;
                ``episode_id``, for the state.

        Raises:
            UsageError: there is no such sample.
            BackendError: the environment cannot begin.
        """
        async with self._one_by_one:
            self.used = time.monotonic()
            sample = self._sessions.choose(parameters)
            await self._end()
            given = parameters.get("episode_id")
            self._episode_id = given if isinstance(given, str) else secrets.token_hex(8)
            self._episode, self._rewarded = self._sessions.episode(sample), 0.0
            await self._episode.begin()
            if (played := self._episode.trajectory) is not None:
                raise BackendError(_lost(played))
            assert self._episode.env is not None
            assert self._episode.env.begun is not None
            return Response(self._episode.env.begun.messages, self._episode.env.begun.tools)

    async def say(self, message: Message) -> Response:
        """The assistant's next message.

        Raises:
            UsageError: the episode has not begun, or is over.
            BackendError: a fault spoilt the episode, so it has no reward.
        """

        async def reply(request: Request) -> Sampled:
            return Sampled(message)

        async with self._one_by_one:
            self.used = time.monotonic()
            episode = self._episode
            if episode is None or episode.env is None or self.state()["done"]:
                raise UsageError("There is no episode to step in. Send a reset first.")
            before = len(episode.env.steps)
            await episode.step(reply)
            step = episode.env.steps[-1] if len(episode.env.steps) > before else EnvStep()
            played = episode.trajectory
            if played is None:
                self._rewarded += step.reward
                return Response(step.messages, step.tools or (), step.results, step.reward or None)
            if played.masked:
                raise BackendError(_lost(played))
            left = played.reward - self._rewarded
            return Response(step.messages, results=step.results, reward=left, stop=played.stop)

    def state(self) -> dict[str, Any]:
        """OpenEnv's state, with the sample and whether the episode is over."""
        episode = self._episode
        return {
            "episode_id": self._episode_id,
            "step_count": len(episode.answers) if episode else 0,
            "sample": episode.sample.id if episode else None,
            "done": bool(episode and episode.trajectory),
        }

    async def close(self) -> None:
        """End the session; a second call does nothing."""
        self._sessions.forget(self)
        await self._end()

    async def _end(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None:
            await episode.close()


def _lost(played: Trajectory) -> str:
    fault = next((fault for fault in played.faults if fault.masks), None)
    return f"The episode is lost, and has no reward: {fault.source}: {fault.message}" if fault else "The episode ended."


class Sessions:
    """All sessions of a server.

    Args:
        runtime: the open task.
        rows: the samples of a split.
        most: sessions at once.
        idle_s: a session without a WebSocket that was not used for so long makes room for another one.
    """

    def __init__(
        self, runtime: TaskRuntime, rows: Callable[[str], Sequence[Sample]], *, most: int, idle_s: float
    ) -> None:
        self._runtime, self._rows, self._most, self._idle_s = runtime, rows, most, idle_s
        self._open: dict[str, ServedSession] = {}
        self._count = itertools.count()

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The task's tools."""
        return tuple(self._runtime.manager.specs)

    @property
    def is_empty(self) -> bool:
        """Whether there is no session."""
        return not self._open

    async def open(self) -> ServedSession:
        """
        Raises:
            FullError: there is no room.
        """
        if len(self._open) >= self._most:
            old = time.monotonic() - self._idle_s
            for session in [each for each in self._open.values() if not each.attached and each.used < old]:
                await session.close()
        if len(self._open) >= self._most:
            raise FullError(len(self._open), self._most)
        session = ServedSession(secrets.token_hex(16), self)
        self._open[session.name] = session
        return session

    def find(self, name: str) -> ServedSession:
        """
        Raises:
            UsageError: there is no such session.
        """
        if name not in self._open:
            raise UsageError(f"Unknown session_id: {name[:64]}")
        return self._open[name]

    def forget(self, session: ServedSession) -> None:
        """It does not count any more."""
        self._open.pop(session.name, None)

    async def close(self) -> None:
        """End all sessions."""
        for session in list(self._open.values()):
            await session.close()

    def episode(self, sample: Sample) -> StepwiseEpisode:
        return StepwiseEpisode(self._runtime, sample, f"served-{next(self._count)}", ServerModel())

    def choose(self, parameters: Mapping[str, Any]) -> Sample:
        """The sample of a reset; without ``sample`` and ``seed`` the next one.

        Raises:
            UsageError: there is no such split or sample.
        """
        split, wanted, seed = parameters.get("split", "train"), parameters.get("sample"), parameters.get("seed")
        if split not in _SPLITS or not (rows := self._rows(split)):
            raise UsageError(f"split={split!r}: the task has no such data. {nearest(str(split), _SPLITS)}")
        if wanted is not None:
            found = [row for row in rows if row.id == wanted]
            if not found:
                ids = nearest(str(wanted), [row.id for row in rows[:1000]]) if len(rows) <= 1000 else ""
                raise UsageError(f"sample={wanted!r}: the split {split} has no such sample. {ids}".strip())
            return found[0]
        number = seed if isinstance(seed, int) else next(self._count)
        return rows[number % len(rows)]
