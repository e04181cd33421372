"""``rlfactory``, with the jobs of thread pools done where they are submitted; a part of `equal_results`.

    python in_one_thread.py run --plugin search train.staleness=2

With ``train.staleness`` the order in which groups finish depends on the time that threads take, so no run repeats
another. In one thread it depends on the code alone.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


def submit(_: ThreadPoolExecutor, job: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
    """In the place of `ThreadPoolExecutor.submit`: the job is done when this returns."""
    future: Future[Any] = Future()
    try:
        future.set_result(job(*arguments, **options))
    except BaseException as error:  # noqa: BLE001 - as in a pool: whoever waits for the result gets it
        future.set_exception(error)
    return future


if __name__ == "__main__":
    ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]
    runpy.run_module("rlfactory_core", run_name="__main__", alter_sys=True)
