"""The policy-moved proof on verl: which of vLLM's log-probs are compared, and a sampler that keeps its weights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="the verl engine: rlfactory doctor --engine verl --install")

from rlfactory_verl.moved import PolicyMovedProof, ScoredRow, prompt_logprobs

from rlfactory_core.errors import TrainingError

ROW = ScoredRow([7, 8, 9, 4, 5], [2, 4], [-1.0, -2.0], [-1.0, -2.0], [-0.5, -2.5])
"""The prompt 7 8, the sampled 9, an observation 4, and the sampled 5."""


class Servers:
    """verl's client, whose log-probs are a function of the token."""

    def __init__(self, logprob: Callable[[int], float]) -> None:
        self._logprob = logprob
        self.asked: list[dict[str, Any]] = []

    async def generate(self, **asked: Any) -> Any:
        self.asked.append(asked)
        scored = [[self._logprob(token)] for token in asked["prompt_ids"][1:]]
        return SimpleNamespace(extra_fields={"prompt_logprobs": [*scored, [0.0]]})  # verl pads the last one


def proof(servers: Servers, step: int = 3) -> PolicyMovedProof:
    made = PolicyMovedProof()
    made._rows = [ROW]
    made.synced(servers, step)
    return made


def test_the_sampled_tokens_are_scored_in_their_order() -> None:
    servers = Servers(lambda token: -token / 10)
    assert asyncio.run(prompt_logprobs(servers, [ROW, ROW])) == [-0.9, -0.5, -0.9, -0.5]
    assert [each["prompt_ids"] for each in servers.asked] == [ROW.ids] * 2
    assert servers.asked[0]["sampling_params"] == {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}


def test_servers_that_make_other_tokens_of_an_image_stop_the_run() -> None:
    class Longer(Servers):
        async def generate(self, **asked: Any) -> Any:
            return SimpleNamespace(extra_fields={"prompt_logprobs": [[0.0]] * (len(asked["prompt_ids"]) + 3)})

    with pytest.raises(TrainingError, match=r"vLLM sees 8 tokens .* the trainer 5"):
        proof(Longer(float))


def test_servers_with_the_new_weights_end_the_proof() -> None:
    made = proof(Servers({9: -0.5, 5: -2.5, 8: 0.0, 4: 0.0}.__getitem__))
    assert made.over
    assert made.found is not None
    assert (made.found.step, made.found.to_new, made.found.to_old) == (3, 0.0, 0.5)


def test_servers_with_the_old_weights_stop_the_run() -> None:
    with pytest.raises(TrainingError, match=r"update of step 3 .* moved by 0\.5 nats"):
        proof(Servers({9: -1.0, 5: -2.0, 8: 0.0, 4: 0.0}.__getitem__))


def test_an_answer_that_was_given_up_decides_nothing() -> None:
    class Paused(Servers):
        async def generate(self, **asked: Any) -> Any:
            return SimpleNamespace(extra_fields={"global_steps": 3})

    made = proof(Paused(float))
    assert made.found is None
    assert not made.over
