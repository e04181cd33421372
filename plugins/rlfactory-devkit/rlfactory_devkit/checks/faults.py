"""A tool that fails, hangs or answers too much affects its own episode and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rlfactory_core.protocols import Tool
from rlfactory_core.runner import Policy, oracle, script
from rlfactory_core.tasks import is_demonstrated
from rlfactory_core.tiny import answer_text
from rlfactory_core.types import FaultKind, ToolCall, Trajectory
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import DoesNotApply, Evidence, describe_error, judged, seen, wrong
from rlfactory_devkit.examples import example_calls
from rlfactory_devkit.faults import FaultInjector, InjectedFaults

_HUGE = 10_000_000  # characters
_CHARS_PER_TOKEN = 64  # as long as any in use


def check(context: CheckContext) -> Iterator[Evidence]:
    """Makes each tool fail in four ways, in an episode that calls the tool and then goes on.

    An outage and a hang have to mask the episode. An exception and a long answer have to become observations that the
    model sees; the long answer is truncated. No exception may leave the environment. `Task.solve` has to answer after a
    tool's error, too, because demonstrations are played with the real tools.
    """
    tools = context.bench.tools
    if not tools:
        raise DoesNotApply("the task has no tools of its own; what an environment offers by itself cannot be replaced")
    calls = {call.name: call for call in reversed(example_calls(tools, context.oracle()))}
    for tool in tools:
        for failure in _FAILURES:
            yield _with_failure(context, calls[tool.spec.name], failure)
    if is_demonstrated(context.bench.task):
        yield _solved_on(context)


def _with_failure(context: CheckContext, call: ToolCall, failure: _Failure) -> Evidence:
    what = f"tool {call.name} {failure.what}"
    played = _played(context, script(call, answer_text("42")), failure.faults, call.name)
    if isinstance(played, str):
        return wrong(f"{what}: the episode ends with an exception, which would end the whole run: {played}")
    results = [result for turn in played.turns for result in turn.results if result.name == call.name]
    if results and results[0].fault is FaultKind.POLICY:
        return seen(f"{what}: not tried, because it refuses the example {call.arguments_text}")
    problem = failure.problem(context, played)
    return judged(problem and f"{what}: {problem}", f"{what}: as it should be")


def _solved_on(context: CheckContext) -> Evidence:
    """What the task's solution does when each call of a tool raises."""
    task = context.bench.task
    played = _played(context, oracle(task), _RAISES)
    return judged(
        f"{type(task).__name__}.solve ends with an exception after a tool's error, which would end a warm start: "
        f"{played}. Let it make the call again, or give an answer that says what is missing."
        if isinstance(played, str)
        else "",
        "after a tool's error the task's solution goes on or ends by itself",
    )


def _played(context: CheckContext, policy: Policy, faults: InjectedFaults, only: str = "") -> Trajectory | str:
    """An episode in which all tools fail, or one of them; or its exception, in words."""

    def wrapped(tool: Tool) -> Tool:
        return FaultInjector(tool, 0, faults) if only in ("", tool.spec.name) else tool

    limits = {"retries": 0, "cache": "off", "breaker_failures": 1000, "deadline_s": context.options.hang_s}
    try:
        (played,) = context.play(policy, context.some()[:1], manager=context.bench.manager(wrapped, **limits))
    except Exception as error:  # noqa: BLE001 - the boundary to the task's environment and solution
        context.renew()
        return describe_error(error)
    return played


def _masked(context: CheckContext, played: Trajectory) -> str:
    if played.masked:
        return ""
    return (
        f"the episode counts, with a reward of {played.reward:g}. An outage is not the policy's fault: the "
        "environment has to pass on the results of manager.invoke in EnvStep.results."
    )


def _observed(context: CheckContext, played: Trajectory) -> str:
    if any(fault.kind is FaultKind.INFRA for fault in played.faults):
        return f"the episode is masked: {played.faults[0].message}. An exception of a tool is an observation."
    if len(played.turns) < 2 and context.bench.config.rollout.max_turns > 1:
        return f"the episode ends ({played.stop.value}) and the model never sees the error. Make it an observation."
    return ""


def _truncated(context: CheckContext, played: Trajectory) -> str:
    limits = context.bench.config.tools
    most = max([limits.max_result_tokens, *(each.get("max_result_tokens", 0) for each in limits.overrides.values())])
    shown = max((len(turn.context_ids) for turn in played.turns[1:]), default=0)
    if shown > min(_HUGE, most * _CHARS_PER_TOKEN):
        return f"the model sees {shown:,} characters of it. Pass on what manager.invoke gives, which is cut."
    return ""


@dataclass(frozen=True, slots=True)
class _Failure:
    what: str
    faults: InjectedFaults
    problem: Callable[[CheckContext, Trajectory], str]  # what is wrong with the episode; empty if nothing is


_RAISES = InjectedFaults(error_rate=1.0, error=lambda: RuntimeError("injected"))
_FAILURES = (
    _Failure("is down", InjectedFaults(error_rate=1.0), _masked),
    _Failure("raises", _RAISES, _observed),
    _Failure("hangs", InjectedFaults(hang_rate=1.0), _masked),
    _Failure("answers 10 MB", InjectedFaults(flood_rate=1.0, flood_bytes=_HUGE), _truncated),
)
