"""A base in 4 bits: its numbers are bitsandbytes', adapters learn beside it, and what is saved is whole."""

from __future__ import annotations

import copy
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import BASE, make_model, random_ids, train_sequence
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from rlfactory_core.algo.losses import LossOptions
from rlfactory_core.algo.settings import LoraConfig
from rlfactory_core.config import RunConfig
from rlfactory_core.engines.adapters import read_adapter
from rlfactory_core.engines.exports import ADAPTER, write_adapter
from rlfactory_core.engines.local.decoding.decoder import Request
from rlfactory_core.engines.local.decoding.padded_decoder import make_decoder
from rlfactory_core.engines.local.engine import LocalEngine
from rlfactory_core.engines.local.learning.learner import Learner
from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.model.four_bits import FourBitLinear, quantize
from rlfactory_core.engines.local.model.half import compute_in_bfloat16
from rlfactory_core.engines.local.model.loading import make_policy, write_model
from rlfactory_core.engines.local.model.logprobs import token_logprobs
from rlfactory_core.engines.local.model.lora import adapter_weights, add_lora
from rlfactory_core.engines.local.model.pack import pack
from rlfactory_core.engines.local.model.policy import Policy
from rlfactory_core.engines.local.tiny.tiny_model import build_tokenizer
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.errors import ConfigError, MissingExtraError
from rlfactory_core.types import SamplingParams, TrainBatch

LORA = LoraConfig(rank=4, alpha=8, base_bits=4)
CPU = torch.device("cpu")
PROMPT = random_ids(20, 1)
with_bits = pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="needs rlfactory-core[bits]")
with_peft = pytest.mark.skipif(find_spec("peft") is None, reason="needs rlfactory-core[lora]")


def wide_model() -> Any:
    """Qwen3 with layers of 64 and 128 inputs."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16, "tie_word_embeddings": True}
    model = Qwen3ForCausalLM(Qwen3Config(**{**BASE, **sizes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5.0 if parameter.ndim == 2 else 1.0)
    return model


def policy(*, half: bool = False, targets: str = "all-linear") -> Policy:
    model = wide_model()
    quantize(model, CPU)
    made, report = make_policy(model)
    assert report.passed
    assert made.kind == "ragged"
    add_lora(model, LORA.model_copy(update={"targets": targets}))
    if half:
        compute_in_bfloat16(model)
    return made


def trained(made: Policy, steps: int = 3) -> Policy:
    learner = Learner(made, Optimizer(made.model, OptimizerOptions(lr=0.02)), Workers(), LossOptions())
    rows = tuple(train_sequence((*PROMPT, *random_ids(9, n)), [0] * 20 + [1] * 9, n) for n in (2, 3))
    for _ in range(steps):
        step = learner.step(learner.pack(TrainBatch(rows)))
        assert step.taken
        assert step.norm > 0
    return made


@torch.no_grad()
def logits(made: Policy) -> Tensor:
    row = train_sequence((*PROMPT, *random_ids(9, 5)), [0] * 20 + [1] * 9)
    return made.target_logits(pack([row], CPU, share_prefix=True)).float()


@with_bits
def test_weights_are_rounded_to_the_nearest_of_16_levels_of_their_block() -> None:
    from bitsandbytes.functional import get_4bit_type

    torch.manual_seed(0)
    plain = nn.Linear(192, 7)
    layer = FourBitLinear(plain, CPU)
    blocks = plain.weight.detach().view(-1, 64, 1)
    levels = blocks.abs().amax(1, keepdim=True) * get_4bit_type("nf4", device="cpu")
    nearest = levels.expand(-1, 64, -1).gather(2, (levels - blocks).abs().argmin(2, keepdim=True))
    assert torch.allclose(layer.weight, nearest.view(7, 192))
    x = torch.randn(3, 192, requires_grad=True)
    wanted = nn.functional.linear(x, layer.weight, plain.bias)
    seen = torch.randn(3, 7)
    assert torch.allclose(layer(x), wanted, atol=1e-5)
    ours, theirs = (torch.autograd.grad(y, x, seen)[0] for y in (layer(x), wanted))
    assert torch.allclose(ours, theirs, atol=1e-5)


@with_bits
@with_peft
@pytest.mark.parametrize("half", [pytest.param(False, marks=pytest.mark.slow), True])
def test_what_is_sampled_has_the_log_probs_of_training(*, half: bool) -> None:
    made = trained(policy(half=half))
    decoder = make_decoder(made, slots=1, prefix=PROMPT[:9], stop_token_ids=())
    done = decoder.admit([Request("s", PROMPT, SamplingParams(max_tokens=12, temperature=1.0, seed=1))])
    while not done:
        done = decoder.step()
    sampled = done[0][1]
    row = train_sequence((*PROMPT, *sampled.token_ids), [0] * 20 + [1] * 12)
    batch = pack([row], CPU, share_prefix=True)
    with torch.no_grad():
        again = token_logprobs(made.target_logits(batch), batch.target_ids, 1.0)[0]
    assert (again - torch.tensor(sampled.logprobs)).abs().max() < (0.1 if half else 1e-4)


@with_bits
@with_peft
@pytest.mark.parametrize("targets", [pytest.param("all-linear", marks=pytest.mark.slow), "q_proj"])
def test_a_checkpoint_is_the_base_as_it_is_used_with_the_adapters_merged(targets: str, tmp_path: Path) -> None:
    made = policy(targets=targets)
    packed = {name: tensor.clone() for name, tensor in made.model.state_dict().items() if name.endswith("packed")}
    assert len(packed) == 2 * 7
    before = logits(made)
    trained(made)
    assert (logits(made) - before).abs().max() > 0.1
    assert all(torch.equal(tensor, made.model.state_dict()[name]) for name, tensor in packed.items())
    write_model(tmp_path, made.model, build_tokenizer(["a b"], 300))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert {*loaded.state_dict()} == {*wide_model().state_dict()}
    assert (logits(make_policy(loaded)[0]) - logits(made)).abs().max() < 1e-3
    base = {name: tensor for name, tensor in wide_model().state_dict().items() if "mlp.up_proj" in name}
    if targets == "q_proj":  # other layers are what they are rounded to
        assert all(0 < (loaded.state_dict()[name] - tensor).abs().mean() < 0.1 for name, tensor in base.items())


@with_bits
@with_peft
@pytest.mark.slow
def test_adapters_go_on_in_a_copy_to_the_bit() -> None:
    whole = trained(policy(), 2)
    again = policy()
    again.model.load_state_dict(copy.deepcopy(whole.model.state_dict()))
    assert torch.equal(logits(again), logits(whole))
    weights = adapter_weights(trained(whole, 1).model)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in adapter_weights(trained(again, 1).model).items())


def test_an_adapter_says_beside_which_base_it_was_trained(tmp_path: Path) -> None:
    weights = {f"model.layers.0.self_attn.q_proj.lora_{side}.weight": torch.ones(2, 2) for side in "AB"}
    for bits in (4, None):
        (tmp_path / "base").mkdir(exist_ok=True)
        write_adapter(tmp_path, LORA.model_copy(update={"base_bits": bits}), weights, str(tmp_path / "base"))
        assert read_adapter(tmp_path / ADAPTER).lora.get("base_bits") == bits


def test_what_is_missing_for_4_bits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig.model_validate({"plugin": "tools", "device": "cpu", "train": {"lora": {"base_bits": 4}}})
    monkeypatch.setitem(sys.modules, "bitsandbytes.functional", None)
    with pytest.raises(
        MissingExtraError, match=r"train.lora.base_bits=4 needs bitsandbytes .* 'rlfactory-core\[bits\]'"
    ):
        LocalEngine().prepare(config)


@pytest.mark.parametrize(("name", "why"), [("gpt2", "no linear layers"), ("qwen3", "q_proj has 32")])
def test_what_cannot_be_in_4_bits_is_refused(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        quantize(make_model(name), CPU)
