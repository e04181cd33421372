"""Worker processes for all work that may block, crash or never end: running queries and parsing SQL."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
from contextlib import suppress
from functools import partial
from typing import Any

from rlfactory_sandbox import Pool, WorkerLostError

from rlfactory_core.errors import BackendError, MissingExtraError, UsageError, VerifierError
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases.limiting import late
from rlfactory_nl2sql.verification.worker import Job

_log = logging.getLogger(__name__)

PREPARE_S = 60.0  # time to connect, and to read and vary a large database
_LATEST = 3.0  # times its seconds after which a query is ended with its process, if nothing else has ended it
_SHARE = 0.05  # of its seconds, which a query in a file has at first; if it is slow, it begins again in other workers
_MOST, _NICE = 8, 10  # of these, and by how much their priority is lower
_PROGRAM = "rlfactory_nl2sql.verification.worker:program"
_ERRORS = {each.__name__: each for each in (BackendError, UsageError, MissingExtraError, VerifierError)}
_ENVIRONMENT = {"SQLITE_TMPDIR": "."}  # in the worker's own folder; SQLite asks for it before the fork


class WorkerBug(RuntimeError):  # noqa: N818 - a bug, not a user's error
    """A job failed because of a bug in this plugin; the log has the traceback."""


class _SlowError(Exception):
    """A query needs more than a share of its seconds."""


class WorkerPool:
    """Runs jobs in confined processes. They start with the first job, also after `close`.

    Args:
        workers: their usual number; 0: the number of cores that this process may use.
        memory_mb: address space of one in addition to what Python needs.
        folders: where databases are that workers may read from the start. A database elsewhere costs new workers.
    """

    def __init__(self, workers: int = 0, memory_mb: int = 1024, folders: tuple[str, ...] = ()) -> None:
        zone = {name: os.environ[name] for name in ("TZ",) if name in os.environ}
        made = partial(Pool, _PROGRAM, memory_mb=memory_mb, environment={**_ENVIRONMENT, **zone})
        self._quick = made(workers=workers)  # each keeps what it has found, so a job waits for the one that has it
        self._slow = made(workers=workers, most=_MOST, nice=_NICE)
        self._folders = frozenset(folders)

    async def run(self, job: Job, key: str = "") -> Any:
        """Run a job and return its result, as JSON gives it.

        Args:
            key: jobs with the same key go to the same worker, which keeps what it has found for them.

        Raises:
            QueryError: the job raised it; `Failure.DEADLINE` if it does not end in time, and `Failure.ERROR` if it ends
                its process.
            BackendError: the job raised it, no process can be started, or the pool has been closed.
            WorkerBug: the job failed because of a bug in this plugin; the log has the traceback.
        """
        if job.ref.is_file:
            with suppress(_SlowError):
                return await self._ask(self._quick, job, key, _SHARE)
        return await self._ask(self._slow, job, key, 1.0)

    async def _ask(self, pool: Pool, job: Job, key: str, share: float) -> Any:
        ref = job.ref
        variables = {name: os.environ[name] for name in ref.variables if name in os.environ}
        if ref.is_file and not any(ref.location.startswith(folder + os.sep) for folder in self._folders):
            self._folders |= {os.path.dirname(ref.location)}
        data, seconds = pickle.dumps((job, variables, share)), PREPARE_S + _LATEST * job.seconds
        try:
            data = await pool.run(data, seconds, key=key, reads=self._folders, connects=not ref.is_file)
        except WorkerLostError as error:
            if error.exit == -signal.SIGPROF and share < 1:
                raise _SlowError from error
            if error.late or error.exit == -signal.SIGPROF:  # see `connections.Clock`
                raise late(job.seconds) from error
            raise QueryError(Failure.ERROR, "The query ended the database's engine.") from error
        try:
            match json.loads(data):
                case ["done", answer]:
                    return answer
                case ["slow"]:
                    failed: Exception = _SlowError()
                case ["query", failure, str(message)]:
                    failed = QueryError(Failure(failure), message)
                case ["error", name, str(message)]:
                    failed = _ERRORS[name](message)
                case ["bug", str(trace)]:
                    _log.error("A job failed.\n%s", trace.strip())
                    failed = WorkerBug(f"A bug in rlfactory-nl2sql: {trace.strip().rpartition(chr(10))[2]}")
                case other:
                    raise ValueError(type(other))
        except (KeyError, RecursionError, TypeError, ValueError) as broken:  # it runs more than this plugin's code
            raise QueryError(Failure.ERROR, f"The query damaged the database's engine: {broken!r}.") from broken
        raise failed

    async def close(self) -> None:
        """End all workers. Running and waiting jobs raise `BackendError`."""
        await self._quick.close()
        await self._slow.close()
