"""The sessions of a server: each has one episode at a time."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.types import Message, Sample, ToolSpec
from rlfactory_environments.serve.episode import PlayedEpisode, Response

_SPLITS = ("train", "eval")


class FullError(Exception):
    """The server has as many sessions as it allows."""

    def __init__(self, active: int, most: int) -> None:
        super().__init__(f"Server at capacity: {active}/{most} sessions active. Cannot accept new connections.")
        self.active, self.most = active, most


class ServedSession:
    """One client's session. Requests are answered one after the other."""

    def __init__(self, name: str, sessions: Sessions) -> None:
        self.name = name
        self.attached = False  # whether a WebSocket uses it
        self.used = time.monotonic()
        self.episode: PlayedEpisode | None = None
        self.episode_id: str | None = None
        self._sessions = sessions
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
            self.episode_id = given if isinstance(given, str) else secrets.token_hex(8)
            self.episode = self._sessions.episode(sample)
            return await self.episode.begin()

    async def say(self, message: Message) -> Response:
        """The assistant's next message; raises as `PlayedEpisode.say`."""
        async with self._one_by_one:
            self.used = time.monotonic()
            if self.episode is None:
                raise UsageError("There is no episode to step in. Send a reset first.")
            return await self.episode.say(message)

    def state(self) -> dict[str, Any]:
        """OpenEnv's state, with the sample and whether the episode is over."""
        episode = self.episode
        return {
            "episode_id": self.episode_id,
            "step_count": episode.turns if episode else 0,
            "sample": episode.sample.id if episode else None,
            "done": episode.over if episode else False,
        }

    async def close(self) -> None:
        """End the session; a second call does nothing."""
        self._sessions.forget(self)
        await self._end()

    async def _end(self) -> None:
        episode, self.episode = self.episode, None
        if episode is not None:
            await episode.close()


class Sessions:
    """All sessions of a server.

    Args:
        runtime: the open task.
        rows: the samples of a split.
        most: sessions at once.
        idle_s: a session without a WebSocket that was not used for so long makes room for another one.
    """

    def __init__(self, runtime: Any, rows: Callable[[str], Sequence[Sample]], *, most: int, idle_s: float) -> None:
        self.most = most
        self._runtime, self._rows, self._idle_s = runtime, rows, idle_s
        self._open: dict[str, ServedSession] = {}
        self._count = itertools.count()

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The task's tools."""
        found: tuple[ToolSpec, ...] = self._runtime.manager.specs
        return found

    @property
    def is_empty(self) -> bool:
        """Whether there is no session."""
        return not self._open

    async def open(self) -> ServedSession:
        """
        Raises:
            FullError: there is no room.
        """
        if len(self._open) >= self.most:
            old = time.monotonic() - self._idle_s
            for session in [each for each in self._open.values() if not each.attached and each.used < old]:
                await session.close()
        if len(self._open) >= self.most:
            raise FullError(len(self._open), self.most)
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

    def episode(self, sample: Sample) -> PlayedEpisode:
        return PlayedEpisode(self._runtime, sample, f"served-{next(self._count)}")

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
