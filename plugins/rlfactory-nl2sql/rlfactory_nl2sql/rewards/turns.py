"""The reward ``query_steps``, for the turns of an episode."""

from __future__ import annotations

from collections.abc import Iterator

from rlfactory_core import FaultKind, Score, Trajectory
from rlfactory_core.errors import ConfigError
from rlfactory_core.rewards import accepted_answers
from rlfactory_core.types import ToolCall, ToolResult, Turn
from rlfactory_nl2sql.rewards.databases import Databases
from rlfactory_nl2sql.tools import DESCRIBE, RUN_QUERY, table_name
from rlfactory_nl2sql.verification.jobs import read_tables


class QuerySteps(Databases):
    """A process reward: a score for each turn, from its tool calls.

    - A query that the database refuses costs ``error``.
    - The first description of a table that the right query reads earns ``lookup``.

    The sum over the turns stays within ``bound`` of 0 at every turn, so that with a weight of 1 all steps together are
    worth less than half a right answer. Components: ``errors`` and ``lookups``, the counts of both.

    Args:
        database: see `Databases`.

    Raises:
        ConfigError: an amount is negative or larger than the bound.
    """

    def __init__(
        self, error: float = 0.1, lookup: float = 0.05, bound: float = 0.2, database: str | None = None
    ) -> None:
        if not (0 <= error <= bound and 0 <= lookup <= bound):
            raise ConfigError(
                f"query_steps: got error={error}, lookup={lookup} and bound={bound}; expected amounts from 0 to bound."
            )
        self._error, self._lookup, self._bound = error, lookup, bound
        self.bounds = (-bound, bound)
        super().__init__(database)

    async def score(self, trajectory: Trajectory) -> Score:
        dialect = self.reference(trajectory.sample).kind
        needed = set(await self.read(read_tables, accepted_answers(trajectory.sample), dialect))
        total, errors, lookups = 0.0, 0, 0
        turns: list[float] = []
        for turn in trajectory.turns:
            before = total
            for call, result in _calls(turn):
                if call.name == RUN_QUERY and result.fault is FaultKind.TOOL:
                    errors += 1
                    total -= self._error
                elif call.name == DESCRIBE and result.fault is None and (table := _table(call)) in needed:
                    needed.remove(table)
                    lookups += 1
                    total += self._lookup
            total = min(max(total, -self._bound), self._bound)
            turns.append(total - before)
        return Score(0.0, {"errors": float(errors), "lookups": float(lookups)}, tuple(turns))


def _calls(turn: Turn) -> Iterator[tuple[ToolCall, ToolResult]]:
    """The turn's completed calls with their results."""
    results = {result.call_id: result for result in turn.results}
    return ((call, results[call.id]) for call in turn.message.tool_calls if call.id in results)


def _table(call: ToolCall) -> str:
    return table_name(str((call.arguments or {}).get("table", ""))).lower()
