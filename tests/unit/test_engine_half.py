"""Products in bfloat16 on the CPU: what they change, and what they leave as it is."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny_models import make_model, random_ids, train_sequence

from rlfactory_core.algo.losses import LossOptions
from rlfactory_core.algo.settings import LoraConfig
from rlfactory_core.config import RunConfig
from rlfactory_core.engines.local.decoding.decoder import Request, SlotDecoder
from rlfactory_core.engines.local.decoding.padded_decoder import PaddedDecoder
from rlfactory_core.engines.local.learning import optimizer
from rlfactory_core.engines.local.learning.critic import value_model
from rlfactory_core.engines.local.learning.learner import Learner
from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.model import loading
from rlfactory_core.engines.local.model.half import compute_in_bfloat16
from rlfactory_core.engines.local.model.logprobs import token_logprobs
from rlfactory_core.engines.local.model.lora import add_lora, merged_state_dict
from rlfactory_core.engines.local.model.pack import Packed, pack
from rlfactory_core.engines.local.model.policy import PaddedPolicy, Policy, RaggedPolicy
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.types import SamplingParams

PROMPT = random_ids(20, 1)


def packed(kind: str = "ragged") -> Packed:
    rows = [train_sequence((*PROMPT, *random_ids(12, seed)), [0] * 20 + [1] * 12, seed) for seed in (2, 3)]
    return pack(rows, torch.device("cpu"), share_prefix=kind == "ragged")


def logprobs(policy: Policy) -> torch.Tensor:
    batch = packed(policy.kind)
    return token_logprobs(policy.target_logits(batch), batch.target_ids, 1.0)[0]


def halved(name: str = "qwen3", policy: type[Policy] = RaggedPolicy) -> Policy:
    made = policy(make_model(name))
    compute_in_bfloat16(made.model)
    return made


def gradient(policy: Policy) -> torch.Tensor:
    trained = [p for p in policy.model.parameters() if p.requires_grad]
    found = torch.autograd.grad((logprobs(policy) * packed().advantages).sum(), trained)
    assert all(each.dtype == torch.float32 for each in found)
    return torch.cat([each.flatten() for each in found])


@pytest.mark.parametrize(
    ("name", "policy"), [("qwen3", RaggedPolicy), ("gemma3", RaggedPolicy), ("bloom", PaddedPolicy)]
)
def test_it_is_almost_the_float32_model(name: str, policy: type[Policy]) -> None:
    plain, half = policy(make_model(name)), halved(name, policy)
    difference = (logprobs(plain) - logprobs(half)).abs()
    assert 0 < difference.mean() < 0.05
    assert torch.cosine_similarity(gradient(plain), gradient(half), 0) > 0.99
    assert {tensor.dtype for tensor in half.model.state_dict().values()} == {torch.float32}


@pytest.mark.parametrize(("name", "policy"), [("qwen3", RaggedPolicy), ("bloom", PaddedPolicy)])
def test_what_is_sampled_has_almost_the_log_probs_of_training(name: str, policy: type[Policy]) -> None:
    half = halved(name, policy)
    decoder = (
        SlotDecoder(half, slots=2, prefix=PROMPT[:9], stop_token_ids=())
        if isinstance(half, RaggedPolicy)
        else PaddedDecoder(half, slots=2)
    )
    request = Request("s", PROMPT, SamplingParams(max_tokens=12, temperature=1.0, seed=1))
    done = decoder.admit([request])
    while not done:
        done = decoder.step()
    sampled = done[0][1]
    row = train_sequence((*PROMPT, *sampled.token_ids), [0] * 20 + [1] * 12)
    batch = pack([row], torch.device("cpu"), share_prefix=half.kind == "ragged")
    trained = token_logprobs(half.target_logits(batch), batch.target_ids, 1.0)[0]
    assert (trained - torch.tensor(sampled.logprobs)).abs().mean() < 0.05


@pytest.mark.parametrize("fused", [False, True])
def test_an_update_changes_what_is_sampled_next(monkeypatch: pytest.MonkeyPatch, *, fused: bool) -> None:
    monkeypatch.setattr(optimizer, "_FUSED_FROM", 0 if fused else 10**9)
    half = halved()
    learner = Learner(half, Optimizer(half.model, OptimizerOptions(1e-2)), Workers(), LossOptions())
    before = logprobs(half)
    assert learner.step([packed()]).taken
    after = logprobs(half)
    fresh = RaggedPolicy(make_model("qwen3"))
    fresh.model.load_state_dict(half.model.state_dict())
    compute_in_bfloat16(fresh.model)
    assert torch.equal(after, logprobs(fresh))
    assert not torch.equal(after, before)


def test_copies_compute_in_bfloat16_as_well() -> None:
    half = halved()
    start = half.of(copy.deepcopy(half.model).requires_grad_(requires_grad=False))
    with torch.no_grad():
        assert torch.equal(logprobs(start), logprobs(half))
    critic = half.of(value_model(half.model, seed=0))
    values = critic.target_logits(packed())
    assert (values.dtype, values.shape) == (torch.float32, (24, 1))
    values.sum().backward()
    assert critic.model.get_output_embeddings().weight.grad is not None


def test_frozen_layers_need_no_second_copy() -> None:
    model = add_lora(make_model("qwen3"), LoraConfig(rank=2))
    policy = RaggedPolicy(model)
    before = logprobs(policy)
    compute_in_bfloat16(model)
    assert model.model.layers[0].mlp.up_proj.base_layer.weight.dtype == torch.bfloat16
    assert (logprobs(policy) - before).abs().mean() < 0.05
    assert gradient(policy).abs().sum() > 0
    merged = merged_state_dict(model)
    assert merged is not None
    plain = make_model("qwen3")
    plain.load_state_dict(merged)
    assert (logprobs(RaggedPolicy(plain)) - logprobs(policy)).abs().mean() < 0.05


def test_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(parameters: int = 10**8, **keys: object) -> str | None:
        config = RunConfig.model_validate({"plugin": "tools", "device": "cpu", "model": "some", **keys})
        return loading.chooses_bfloat16_products(config, parameters)

    monkeypatch.setattr(loading, "bfloat16_flag", lambda: "amx_bf16")
    assert chosen() == "amx_bf16"
    assert chosen(10**6) is None
    assert chosen(dtype="float32") is None
    assert chosen(model=None) is None
    monkeypatch.setattr(loading, "bfloat16_flag", lambda: None)
    assert chosen() is None
