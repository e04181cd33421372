"""``rlfactory plugins check`` as a pytest test with one item for each check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_devkit.checks import chosen, run_check
from rlfactory_devkit.checks.context import CheckContext, CheckOptions
from rlfactory_devkit.checks.result import CheckResult

Opened = CheckContext | UsageError | BackendError
"""A task that is open, or why it cannot be opened here."""


def check_plugin(
    plugin: str,
    overrides: Sequence[str | Mapping[str, Any]] = (),
    *,
    skip: Sequence[str] = (),
    **options: Any,
) -> Callable[..., None]:
    """``test_my_task = check_plugin("my-task")``: a test function with one item for each check.

    A check that fails shows its evidence, one that does not apply is skipped with the reason. The task is opened when
    its first item runs, once in a session of pytest.

    Args:
        plugin, overrides: as in `TaskBench`.
        skip: names of checks that are skipped.
        options: of `CheckOptions`, such as ``models=["Qwen/Qwen3-0.6B"]`` or ``samples=4``.

    Raises:
        UsageError: there is no such check to skip.
    """
    import pytest

    left_out = set(chosen(skip)) if skip else set()
    mark = pytest.mark.skip(reason="check_plugin(skip=…) names it")
    items = [pytest.param(name, marks=mark) if name in left_out else name for name in chosen(())]

    def test(check: str, rlfactory_check_contexts: Callable[..., Opened]) -> None:
        context = rlfactory_check_contexts(plugin, overrides, options)
        if not isinstance(context, CheckContext):
            pytest.fail(str(context), pytrace=False)
        result = run_check(check, context)
        if result.passed is None:
            pytest.skip("; ".join(result.evidence))
        if not result.passed:
            pytest.fail(failure(plugin, result), pytrace=False)

    parametrized: Callable[..., None] = pytest.mark.parametrize("check", items)(test)
    return parametrized


def failure(plugin: str, result: CheckResult) -> str:
    """The text of a failed check."""
    lines = [f"plugin '{plugin}' fails the check '{result.name}':", *(f"- {text}" for text in result.evidence)]
    return "\n".join([*lines, f"Run it alone: rlfactory plugins check {plugin} --only {result.name}"])


@contextmanager
def opened_once() -> Iterator[Callable[..., Opened]]:
    """Yields a function that opens a task at its first call with these arguments; the tasks are closed at the end."""
    found: dict[str, Opened] = {}

    def find(plugin: str, overrides: Sequence[str | Mapping[str, Any]], options: Mapping[str, Any]) -> Opened:
        key = repr((plugin, list(overrides), sorted(options.items())))
        if key not in found:
            try:
                found[key] = context = contexts.enter_context(CheckContext(plugin, overrides, CheckOptions(**options)))
                context.open()
            except (UsageError, BackendError) as error:
                found[key] = error
        return found[key]

    with ExitStack() as contexts:
        yield find
