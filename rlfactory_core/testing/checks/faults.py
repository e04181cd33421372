"""A tool that fails, hangs or says too much spoils its episode and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.protocols import Tool
from rlfactory_core.testing.checks.result import DoesNotApply, Evidence, seen, wrong
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.testing.checks.telling import told
from rlfactory_core.testing.examples import example_calls
from rlfactory_core.testing.faults import FaultInjector
from rlfactory_core.testing.policies import script
from rlfactory_core.tiny import answer_text
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.types import FaultKind, ToolCall, Trajectory

_HUGE = 10_000_000  # characters
_CHARS_PER_TOKEN = 64  # as long as any in use
_UNLIMITED = {"retries": 0, "cache": "off", "breaker_failures": 1000}


class _Said:
    """A tool that says too much."""

    def __init__(self, tool: Tool) -> None:
        self.spec, self.version, self.deadline_s = tool.spec, tool.version, tool.deadline_s
        self.idempotent, self.stateful = tool.idempotent, True

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        return "x" * _HUGE

    async def close(self) -> None:
        """Nothing is held."""


def _unavailable(tool: Tool) -> Tool:
    return FaultInjector(tool, 0, error_rate=1.0, error=lambda: ToolUnavailableError("injected"))


def _raising(tool: Tool) -> Tool:
    return FaultInjector(tool, 0, error_rate=1.0, error=lambda: RuntimeError("injected"))


def _hanging(tool: Tool) -> Tool:
    return FaultInjector(tool, 0, hang_rate=1.0)


def check(subject: Subject) -> Iterator[Evidence]:
    """Each tool in turn is made to fail in four ways, in an episode that calls it and then goes on.

    An outage and a hang mask the episode; an exception and a long answer become observations, which the model sees,
    the long one cut; nothing escapes from the environment.
    """
    tools = subject.bench.tools
    if not tools:
        raise DoesNotApply("the task has no tools of its own; what an environment offers by itself cannot be replaced")
    calls = {call.name: call for call in reversed(example_calls(tools, subject.oracle()))}
    for tool in tools:
        for weather, make, judge in _WEATHER:
            yield _under(subject, tool, calls[tool.spec.name], weather, make, judge)


def _under(
    subject: Subject,
    tool: Tool,
    call: ToolCall,
    weather: str,
    make: Callable[[Tool], Tool],
    judge: Callable[[Subject, Trajectory], str],
) -> Evidence:
    name = tool.spec.name
    manager = subject.bench.manager(
        lambda each: make(each) if each.spec.name == name else each, deadline_s=subject.hang_s, **_UNLIMITED
    )
    try:
        (played,) = subject.play(script(call, answer_text("42")), subject.some()[:1], manager=manager)
    except Exception as error:  # noqa: BLE001 - the boundary to the task's environment
        subject.renew()
        return wrong(
            f"tool {name} {weather}: the episode ends with an exception, which would end the whole run: {told(error)}"
        )
    results = [result for turn in played.turns for result in turn.results if result.name == name]
    if results and results[0].fault is FaultKind.POLICY:
        return seen(f"tool {name} {weather}: not tried, because it refuses the example {call.arguments_text}")
    problem = judge(subject, played)
    return wrong(f"tool {name} {weather}: {problem}") if problem else seen(f"tool {name} {weather}: as it should be")


def _masked(subject: Subject, played: Trajectory) -> str:
    if played.masked:
        return ""
    return (
        f"the episode counts, with a reward of {played.reward:g}. It is nobody's fault but the machine's: an "
        "environment has to pass on the results of manager.invoke in EnvStep.results."
    )


def _observed(subject: Subject, played: Trajectory) -> str:
    if any(fault.kind is FaultKind.INFRA for fault in played.faults):
        return f"the episode is masked: {played.faults[0].message}. An exception of a tool is an observation."
    if len(played.turns) < 2 and subject.bench.config.rollout.max_turns > 1:
        return f"the episode ends ({played.stop.value}) and the model never sees it. It is to be an observation."
    return ""


def _cut(subject: Subject, played: Trajectory) -> str:
    limits = subject.bench.config.tools
    most = max([limits.max_result_tokens, *(each.get("max_result_tokens", 0) for each in limits.overrides.values())])
    shown = max((len(turn.context_ids) for turn in played.turns[1:]), default=0)
    if shown > min(_HUGE, most * _CHARS_PER_TOKEN):
        return f"the model sees {shown:,} characters of it. Pass on what manager.invoke gives, which is cut."
    return ""


_WEATHER = (
    ("is down", _unavailable, _masked),
    ("raises", _raising, _observed),
    ("hangs", _hanging, _masked),
    ("says 10 MB", _Said, _cut),
)
