"""Verdicts on many predictions at once, as the reward gets them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from red_team.mutations import Wrong
from red_team.queries import FOLDER
from rlfactory_nl2sql.databases.reference import parse_reference
from rlfactory_nl2sql.verification.gold import VerifyOptions
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.verifier import SqlVerifier

from rlfactory_core.types import Verdict


def write_shop(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((FOLDER / "shop.sql").read_text(encoding="utf-8"))
    return path


def verdicts(path: Path, pairs: Sequence[tuple[str, str]], seed: int = 0) -> list[Verdict]:
    """One for each gold query and prediction, in their order."""

    async def run() -> list[Verdict]:
        pool = WorkerPool(workers=2)
        try:
            verifier = SqlVerifier(pool, VerifyOptions(seed=seed))
            ref = parse_reference(path)
            return list(await asyncio.gather(*(verifier.verify(ref, gold, prediction) for gold, prediction in pairs)))
        finally:
            await pool.close()

    return asyncio.run(run())


def assert_found_out(path: Path, wrong: Sequence[Wrong], golds: Mapping[str, str]) -> None:
    """None of the wrong predictions is accepted, and none left open; ``golds`` has the queries by their names."""
    found = verdicts(path, [(golds[one.gold], one.sql) for one in wrong])
    accepted = [one for one, verdict in zip(wrong, found, strict=True) if verdict.passed]
    unknown = [(one, verdict.reasons) for one, verdict in zip(wrong, found, strict=True) if verdict.passed is None]
    assert (accepted, unknown) == ([], []), (accepted, unknown)
