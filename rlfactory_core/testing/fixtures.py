"""The pytest plugin: fixtures for tests of tasks, there wherever rlfactory is installed.

pytest imports this file in every session, so it imports nothing but pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from rlfactory_core.testing.bench import TaskBench
    from rlfactory_core.testing.checking import Subjects

OpenBench = Callable[..., "TaskBench"]


@pytest.fixture
def task_bench() -> Iterator[OpenBench]:
    """``bench = task_bench("my-task", ["task.limit=3"])``: an open `TaskBench`, closed after the test."""
    from rlfactory_core.testing.bench import TaskBench

    with ExitStack() as benches:

        def open_bench(plugin: str, overrides: Sequence[str | Mapping[str, Any]] = (), **options: Any) -> TaskBench:
            return benches.enter_context(TaskBench(plugin, overrides, **options))

        yield open_bench


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Callable[[str], PreTrainedTokenizerFast]:
    """``tokenizer = tiny_tokenizer("llama3")``: each made once; do not change it."""
    from rlfactory_core.testing.tokenizers import tiny_tokenizer

    return cache(tiny_tokenizer)


@pytest.fixture(scope="session")
def rlfactory_subjects() -> Iterator[Subjects]:
    """What `check_plugin` has open: a task for all of its checks."""
    from rlfactory_core.testing.checking import Subjects

    with Subjects() as subjects:
        yield subjects
