"""The tokens of a run, counted over all its processes and over a resume.

Workers are separate processes, with verl possibly many, and no central process counts their requests. So they share a
file to which each appends the tokens it spent. Each continues reading where it stopped.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from rlfactory_core.errors import UsageError
from rlfactory_core.utils.threads import BlockingPool

_log = logging.getLogger(__name__)


class TokenBudget:
    """The run's spent tokens. Questions in progress when the budget runs out are still answered and counted.

    Args:
        limit: tokens in all; None: only this process is counted, and nothing is refused.
        file: shared by the run's processes; None: only this process counts.
    """

    def __init__(self, limit: int | None, file: Path | None) -> None:
        self._limit = limit
        self._file = file if limit is not None else None
        self._read_to = 0
        self._spent = 0
        self._warned = False
        self._thread: BlockingPool | None = None  # a run's folder may be on a slow network disk

    @property
    def spent(self) -> int:
        """Tokens, as last read."""
        return self._spent

    async def open(self) -> None:
        """Read the tokens spent before.

        Raises:
            UsageError: the file cannot be written.
        """
        if self._file is None:
            return
        self._thread = BlockingPool("tokens", max_threads=1)
        try:
            await self._thread.run(lambda: self._append(b""))
        except OSError as error:
            self.close()
            raise UsageError(
                f"token_budget: the count of spent tokens {self._file} cannot be written ({error.strerror}). "
                "Make the run's folder writable."
            ) from error

    async def is_spent(self) -> bool:
        """Whether the budget is spent, counting all of the run's processes."""
        if self._limit is not None and self._spent < self._limit:
            await self._on_disk(self._read)
        return self._limit is not None and self._spent >= self._limit

    async def spend(self, tokens: int) -> None:
        """Count tokens, even if the caller is cancelled."""
        if self._thread is None:
            self._spent += tokens
        elif tokens:
            line = b"%d\n" % tokens
            await self._on_disk(lambda: self._append(line))

    def close(self) -> None:
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    async def _on_disk(self, work: Callable[[], None]) -> None:
        if self._thread is None:
            return
        done = asyncio.wrap_future(self._thread.submit(work))
        try:
            await asyncio.shield(done)
        except OSError as error:
            if not self._warned:
                self._warned = True
                _log.warning(
                    "the count of spent tokens %s cannot be used (%s); this process counts on alone", self._file, error
                )

    def _append(self, line: bytes) -> None:
        """Append in one short write, which is atomic even if other processes write."""
        assert self._file is not None
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(handle, line)
            finally:
                os.close(handle)
        except OSError:
            self._spent += int(line or b"0")
            raise
        self._read()

    def _read(self) -> None:
        assert self._file is not None
        with self._file.open("rb") as file:
            file.seek(self._read_to)
            lines, _, _ = file.read().rpartition(b"\n")
        if lines:
            self._read_to += len(lines) + 1
            self._spent += sum(int(line) for line in lines.split() if line.isdigit())
