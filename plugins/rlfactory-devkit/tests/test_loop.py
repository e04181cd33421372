"""The event loop of `TaskBench`: what is left of it after a coroutine that never gives it back."""

from __future__ import annotations

import gc
import warnings

import pytest

from rlfactory_core.errors import DeadlineError
from rlfactory_core.runner.loop_thread import LoopThread


async def blocking() -> None:
    while True:
        pass


@pytest.mark.slow
def test_a_blocked_loop_leaves_no_socket_and_no_coroutine_that_was_never_awaited() -> None:
    gc.collect()  # what other tests have left
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        loop = LoopThread()
        with pytest.raises(DeadlineError, match="the work did not end"):
            loop.run(blocking(), 0.1, "the work")
        assert not loop.close(1.0)
        del loop
        gc.collect()
    assert not [str(one.message) for one in found]
