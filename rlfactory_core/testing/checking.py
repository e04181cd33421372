"""``rlfactory plugins check`` as a test of pytest, an item for each check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.testing.checks.result import CheckResult
from rlfactory_core.testing.checks.running import chosen, run_check
from rlfactory_core.testing.checks.subject import Subject


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
        plugin, overrides: as `TaskBench` takes them.
        skip: names of checks that are skipped.
        options: of `Subject`, such as ``models=["Qwen/Qwen3-0.6B"]`` or ``samples=4``.

    Raises:
        UsageError: there is no such check to skip.
    """
    import pytest

    left_out = set(chosen(skip)) if skip else set()
    mark = pytest.mark.skip(reason="check_plugin(skip=…) names it")
    items = [pytest.param(name, marks=mark) if name in left_out else name for name in chosen(())]

    @pytest.mark.parametrize("check", items)
    def test(check: str, rlfactory_subjects: Subjects) -> None:
        subject = rlfactory_subjects.find(plugin, overrides, options)
        if not isinstance(subject, Subject):
            pytest.fail(str(subject), pytrace=False)
        result = run_check(check, subject)
        if result.passed is None:
            pytest.skip("; ".join(result.evidence))
        if not result.passed:
            pytest.fail(failure(plugin, result), pytrace=False)

    return test


def failure(plugin: str, result: CheckResult) -> str:
    """A failed check in words."""
    lines = [f"plugin '{plugin}' fails the check '{result.name}':", *(f"- {text}" for text in result.evidence)]
    return "\n".join([*lines, f"Again, on its own: rlfactory plugins check {plugin} --only {result.name}"])


class Subjects:
    """The tasks under check in a session, each opened once and closed at its end."""

    def __init__(self) -> None:
        self._found: dict[str, Subject | UsageError | BackendError] = {}
        self._open = ExitStack()

    def __enter__(self) -> Subjects:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._open.close()

    def find(
        self, plugin: str, overrides: Sequence[str | Mapping[str, Any]], options: Mapping[str, Any]
    ) -> Subject | UsageError | BackendError:
        """The task, opened at the first call, or why it cannot be opened here."""
        key = repr((plugin, list(overrides), sorted(options.items())))
        if key not in self._found:
            try:
                subject = self._open.enter_context(Subject(plugin, overrides, **options))
                subject.open()
                self._found[key] = subject
            except (UsageError, BackendError) as error:
                self._found[key] = error
        return self._found[key]
