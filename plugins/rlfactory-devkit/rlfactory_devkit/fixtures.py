"""The pytest plugin with fixtures for tests of tasks, available wherever rlfactory is installed.

pytest imports this file in every session, so it imports nothing but pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from rlfactory_core.runner import TaskBench

OpenBench = Callable[..., "TaskBench"]


@pytest.fixture
def task_bench() -> Iterator[OpenBench]:
    """``bench = task_bench("my-task", ["task.limit=3"])``: an open `TaskBench`, closed after the test."""
    from rlfactory_core.runner import TaskBench

    with ExitStack() as benches:
        yield lambda *arguments, **options: benches.enter_context(TaskBench(*arguments, **options))


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Callable[[str], PreTrainedTokenizerFast]:
    """``tokenizer = tiny_tokenizer("llama3")``; each tokenizer is made once, so do not change it."""
    from rlfactory_devkit.tokenizers import tiny_tokenizer

    return cache(tiny_tokenizer)
