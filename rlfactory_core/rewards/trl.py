"""Rewards that are functions: of a trajectory, or, as TRL has them, of a batch with one number for each completion."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlfactory_core.errors import VerifierError
from rlfactory_core.types import Group, Message, Score, Trajectory


def reward_of(function: Callable[..., Any]) -> TrlReward | FunctionReward:
    """A function as a reward: one that takes ``completions`` is TRL's, another one takes a trajectory."""
    return TrlReward(function) if "completions" in inspect.signature(function).parameters else FunctionReward(function)


class FunctionReward:
    """A function of a trajectory, which returns a number or a `Score`; a plain ``def`` runs in a thread."""

    def __init__(self, function: Callable[[Trajectory], Any]) -> None:
        self._function = function

    async def score(self, trajectory: Trajectory) -> Score | float:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(trajectory)  # type: ignore[no-any-return]
        return await asyncio.to_thread(self._function, trajectory)


class TrlReward:
    """A reward function of TRL's `GRPOTrainer` as a group scorer: ``register("right", lambda: TrlReward(right))``.

    The function is called with the attempts of one group, by keyword: ``prompts``, ``completions`` (each a list of
    messages with role and content, tool results included), ``completion_ids`` (the sampled tokens), ``answer``, and
    the fields of the sample's metadata, each a list with one entry for an attempt. It gets those that it takes. It may
    be ``async``; any other function runs in a thread. ``None`` in its result, with which TRL says that the function
    does not apply, adds nothing.

    Args:
        function: ``function(completions, **columns) -> list[float | None]``.
        answer: the name under which it wants the sample's answer.
    """

    def __init__(self, function: Callable[..., Any], answer: str = "answer") -> None:
        self._function, self._answer = function, answer
        parameters = inspect.signature(function).parameters.values()
        self._takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        self._takes = {parameter.name for parameter in parameters}

    async def score_group(self, group: Group) -> list[Score]:
        """Raises `VerifierError` if the function returns something else than a number for each attempt."""
        size = len(group.trajectories)
        columns: dict[str, list[Any]] = {name: [value] * size for name, value in group.sample.metadata.items()}
        columns |= {
            self._answer: [group.sample.answer] * size,
            "prompts": [[_wire(message) for message in group.sample.messages]] * size,
            "completions": [_completion(trajectory) for trajectory in group.trajectories],
            "completion_ids": [
                [token for turn in trajectory.turns for token in turn.sampled_ids] for trajectory in group.trajectories
            ],
        }
        taken = columns if self._takes_all else {name: columns[name] for name in columns if name in self._takes}
        if inspect.iscoroutinefunction(self._function):
            given = await self._function(**taken)
        else:
            given = await asyncio.to_thread(self._function, **taken)
        if not isinstance(given, Sequence) or len(given) != size:
            raise VerifierError(f"it returned {given!r:.80}; expected a list of {size} numbers")
        return [Score(0.0 if value is None else float(value)) for value in given]


def _completion(trajectory: Trajectory) -> list[Mapping[str, Any]]:
    messages: list[Mapping[str, Any]] = []
    for turn in trajectory.turns:
        messages.append(_wire(turn.message))
        messages += [{"role": "tool", "name": result.name, "content": result.content} for result in turn.results]
    return messages


def _wire(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        found["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return found
