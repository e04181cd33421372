"""The prompts that several attempts begin with, each computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from rlfactory_core.engines.local.model.kv_cache import Cache
from rlfactory_core.engines.local.model.pack import SHORTEST

NO_PROMPT = 0  # the row that stays empty
ROWS = 4  # at first


class Prompts:
    """A cache with a row for each prompt that is asked for a second time; what all prompts share is not part of them.

    A row is kept as long as somebody holds it, and then until another prompt needs one. There are as many rows as were
    held at once.

    Args:
        slots: trajectories that hold a row at once.
    """

    def __init__(self, slots: int, device: torch.device) -> None:
        self.cache = Cache(ROWS, 256)
        self.ids: list[tuple[int, ...]] = [()] * ROWS
        self.lengths = torch.zeros(slots + ROWS, dtype=torch.long, device=device)
        self._row: dict[tuple[int, ...], int] = {}  # of the prompts that are computed with today's weights
        self._asked: Counter[int] = Counter()  # how often for a prompt, by its hash
        self._holders = [0] * ROWS
        self._free = dict.fromkeys(range(1, ROWS))  # rows that nobody holds; the one that was held last is the last

    def hold(self, prompts: Sequence[tuple[int, ...]]) -> tuple[list[int], list[int]]:
        """A row for each of these prompts: its own, that of a prompt which it continues, or `NO_PROMPT`.

        Returns:
            these rows, and those that have to be computed first.
        """
        self._asked.update(map(hash, prompts))
        new: list[int] = []
        found = []
        for prompt in prompts:
            row = self._row.get(prompt)
            if row is None and len(prompt) >= SHORTEST and self._asked[hash(prompt)] > 1:
                row = self._place(prompt)
                new.append(row)
            if row is None:
                begun = [each for each in self._row if prompt[: len(each)] == each]
                row = self._row[max(begun, key=len)] if begun else NO_PROMPT
            self._holders[row] += 1
            self._free.pop(row, None)
            found.append(row)
        return found, new

    def release(self, row: int) -> None:
        self._holders[row] -= 1
        if not self._holders[row] and row != NO_PROMPT:
            self._free[row] = None

    def forget(self) -> None:
        """The weights or what all prompts share have changed; who holds a row keeps it."""
        self._row.clear()
        self._asked.clear()
        self._free = dict.fromkeys(sorted(self._free))  # a run and its resume use the same rows

    def _place(self, prompt: tuple[int, ...]) -> int:
        row = next(iter(self._free), len(self.ids))
        if row == len(self.ids):
            self.ids.append(())
            self._holders.append(0)
        if self._row.get(self.ids[row]) == row:
            del self._row[self.ids[row]]
        self.ids[row], self._row[prompt] = prompt, row
        self.lengths[row] = len(prompt)
        return row
