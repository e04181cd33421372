"""The engine on a GPU in bf16; skipped where there is none."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
import torch
from tiny_models import PADDED, RAGGED, eager_logprobs, make_model, random_ids, train_sequence

from rlfactory_core.algo.losses import LossOptions
from rlfactory_core.engines.local.decoding.padded_decoder import make_decoder
from rlfactory_core.engines.local.decoding.sampler import LocalSampler
from rlfactory_core.engines.local.learning.learner import Learner
from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.model.loading import choose_device, choose_dtype, make_policy
from rlfactory_core.engines.local.model.logprobs import token_logprobs
from rlfactory_core.engines.local.model.pack import pack
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.types import SampledTokens, SamplingParams, TrainBatch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

TOLERANCE = 0.05  # of log-probs in bf16, the median: single tokens of these sharp random models are off by more


def test_auto_is_the_gpu_in_bf16() -> None:
    device = choose_device("auto")
    assert device.type == "cuda"
    assert choose_dtype("auto", device) == torch.bfloat16


@pytest.mark.parametrize("name", [*RAGGED, *PADDED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_policy_equals_eager_fp32_on_the_cpu(name: str, dtype: torch.dtype) -> None:
    model = make_model(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype))
    sequences = [train_sequence(random_ids(n, n), [0] * 4 + [1] * (n - 4), n) for n in (70, 9, 33)]
    with torch.no_grad():
        expected = torch.cat([eager_logprobs(model, sequence.ids)[3:] for sequence in sequences])
    policy, report = make_policy(model.to("cuda", dtype))
    assert report.passed == (name in RAGGED), report.reason
    packed = pack(sequences, policy.device, share_prefix=policy.kind == "ragged")
    with torch.no_grad():
        logprobs, _ = token_logprobs(policy.target_logits(packed), packed.target_ids, 1.0)
    error = (logprobs.cpu() - expected).abs()
    if dtype == torch.float32:
        assert error.max() < 1e-2
    else:
        assert error.median() < TOLERANCE


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "bloom"])
def test_sampling_and_updating_in_bf16(name: str) -> None:
    policy, _ = make_policy(make_model(name).to("cuda", torch.bfloat16))
    prefix = random_ids(10, 1)
    decoder = make_decoder(policy, slots=4, prefix=prefix, stop_token_ids=(7,))

    async def sample() -> list[tuple[tuple[int, ...], SampledTokens]]:
        prompts = [(*prefix, *random_ids(3 + i, i)) for i in range(12)]
        with ThreadPoolExecutor(1) as compute:
            async with LocalSampler(decoder, compute) as sampler:

                async def one(i: int) -> SampledTokens:
                    params = SamplingParams(10, seed=i, stop_token_ids=(7,))
                    tokens = await sampler.sample(prompts[i], params, session=str(i))
                    await sampler.release(str(i))
                    return tokens

                return list(zip(prompts, await asyncio.gather(*(one(i) for i in range(12))), strict=True))

    sequences, logprobs = [], []
    for ids, tokens in asyncio.run(sample()):
        mask = [0] * len(ids) + [1] * len(tokens.token_ids)
        sequences.append(train_sequence((*ids, *tokens.token_ids), mask, seed=len(sequences)))
        logprobs += tokens.logprobs
    learner = Learner(policy, Optimizer(policy.model, OptimizerOptions(1e-3)), Workers(), LossOptions())
    microbatches = learner.pack(TrainBatch(tuple(sequences)))
    before = torch.tensor(list(chain(*learner.score(sequences))))
    assert (before - torch.tensor(logprobs)).abs().median() < TOLERANCE
    step = learner.step(microbatches)
    assert step.taken
    assert step.norm > 0
    assert (torch.tensor(list(chain(*learner.score(sequences)))) - before).abs().max() > 0
