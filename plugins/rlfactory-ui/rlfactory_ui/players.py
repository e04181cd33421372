"""The processes of `rlfactory play` behind the page; each holds a model, and what was said is in a file of its run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory_core.errors import UsageError

KEPT = "play.json"  # in the run's folder
MOST = 2  # models in memory at once
IDLE_S = 900.0  # after so long without an order a process ends
ORDER_S = 600.0  # for the model to load, or to say its turns
_LONGEST = 2**26  # bytes of a line
_SHOWN = 4000  # bytes of what it wrote last before it failed


class Player:
    """One process; it ends with this server, because its standard input does."""

    def __init__(self, words: Sequence[str], process: asyncio.subprocess.Process) -> None:
        self.words = words
        self._process = process
        self._busy = asyncio.Lock()
        self._errors = b""
        self._reading = asyncio.create_task(self._read_errors())
        self._idle: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, words: Sequence[str]) -> Player:
        """
        Raises:
            UsageError: with the command's own words, if it cannot start.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "rlfactory_core",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST,
        )
        player = cls(words, process)
        await player._answer()
        return player

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def order(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """The conversation after an order.

        Raises:
            UsageError: the process has ended, or takes too long and was ended.
        """
        if self._idle is not None:
            self._idle.cancel()
        async with self._busy:
            assert self._process.stdin is not None
            with contextlib.suppress(ConnectionError):
                self._process.stdin.write(json.dumps(order).encode() + b"\n")
                await self._process.stdin.drain()
            answer = await self._answer()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._kill)
        return answer

    async def end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._kill()
        await self._process.wait()
        await self._reading

    def _kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), ORDER_S)
        except TimeoutError:
            self._kill()
            raise UsageError(f"The model gave no answer within {ORDER_S:g} s, and was ended.") from None
        if not line:
            await self._process.wait()
            await self._reading
            text = self._errors.decode(errors="replace").strip()
            raise UsageError(text.rpartition("error: ")[2] or "The model was ended.")
        found = json.loads(line)
        assert isinstance(found, dict)
        return found

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while part := await self._process.stderr.read(_SHOWN):
            self._errors = (self._errors + part)[-_SHOWN:]


class Players:
    """The processes that are there, by the name of the run."""

    def __init__(self) -> None:
        self._players: dict[str, Player] = {}
        self._starting = asyncio.Lock()

    async def order(self, folder: Path, words: Sequence[str], order: Mapping[str, Any]) -> dict[str, Any]:
        """Give an order to the run's process, which is started if it is not there or has another model.

        Args:
            words: of ``rlfactory play``, after the run.
        """
        whole = ("play", str(folder), *words, "--json", "--state", str(folder / KEPT))
        async with self._starting:
            player = self._players.pop(folder.name, None)
            if player is None or not player.alive or player.words != whole:
                if player is not None:
                    await player.end()
                player = await Player.start(whole)
            self._players[folder.name] = player  # the last one used is the last
            while len(self._players) > MOST:
                await self.end(next(iter(self._players)))
        return await player.order(order)

    async def end(self, name: str) -> None:
        """End a run's process; what was said is kept."""
        if player := self._players.pop(name, None):
            await player.end()

    async def close(self) -> None:
        for name in list(self._players):
            await self.end(name)


def kept(folder: Path) -> dict[str, Any] | None:
    """The conversation as it was last."""
    try:
        found = json.loads((folder / KEPT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "turns" in found else None
