"""``rlfactory plugins check`` as a pytest test with one item for each check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_devkit.checks import chosen, run_check
from rlfactory_devkit.checks.context import CheckContext, CheckOptions


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
    items = [
        pytest.param(name, marks=mark) if name in left_out else name
        for name in chosen((), run=bool(options.get("run")))
    ]

    @cache
    def opened(session: pytest.Session) -> CheckContext | str:
        """The open task, or why it cannot be opened here."""
        try:
            context = CheckContext(plugin, overrides, CheckOptions(**options))
            session.addfinalizer(context.renew)
            context.open()
        except (UsageError, BackendError) as error:
            return str(error)
        return context

    def test(check: str, request: pytest.FixtureRequest) -> None:
        context = opened(request.session)
        if isinstance(context, str):
            pytest.fail(context, pytrace=False)
        result = run_check(check, context)
        if result.passed is None:
            pytest.skip("; ".join(result.evidence))
        if not result.passed:
            lines = [f"plugin '{plugin}' fails the check '{check}':", *(f"- {text}" for text in result.evidence)]
            lines += [f"Run it alone: rlfactory plugins check {plugin} --only {check}"]
            pytest.fail("\n".join(lines), pytrace=False)

    parametrized: Callable[..., None] = pytest.mark.parametrize("check", items)(test)
    return parametrized
