"""The program of the worker processes, which run jobs: queries, schemas, verdicts.

Workers run only this plugin's code, but with SQL that may be hostile, in engines written in C. If these are taken over,
no pickle may take over the process that asks. So answers are JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import traceback
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import Any, Protocol

import sqlglot.dialects.sqlite  # noqa: F401 - imported before the fork, since sqlglot would do it at the first query

from rlfactory_core.errors import RlfactoryError
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases import sqlite  # noqa: F401 - likewise; other kinds are imported when needed
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.verification import (
    jobs,  # noqa: F401 - likewise
    judging,  # noqa: F401 - likewise
)
from rlfactory_nl2sql.verification.connections import Connections


class Job(Protocol):
    """Work for a worker. The job is pickled; its result is a dataclass, or a value that JSON has."""

    @property
    def ref(self) -> DatabaseRef: ...

    @property
    def seconds(self) -> float:
        """How long its queries may take together."""

    def run(self, connections: Connections) -> Any: ...


def program() -> Callable[[bytes], bytes]:
    """What answers the jobs of one process: a pickled `Job`, the variables that its database's URL names, and the
    share of its seconds that it has.
    """
    connections = Connections()

    def answer(data: bytes) -> bytes:
        job, variables, connections.share = pickle.loads(data)  # noqa: S301 - from the process that this one works for
        os.environ.update(variables)
        return json.dumps(_answer(job, connections), default=_plain).encode()

    return answer


def _answer(job: Job, connections: Connections) -> tuple[Any, ...]:
    """The boundary that turns any failure of a job into an answer: a kind, and what `pool.WorkerPool` makes of it."""
    try:
        return "done", job.run(connections)
    except QueryError as error:
        if error.failure is Failure.DEADLINE and connections.share < 1:
            return ("slow",)
        return "query", error.failure.value, str(error)
    except RlfactoryError as error:
        return "error", type(error).__name__, str(error)
    except MemoryError:
        connections.close()
        return "query", Failure.MEMORY.value, "The query needs more memory than it may have."
    except RecursionError:
        return "query", Failure.ERROR.value, "The query is nested too deeply."
    except Exception:  # noqa: BLE001 - the boundary that the docstring names
        return "bug", traceback.format_exc()


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
