"""Runs ``rlfactory`` for the page, so that it says what the command line says and loads no plugin or model itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.errors import UsageError

COMMANDS_AT_ONCE = 2  # so that a page beside a training takes little from it
COMMAND_S = 60.0
PLAYERS_AT_ONCE = 2  # models in memory
PLAYER_IDLE_S = 900.0  # after so long without an order the process of `rlfactory play` ends
ORDER_S = 600.0  # for a model to load, or to say its turns
STATE = "play.json"  # the conversation, in the run's folder
_SHOWN = 200_000  # characters of what a command wrote
_LONGEST = 2**26  # bytes of a line


async def _started(words: Sequence[str], stdin: int) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "rlfactory_core", *words)
    return await asyncio.create_subprocess_exec(
        *command, stdin=stdin, stdout=pipe, stderr=pipe, limit=_LONGEST, start_new_session=True
    )


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End the process with its children."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command wrote, and its exit code."""

    words: Sequence[str]
    code: int
    out: str
    err: str

    @property
    def command(self) -> str:
        return shlex.join(["rlfactory", *self.words])

    @property
    def problem(self) -> str:
        """Its error as a sentence, in the words of the command line; empty if it succeeded."""
        return "" if not self.code else self.err.strip().removeprefix("error: ") or self.out.strip() or "it failed"

    def json(self) -> Any:
        """
        Raises:
            UsageError: with the command's own error, if it wrote no JSON.
        """
        try:
            return json.loads(self.out)
        except ValueError:
            raise UsageError(self.problem or f"{self.command} wrote no JSON.") from None


class Commands:
    """Runs a few commands at once; the others wait. A process of `rlfactory play` stays, and holds its model."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(COMMANDS_AT_ONCE)
        self._players: dict[str, Player] = {}  # by the name of the run; the last one used is the last
        self._starting = asyncio.Lock()

    async def run(self, *words: str, seconds: float = COMMAND_S) -> CommandResult:
        """``rlfactory`` with these words; it is ended after ``seconds``, and when nobody waits for it any more."""
        async with self._free:
            process = await _started(words, asyncio.subprocess.DEVNULL)
            try:
                out, err = await asyncio.wait_for(process.communicate(), seconds)
            except TimeoutError:
                return CommandResult(words, 124, "", f"It took longer than {seconds:g} s and was ended.")
            finally:
                await _ended(process)
        texts = (text.decode(errors="replace")[-_SHOWN:] for text in (out, err))
        return CommandResult(words, process.returncode or 0, *texts)

    async def play(self, folder: Path, words: Sequence[str], order: Mapping[str, Any]) -> dict[str, Any]:
        """The conversation with a run's model after an order; the process is started if it has another model.

        Args:
            words: of ``rlfactory play``, after the run.

        Raises:
            UsageError: with the command's own words, if it cannot start; or it takes too long.
        """
        whole = ("play", str(folder), *words, "--json", "--state", str(folder / STATE))
        async with self._starting:
            player = self._players.pop(folder.name, None)
            if player is None or not player.alive or player.words != whole:
                if player is not None:
                    await player.end()
                player = Player(whole, await _started(whole, asyncio.subprocess.PIPE))
                await player.answer()
            self._players[folder.name] = player
            while len(self._players) > PLAYERS_AT_ONCE:
                await self.end_play(next(iter(self._players)))
        return await player.order(order)

    async def end_play(self, run: str) -> None:
        """End the process of a run's conversation, which is kept."""
        if player := self._players.pop(run, None):
            await player.end()

    async def close(self) -> None:
        for run in list(self._players):
            await self.end_play(run)


class Player:
    """A process of `rlfactory play`; it ends with this server, because its standard input does."""

    def __init__(self, words: Sequence[str], process: asyncio.subprocess.Process) -> None:
        self.words = words
        self._process = process
        self._busy = asyncio.Lock()
        self._errors = b""
        self._reading = asyncio.create_task(self._read_errors())
        self._idle: asyncio.TimerHandle | None = None

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def order(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """The conversation after an order; raises as `answer`."""
        if self._idle is not None:
            self._idle.cancel()
        async with self._busy:
            assert self._process.stdin is not None
            with contextlib.suppress(ConnectionError):
                self._process.stdin.write(json.dumps(order).encode() + b"\n")
                await self._process.stdin.drain()
            answer = await self.answer()
        self._idle = asyncio.get_running_loop().call_later(PLAYER_IDLE_S, self._process.stdin.close)
        return answer

    async def answer(self) -> dict[str, Any]:
        """The next line.

        Raises:
            UsageError: the process has ended, or takes too long and was ended.
        """
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), ORDER_S)
        except TimeoutError:
            await self.end()
            raise UsageError(f"The model gave no answer within {ORDER_S:g} s, and was ended.") from None
        if not line:
            await self._process.wait()
            await self._reading
            text = self._errors.decode(errors="replace").strip()
            raise UsageError(text.rpartition("error: ")[2] or "The model was ended.")
        found = json.loads(line)
        assert isinstance(found, dict)
        return found

    async def end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        await _ended(self._process)
        await self._reading

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while part := await self._process.stderr.read(2**16):
            self._errors = (self._errors + part)[-4000:]


def kept_conversation(folder: Path) -> dict[str, Any] | None:
    """The conversation with a run's model as it was last."""
    try:
        found = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "turns" in found else None
