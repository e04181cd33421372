"""A teacher as a second model in the engine's process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("torch")

from tiny_models import eager_logprobs, make_model, random_ids, train_sequence

from rlfactory_core.engines.local.model.policy import PaddedPolicy, RaggedPolicy
from rlfactory_core.engines.local.teacher import LocalTeacher, check_vocabulary
from rlfactory_core.errors import ConfigError
from rlfactory_core.types import TaughtToken


def likeliest(ids: Sequence[int]) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    """The three likeliest tokens in the place of ids[1:], by one plain forward pass."""
    import torch

    logits = make_model("qwen3")(torch.tensor([list(ids)]), use_cache=False).logits[0, :-1].float()
    best = torch.log_softmax(logits, -1).topk(3, -1)
    return [(tuple(a), tuple(b)) for a, b in zip(best.indices.tolist(), best.values.tolist(), strict=True)]


@pytest.mark.parametrize("kind", [RaggedPolicy, PaddedPolicy])
@pytest.mark.parametrize("tokens", [10, 100, 10_000])
def test_its_log_probs_are_those_of_the_model_however_the_sequences_are_cut(
    kind: type[RaggedPolicy | PaddedPolicy], tokens: int
) -> None:
    shared = random_ids(20, 9)
    rows = [(*shared, *random_ids(length, length)) for length in (30, 5, 12, 40, 5)]
    sequences = [train_sequence(ids, [0] * 22 + [1] * (len(ids) - 22)) for ids in rows]
    reference = [eager_logprobs(make_model("qwen3"), ids)[21:].tolist() for ids in rows]
    likely = [likeliest(ids)[21:] for ids in rows]

    async def score(thread: ThreadPoolExecutor | None) -> Sequence[Sequence[TaughtToken]]:
        teacher = LocalTeacher(lambda: kind(make_model("qwen3")), thread, tokens, 1000)
        try:
            return await teacher.score(sequences, 3)
        finally:
            await teacher.close()

    with ThreadPoolExecutor(1) as shared_thread:
        for found in (asyncio.run(score(shared_thread)), asyncio.run(score(None))):
            assert [[token.logprob for token in each] for each in found] == [
                pytest.approx(each, abs=1e-4) for each in reference
            ]
            assert [[token.likely for token in each] for each in found] == [[ids for ids, _ in each] for each in likely]
            for tokens, best in zip(found, likely, strict=True):
                for token, (_, logprobs) in zip(tokens, best, strict=True):
                    assert token.logprobs == pytest.approx(logprobs, abs=1e-4)


def test_a_teacher_needs_every_token_of_the_model_and_may_have_more() -> None:
    trained = {"a": 0, "b": 1, "<call>": 2}
    check_vocabulary("big", trained, {**trained, "<more>": 3})
    with pytest.raises(ConfigError, match="1 have other ids; the first is 2: '<call>' for the model, no token for"):
        check_vocabulary("big", trained, {"a": 0, "b": 1})
    with pytest.raises(ConfigError, match="2 have other ids; the first is 0: 'a' for the model, 'b' for the teacher"):
        check_vocabulary("big", trained, {"a": 1, "b": 0, "<call>": 2})
