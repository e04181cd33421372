"""The reward ``execution``: the answer has the same results as an accepted query."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from pydantic import Field

from rlfactory_core import Sample, Task, Verdict
from rlfactory_core.rewards import accepted_answers
from rlfactory_core.settings import Positive, Section, validate_section
from rlfactory_nl2sql.comparison.compare import Comparison, Semantics
from rlfactory_nl2sql.connection import limits_of
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.rewards.databases import QueryVerdict
from rlfactory_nl2sql.verification.gold import VerifyOptions
from rlfactory_nl2sql.verification.verifier import SqlVerifier

_COUNTED = 200  # right queries that are tried before a run
_COUNTING_S = 20.0
_SHOWN = 5  # rows of results that differ, kept in the verdict for a person who looks into a run


class ExecutionOptions(Section):
    """The options of the reward ``execution``."""

    semantics: Semantics = "multiset"
    """The definition of equal results."""
    tolerance: Annotated[float, Field(ge=0.0, le=0.1)] = 1e-9
    """Relative tolerance of numbers."""
    instances: int = 5
    """Databases to compare on: the given one and varied ones."""
    confirmed: int = 16
    """Further varied databases, before an answer passes that is not written as the right query. They have what the
    schema allows, such as NULLs, even where the data have none, and values around the constants of both queries."""
    seed: int = 0
    """The seed of the varied databases."""
    max_rows: Positive = 10_000
    """Limit of the rows of a result; of a larger one the query fails."""
    seconds: float = 5.0
    """Time limit of the answer on all instances together."""
    gold_seconds: float = 30.0
    """Time limit of the right query on all instances together."""
    database: str | None = None
    """PATH or URL of the database of all samples; null: that of the task or of the sample."""


class ExecutionMatch(QueryVerdict):
    """Passes if both queries have equal results on the database and on varied instances of it.

    Of several right queries of a sample, one match is enough. An answer that fails or takes too long does not pass. If
    the right query itself fails, the verdict is None.

    Args:
        options: the fields of `ExecutionOptions`.

    Raises:
        ConfigError: an unknown option or value.
    """

    def __init__(self, **options: Any) -> None:
        given = _checked(options)
        super().__init__(given.database)
        self._options = VerifyOptions(
            Comparison(given.semantics, given.tolerance),
            given.instances,
            given.seed,
            limits_of(given.seconds, given.max_rows),
            given.gold_seconds,
            confirmed=given.confirmed,
            shown=_SHOWN,
        )

    async def open(self, task: Task) -> None:
        await super().open(task)
        self._verifier = SqlVerifier(self.pool, self._options)
        await self._count_unverifiable(task)

    async def _count_unverifiable(self, task: Task) -> None:
        """Say how many of the right queries give no evidence; of many, only some are tried."""
        samples: Sequence[Sample] = getattr(task, "checked", ())
        some = samples[:: max(1, -(-len(samples) // _COUNTED))]
        found: list[bool] = []

        async def look(sample: Sample) -> None:
            ref = self.reference(sample)
            found.append(any([await self._verifier.has_evidence(ref, gold) for gold in accepted_answers(sample)]))

        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*map(look, some)), _COUNTING_S)
        if not all(found):
            task.progress.say(
                f"warning: {found.count(False)} of {len(found)} questions that were tried (of {len(samples)}) cannot "
                "be verified: their SQL fails, or gives no rows, or only 0 and NULL, on every varied database. All "
                "answers but their SQL itself are masked; `rlfactory nl2sql verify` says why."
            )

    async def _judge(self, ref: DatabaseRef, gold: str, sql: str) -> Verdict:
        return await self._verifier.verify(ref, gold, sql)


def saved_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The given options as a run saves them; raises `ConfigError` for an unknown option or value."""
    return _checked(options).model_dump(mode="json", exclude_unset=True)


def _checked(options: Mapping[str, Any]) -> ExecutionOptions:
    return validate_section(ExecutionOptions, options, prefix="rewards.execution")
