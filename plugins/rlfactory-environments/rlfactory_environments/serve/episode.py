"""One episode of a task that a client plays from outside, message by message, as the model."""

from __future__ import annotations

from dataclasses import dataclass

from rlfactory_core.clients import ServerModel
from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.protocols import EnvStep, Request, Sampled
from rlfactory_core.tasks import StepwiseEpisode, TaskRuntime
from rlfactory_core.types import Message, Sample, StopReason, ToolResult, ToolSpec, Trajectory


@dataclass(frozen=True, slots=True)
class Response:
    """What a client gets for a message, and at the beginning."""

    messages: tuple[Message, ...]  # that the model reads next; at the beginning the prompt
    tools: tuple[ToolSpec, ...] = ()  # that the model is offered; at the beginning only
    results: tuple[ToolResult, ...] = ()  # of the message's calls
    reward: float | None = None  # since the last response; None: there was none
    stop: StopReason | None = None  # why the episode is over; None: it goes on


class PlayedEpisode:
    """Call `begin` first, then `say`, and `close` last.

    Args:
        runtime: the open task.
        session: a name that no other episode of the runtime has.
    """

    def __init__(self, runtime: TaskRuntime, sample: Sample, session: str) -> None:
        self.sample = sample
        self._steps = StepwiseEpisode(runtime, sample, session, ServerModel())
        self._rewarded = 0.0  # what the responses have given so far

    @property
    def over(self) -> bool:
        return self._steps.trajectory is not None

    @property
    def turns(self) -> int:
        """How many messages the client has sent."""
        return len(self._steps.answers)

    async def begin(self) -> Response:
        """
        Raises:
            BackendError: the environment cannot begin.
        """
        await self._steps.begin()
        if (played := self._steps.trajectory) is not None:
            raise BackendError(_lost(played))
        assert self._steps.env is not None
        assert self._steps.env.begun is not None
        return Response(self._steps.env.begun.messages, self._steps.env.begun.tools)

    async def say(self, message: Message) -> Response:
        """The assistant's next message.

        Raises:
            UsageError: the episode has not begun, or is over.
            BackendError: a fault spoilt the episode, so it has no reward.
        """
        env = self._steps.env
        if env is None or self.over:
            raise UsageError("There is no episode to step in. Send a reset first.")

        async def reply(request: Request) -> Sampled:
            return Sampled(message)

        before = len(env.steps)
        await self._steps.step(reply)
        step = env.steps[-1] if len(env.steps) > before else EnvStep()
        played = self._steps.trajectory
        if played is None:
            self._rewarded += step.reward
            return Response(step.messages, results=step.results, reward=step.reward or None)
        if played.masked:
            raise BackendError(_lost(played))
        return Response(step.messages, results=step.results, reward=played.reward - self._rewarded, stop=played.stop)

    async def close(self) -> None:
        """End the episode, with its environment."""
        await self._steps.close()


def _lost(played: Trajectory) -> str:
    fault = next((fault for fault in played.faults if fault.masks), None)
    return f"The episode is lost, and has no reward: {fault.source}: {fault.message}" if fault else "The episode ended."
