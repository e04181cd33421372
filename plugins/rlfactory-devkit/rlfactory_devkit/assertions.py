"""Assertions on trajectories, for a task's tests; a failure shows the conversation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NoReturn

from rlfactory_core.reporting import mask_problem
from rlfactory_core.types import StopReason, Trajectory

_WIDTH = 160  # characters of a message that are shown


def show(trajectory: Trajectory) -> str:
    """A trajectory in short, a line for each message; the model's own begin with ``>``."""
    return "\n".join(_lines(trajectory))


def assert_masks(trajectory: Trajectory) -> None:
    """The loss mask selects exactly the sampled ids, and only these have log-probs."""
    __tracebackhide__ = True
    if problem := mask_problem(trajectory):
        _fail(trajectory, problem)


def assert_called(trajectory: Trajectory, tool: str, /, *, times: int | None = None, **arguments: Any) -> None:
    """The model called a tool.

    Args:
        times: the exact number of calls; None: at least one.
        arguments: only calls that have all of these arguments count.
    """
    __tracebackhide__ = True
    calls = [call for turn in trajectory.turns for call in turn.message.tool_calls if call.name == tool]
    found = sum(arguments.items() <= (call.arguments or {}).items() for call in calls)
    if found >= 1 if times is None else found == times:
        return
    wanted = _call_text(tool, arguments) if arguments else tool
    often = "at least once" if times is None else _times(times)
    _fail(trajectory, f"{wanted} was to be called {often} and was called {_times(found)}")


def assert_not_masked(trajectory: Trajectory) -> None:
    """No infra or verifier fault has left the trajectory out of the update."""
    __tracebackhide__ = True
    if trajectory.masked:
        masking = [fault for fault in trajectory.faults if fault.masks]
        _fail(trajectory, f"it is left out of the update, for {len(masking)} infra or verifier fault(s)")


def assert_reward(trajectory: Trajectory, expected: float, *, tolerance: float = 1e-6, **components: float) -> None:
    """The trajectory has this reward, and these unweighted components, given by their scorers' names.

    A masked trajectory has no reward, so it never has the expected one.
    """
    __tracebackhide__ = True
    assert_not_masked(trajectory)
    if trajectory.score is None:
        _fail(trajectory, "it was not scored")
    if not math.isclose(trajectory.reward, expected, rel_tol=0.0, abs_tol=tolerance):
        _fail(trajectory, f"the reward is {trajectory.reward:g}, not {expected:g}")
    found = trajectory.score.components
    for name, value in components.items():
        if name not in found:
            _fail(trajectory, f"it has no component '{name}', only {', '.join(found)}")
        if not math.isclose(found[name], value, rel_tol=0.0, abs_tol=tolerance):
            _fail(trajectory, f"the component '{name}' is {found[name]:g}, not {value:g}")


def assert_stop(trajectory: Trajectory, reason: StopReason | str) -> None:
    """The trajectory ended like this: a `StopReason` or its text, such as ``final_answer``."""
    __tracebackhide__ = True
    if trajectory.stop is not StopReason(reason):
        _fail(trajectory, f"it stopped with {trajectory.stop.value}, not {StopReason(reason).value}")


def _fail(trajectory: Trajectory, what: str) -> NoReturn:
    __tracebackhide__ = True
    raise AssertionError(f"{what}\n{show(trajectory)}")


def _lines(trajectory: Trajectory) -> Iterator[str]:
    components = trajectory.score.components if trajectory.score else {}
    parts = ", ".join(f"{name} {value:g}" for name, value in components.items())
    head = f"── {trajectory.sample.id}  attempt {trajectory.attempt}  reward {trajectory.reward:g}"
    yield f"{head} ({parts})" if parts else head
    for message in trajectory.sample.messages:
        yield f"| {message.role}: {_short(message.content)}"
    for turn in trajectory.turns:
        calls = [call.error or _call_text(call.name, call.arguments or {}) for call in turn.message.tool_calls]
        yield f"> {_short(' '.join(filter(None, (turn.message.content, *calls))) or '(nothing)')}"
        for result in turn.results:
            whose = f" ({result.fault.value} fault)" if result.fault else ""
            yield f"| {result.name}{whose}: {_short(result.content)}"
    for fault in trajectory.faults:
        where = f"turn {fault.turn + 1}" if fault.turn >= 0 else "scoring"
        yield f"fault: {fault.kind.value}, {fault.source}, {where}: {fault.message}"
    yield f"stop: {trajectory.stop.value}, {len(trajectory.turns)} turn(s), {trajectory.num_sampled} sampled tokens"


def _call_text(tool: str, arguments: Any) -> str:
    return f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH // 2]} … {line[-_WIDTH // 3 :]}"
