"""Runs `rlfactory` commands for the page, so that it says what the command line says and loads no plugin itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import UsageError

DEADLINE_S = 60.0
AT_ONCE = 2  # commands, so that a page beside a training takes little from it
_SHOWN = 200_000  # characters of what a command wrote


@dataclass(frozen=True, slots=True)
class Outcome:
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
    """Runs a few commands at once; the others wait."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)

    async def run(self, *words: str, seconds: float = DEADLINE_S) -> Outcome:
        """``rlfactory`` with these words; it is ended after ``seconds``, and when nobody waits for it any more."""
        async with self._free:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "rlfactory_core",
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
            try:
                out, err = await asyncio.wait_for(process.communicate(), seconds)
            except TimeoutError:
                return Outcome(words, 124, "", f"It took longer than {seconds:g} s and was ended.")
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
        texts = (text.decode(errors="replace")[-_SHOWN:] for text in (out, err))
        return Outcome(words, process.returncode or 0, *texts)
