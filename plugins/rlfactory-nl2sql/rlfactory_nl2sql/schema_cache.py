"""The schemas of the databases in use, each read once."""

from __future__ import annotations

import asyncio
from functools import partial

from rlfactory_core.errors import BackendError
from rlfactory_nl2sql.connection import QueryError
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.verification.jobs import SchemaJob
from rlfactory_nl2sql.verification.pool import WorkerPool

DEADLINE_S = 20.0  # reading a server's catalogue of many tables takes time


class Schemas:
    """Reads schemas through the pool's workers. They are assumed not to change during a run."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._requests: dict[DatabaseRef, asyncio.Task[Schema]] = {}

    async def get(self, ref: DatabaseRef) -> Schema:
        """The schema of a database. Concurrent callers share one request.

        Raises:
            BackendError: the database does not answer. The next call tries again.
        """
        request = self._requests.get(ref)
        if request is None:
            request = self._requests[ref] = asyncio.ensure_future(self._read(ref))
            request.add_done_callback(partial(self._forget_failed, ref))
        return await asyncio.shield(request)

    async def _read(self, ref: DatabaseRef) -> Schema:
        try:
            schema: Schema = await self._pool.run(SchemaJob(ref), DEADLINE_S, affinity=ref.location)
        except QueryError as error:  # not a model's query: the worker process ended
            raise BackendError(f"The database {ref.display} does not tell its schema: {error}") from error
        return schema

    def _forget_failed(self, ref: DatabaseRef, request: asyncio.Task[Schema]) -> None:
        if request.cancelled() or request.exception():  # read here, so that asyncio does not report it
            del self._requests[ref]
