"""Tokens from verl's servers: what is asked, what comes back, and that nothing waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rlfactory_devkit import ToyChatFormat
from rlfactory_verl.sampler import ServerSampler

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import BackendError
from rlfactory_core.rollout import Episode, RolloutLimits, TokenModel, ToolEnv, rollout
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.types import FaultKind, Sample, SampledTokens, SamplingParams, StopReason, Trajectory

CHAT = ToyChatFormat()
PARAMS = SamplingParams(max_tokens=20, temperature=0.7, top_p=0.9, stop_token_ids=(256,), seed=99)
Answer = Callable[..., Awaitable[Any]]


class Servers:
    """verl's client, as far as it is used."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[dict[str, Any]] = []

    async def generate(self, **asked: Any) -> Any:
        self.asked.append(asked)
        return await self._answer(len(self.asked) - 1)


def output(ids: list[int], oldest: int | None = None, newest: int | None = None, reason: str = "completed") -> Any:
    """verl's ``TokenOutput``."""
    versions = {"min_global_steps": oldest, "max_global_steps": newest}
    fields = {name: value for name, value in versions.items() if value is not None}
    return SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason=reason, extra_fields=fields)


def saying(*outputs: Any) -> Servers:
    async def answer(number: int) -> Any:
        return outputs[number]

    return Servers(answer)


async def never(number: int) -> Any:
    await asyncio.Event().wait()


async def breaks(number: int) -> Any:
    raise ConnectionResetError("the server's process has died")


def sample(servers: Servers, deadline_s: float = 60.0) -> SampledTokens:
    sampler = ServerSampler(servers, deadline_s)
    return asyncio.run(sampler.sample([1, 2, 3], PARAMS, session="s/0"))


def test_a_turn_with_images_sends_them_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pytest.importorskip("rlfactory_vision", reason="without it no tool returns an image")
    pillow = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))
    names = [images.Image.of(pillow.new("RGBA", size, (9, 9, 9, 0))).digest for size in ((8, 4), (4, 8))]
    servers = saying(output([7]))
    params = replace(PARAMS, images=tuple(names))
    asyncio.run(ServerSampler(servers, 60.0).sample([1, 2], params, session="s/0"))
    sent = servers.asked[0]["image_data"]
    assert [(image.mode, image.size) for image in sent] == [("RGB", (8, 4)), ("RGB", (4, 8))]
    assert sent[0].getpixel((0, 0)) == (9, 9, 9)  # vLLM would show what is transparent as white


def test_ids_go_in_and_ids_come_out() -> None:
    servers = saying(output([7, 8, 256], oldest=4, newest=5))
    assert sample(servers) == SampledTokens((7, 8, 256), (-0.5,) * 3, "stop", 4)
    (asked,) = servers.asked
    assert asked["request_id"] == "s/0"
    assert asked["prompt_ids"] == [1, 2, 3]
    params = asked["sampling_params"]
    assert (params["max_tokens"], params["temperature"], params["top_p"]) == (20, 0.7, 0.9)
    assert params["stop_token_ids"] == [256]
    assert "seed" not in params
    assert "image_data" not in asked


def test_a_turn_that_does_not_end_with_a_stop_token_was_cut() -> None:
    assert sample(saying(output([7, 8]))).finish == "length"


def test_a_session_knows_its_first_and_its_last_weights() -> None:
    sampler = ServerSampler(saying(output([256], 3, 3), output([256]), output([256], 4, 6)), 60.0)

    async def three() -> list[int]:
        return [(await sampler.sample([1], PARAMS, session="s")).version for _ in range(3)]

    assert asyncio.run(three()) == [3, 0, 4]
    assert (sampler.oldest, sampler.newest) == (3, 6)


@pytest.mark.parametrize(
    ("servers", "deadline_s", "message"),
    [
        (Servers(never), 0.01, r"no tokens from vLLM within 0\.01 s"),
        (Servers(breaks), 60.0, "vLLM failed: ConnectionResetError: the server's process has died"),
        (saying(output([], reason="aborted")), 60.0, r"vLLM gave no tokens \(stop reason 'aborted'\)"),
    ],
    ids=["hangs", "breaks", "says nothing"],
)
def test_a_server_without_an_answer_is_an_infra_fault(servers: Servers, deadline_s: float, message: str) -> None:
    with pytest.raises(BackendError, match=message):
        sample(servers, deadline_s)
    trajectory = play(servers, deadline_s)
    assert (trajectory.stop, trajectory.masked, trajectory.turns) == (StopReason.FAULT, True, ())
    (fault,) = trajectory.faults
    assert (fault.kind, fault.source) == (FaultKind.INFRA, "model")


def play(servers: Servers, deadline_s: float) -> Trajectory:
    def make_env(sample: Sample, context: ToolContext) -> ToolEnv:
        return ToolEnv(sample, DefaultToolManager([]), context)

    async def run() -> Trajectory:
        episode = Episode(Sample("1", "Who?"), make_env, RolloutLimits(2, 2, 20, 200), "s/0")
        trajectory = await rollout(episode, TokenModel(CHAT, ServerSampler(servers, deadline_s)))
        assert asyncio.all_tasks() == {asyncio.current_task()}  # what hung was cancelled
        return trajectory

    return asyncio.run(run())


def test_a_cancelled_trajectory_stays_cancelled() -> None:
    """Cancellation is no fault of the server's."""

    async def run() -> None:
        task = asyncio.create_task(ServerSampler(Servers(never), 60.0).sample([1], PARAMS, session="s"))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
