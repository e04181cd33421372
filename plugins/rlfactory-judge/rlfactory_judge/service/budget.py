"""The tokens of a run, counted over all its processes and over a resume in a file to which each appends its own."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from threading import Lock

from rlfactory_core.errors import UsageError

_log = logging.getLogger(__name__)


class TokenBudget:
    """The run's spent tokens. Questions in progress when the budget runs out are still answered and counted.

    Without ``limit`` nothing is refused; without ``file`` only this process counts.
    """

    def __init__(self, limit: int | None, file: Path | None) -> None:
        self._limit = limit
        self._file = file if limit is not None else None
        self._lock = Lock()
        self._read_to = 0
        self.spent = 0  # as last read

    async def open(self) -> None:
        """Read the tokens spent before. Raises `UsageError` where the file cannot be written."""
        try:
            if self._file is not None:
                await asyncio.to_thread(self._exchange, self._file, 0)
        except OSError as error:
            raise UsageError(
                f"token_budget: the count of spent tokens {self._file} cannot be written ({error.strerror}). "
                "Make the run's folder writable."
            ) from error

    async def is_spent(self) -> bool:
        """Whether the budget is spent, counting all of the run's processes."""
        if self._limit is None:
            return False
        if self.spent < self._limit:
            await self.spend(0)
        return self.spent >= self._limit

    async def spend(self, tokens: int) -> None:
        """Count tokens, even if the caller is cancelled."""
        if self._file is None:
            self.spent += tokens
            return
        try:  # in a thread, because a run's folder may be on a slow network disk
            await asyncio.shield(asyncio.to_thread(self._exchange, self._file, tokens))
        except OSError as error:
            self.spent, self._file = self.spent + tokens, None
            _log.warning("the count of spent tokens cannot be used (%s); this process counts on alone", error)

    def _exchange(self, path: Path, tokens: int) -> None:
        """Append tokens in one short write, which is atomic even if other processes write; then read what is new."""
        with self._lock:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab", buffering=0) as file:
                if tokens:
                    file.write(b"%d\n" % tokens)
            with path.open("rb") as file:
                file.seek(self._read_to)
                lines, end, _ = file.read().rpartition(b"\n")
            self._read_to += len(lines + end)
            self.spent += sum(int(line) for line in lines.split() if line.isdigit())
