"""LoRA: only adapters are trained, the start model is the same model without them, and what is saved is whole."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import make_model, random_ids, train_sequence
from transformers import AutoModelForCausalLM

from rlfactory_core.algo.losses import LossOptions
from rlfactory_core.algo.settings import LoraConfig
from rlfactory_core.engines.exports import ADAPTER, write_adapter
from rlfactory_core.engines.local.decoding.decoder import Request
from rlfactory_core.engines.local.decoding.padded_decoder import make_decoder
from rlfactory_core.engines.local.learning.learner import Learner
from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.model import lora
from rlfactory_core.engines.local.model.half import compute_in_bfloat16
from rlfactory_core.engines.local.model.loading import make_policy, write_model
from rlfactory_core.engines.local.model.lora import (
    EarlierPolicy,
    StartPolicy,
    adapter_start,
    adapter_weights,
    add_lora,
    load_adapter_weights,
)
from rlfactory_core.engines.local.model.pack import Packed, pack
from rlfactory_core.engines.local.model.policy import Policy, RaggedPolicy
from rlfactory_core.engines.local.tiny.tiny_model import build_tokenizer
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.errors import ConfigError
from rlfactory_core.types import SamplingParams, TrainBatch

pytestmark = pytest.mark.skipif(find_spec("peft") is None, reason="needs rlfactory-core[lora]")  # costly to import

OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("gpt2", "bloom", "qwen3_moe")]
CONFIG = LoraConfig(rank=4, alpha=8)
OPTIONS = OptimizerOptions(lr=0.02)


def batch(model: Any = None) -> TrainBatch:
    sequences = tuple(train_sequence(random_ids(n, n), [0] * 5 + [1] * (n - 5), n) for n in (30, 18, 22))
    return TrainBatch(sequences)


def packed() -> Packed:
    return pack(batch().sequences, torch.device("cpu"), share_prefix=True)


def learner(policy: Policy, **options: Any) -> Learner:
    reference = StartPolicy(policy)
    loss = LossOptions(clip_low=1.0, clip_high=1e9, kl=0.1, truncate=2.0)
    return Learner(policy, Optimizer(policy.model, OPTIONS), Workers(), loss, reference=reference, **options)


def train(teacher: Learner, steps: int = 3) -> list[float]:
    """Returns the KL of each step."""
    found = []
    for _ in range(steps):
        step = teacher.step(teacher.pack(batch()))
        assert step.taken
        assert step.norm > 0
        found.append(step.sums["kl"])
    return found


@pytest.mark.parametrize("name", ["qwen3", *OTHERS[:2]])
def test_only_adapters_move_and_the_start_model_stays(name: str) -> None:
    model = make_model(name)
    start = copy.deepcopy(model)
    start_policy, _ = make_policy(start)
    with torch.no_grad():
        before = start_policy.target_logits(packed())
    policy, report = make_policy(add_lora(model, CONFIG))
    assert report.passed == (name != "bloom")
    assert {n.split(".")[-3].removesuffix("_proj") for n in adapter_weights(model)} <= {
        *("lora_A", "lora_B", "q", "k", "v", "o", "gate", "up", "down"),
        *("c_attn", "c_proj", "c_fc", "query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"),
    }
    with torch.no_grad():
        assert torch.equal(policy.target_logits(packed()), before)  # an untrained adapter changes nothing
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    teacher = learner(policy)
    kl = train(teacher)
    assert kl[0] == pytest.approx(0.0, abs=1e-5)
    assert kl[-1] > 0.01
    trained = dict(model.named_parameters())
    assert all(torch.equal(tensor, trained[n]) for n, tensor in frozen.items())
    with torch.no_grad():
        assert (policy.target_logits(packed()) - before).abs().max() > 0.1
        assert torch.equal(StartPolicy(policy).target_logits(packed()), before)
    assert set(adapter_weights(model)) == {n for n, p in model.named_parameters() if p.requires_grad} - set(frozen)


def test_kl_gradients_are_those_of_a_second_copy() -> None:
    """Switching adapters off within the step must not cost the step its gradient."""

    def one_step(second_copy: bool) -> dict[str, torch.Tensor]:
        model = make_model("qwen3")
        start = RaggedPolicy(copy.deepcopy(model).requires_grad_(requires_grad=False))
        teacher = learner(RaggedPolicy(add_lora(model, CONFIG)))
        if second_copy:
            teacher.reference = start
        train(teacher, 3)
        return adapter_weights(model)

    ours, theirs = one_step(second_copy=False), one_step(second_copy=True)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-5) for name in theirs)


@pytest.mark.parametrize("name", ["qwen3", *OTHERS])
def test_a_checkpoint_holds_the_merged_model_and_the_live_one_is_untouched(name: str, tmp_path: Path) -> None:
    model = make_model(name)
    plain_names = {*model.state_dict()}
    policy, _ = make_policy(add_lora(model, CONFIG))
    train(learner(policy))
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    made = tmp_path / "step-1"
    write_model(made, model, build_tokenizer(["a b"], 300))
    after = model.state_dict()
    assert set(before) == set(after)
    assert all(torch.equal(tensor, after[key]) for key, tensor in before.items())
    loaded = AutoModelForCausalLM.from_pretrained(made, attn_implementation="eager").eval()
    assert {*loaded.state_dict()} == plain_names
    assert not (made / "adapter_config.json").exists()
    exported, _ = make_policy(loaded)
    with torch.no_grad():
        assert (exported.target_logits(packed()) - policy.target_logits(packed())).abs().max() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_resumed_run_goes_on_as_if_nothing_had_happened(dtype: torch.dtype) -> None:
    whole = learner(RaggedPolicy(add_lora(make_model("qwen3").to(dtype), CONFIG, seed=5)))
    train(whole, 4)

    half = learner(RaggedPolicy(add_lora(make_model("qwen3").to(dtype), CONFIG, seed=5)))
    train(half, 2)
    weights, optimizer = adapter_weights(half.policy.model), copy.deepcopy(half.optimizer.state_dict())
    train(half, 1)  # the weights are copies

    model = add_lora(make_model("qwen3").to(dtype), CONFIG, seed=6)
    load_adapter_weights(model, weights)
    resumed = learner(RaggedPolicy(model))
    resumed.optimizer.load_state_dict(optimizer)
    train(resumed, 2)
    expected = adapter_weights(whole.policy.model)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in adapter_weights(model).items())


def test_sampling_goes_through_the_adapters_without_their_dropout() -> None:
    model = make_model("qwen3")
    policy, _ = make_policy(add_lora(model, LoraConfig(rank=4, alpha=8, dropout=0.5)))
    teacher = learner(policy)
    microbatches = teacher.pack(batch())
    for _ in range(2):
        teacher.step(microbatches)
    item = Request("s", random_ids(20, 1), SamplingParams(10, seed=1))
    decoder = make_decoder(policy, slots=1, prefix=(), stop_token_ids=())
    finished = decoder.admit([item])
    while not finished:
        finished = decoder.step()
    tokens = finished[0][1]
    ids = (*item.ids, *tokens.token_ids)
    own = pack([train_sequence(ids, [0] * 20 + [1] * 10)], torch.device("cpu"), share_prefix=True)
    with torch.no_grad():
        expected = policy.target_logits(own).log_softmax(-1).gather(1, own.target_ids[:, None])[:, 0]
    assert (torch.tensor(tokens.logprobs) - expected).abs().max() < 1e-4


def test_adapters_are_drawn_from_the_seed_alone() -> None:
    def drawn(seed: int) -> dict[str, torch.Tensor]:
        model = make_model("llama")
        torch.manual_seed(torch.seed())
        return adapter_weights(add_lora(model, CONFIG, seed))

    first, again, other = drawn(1), drawn(1), drawn(2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_targets_by_name_and_unknown_ones() -> None:
    model = add_lora(make_model("llama"), LoraConfig(targets="q_proj, v_proj"))
    assert {name.split(".")[4] for name in adapter_weights(model)} == {"q_proj", "v_proj"}
    with pytest.raises(ConfigError, match="wrong_proj"):
        add_lora(make_model("llama"), LoraConfig(targets="wrong_proj"))


def test_weights_of_other_adapters_are_refused() -> None:
    weights = adapter_weights(add_lora(make_model("llama"), LoraConfig(rank=2)))
    with pytest.raises(ConfigError, match="rank"):
        load_adapter_weights(add_lora(make_model("llama"), LoraConfig(rank=3)), weights)


def test_a_model_without_adapters_has_nothing_to_merge() -> None:
    model = make_model("llama")
    assert lora.merged_state_dict(model) is None
    assert adapter_weights(model) == {}


def test_an_adapter_of_peft_is_trained_further_where_it_was(tmp_path: Path) -> None:
    trained = add_lora(make_model("qwen3"), CONFIG)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(0.05 * parameter.requires_grad)
    weights = {name.replace(".default.", "."): tensor for name, tensor in adapter_weights(trained).items()}
    write_adapter(tmp_path, CONFIG, weights, "base")
    again = add_lora(make_model("qwen3"), CONFIG, seed=1)
    load_adapter_weights(again, adapter_start(str(tmp_path / ADAPTER)))
    ids = torch.tensor([random_ids(20, 0)])
    assert torch.equal(again(ids).logits, trained(ids).logits)
    with pytest.raises(ConfigError, match="as they were"):
        load_adapter_weights(add_lora(make_model("qwen3"), LoraConfig(rank=2)), adapter_start(str(tmp_path / ADAPTER)))


@pytest.mark.parametrize("half", [False, True])
def test_the_adapters_of_a_stage_s_start_are_its_reference(*, half: bool) -> None:
    model = add_lora(make_model("qwen3"), LoraConfig(rank=4, alpha=8, dropout=0.3))
    if half:
        compute_in_bfloat16(model)
    policy = RaggedPolicy(model)
    train(learner(policy))
    start = adapter_weights(model)
    with torch.no_grad():
        before = policy.target_logits(packed())
    trained = learner(policy)
    trained.reference = EarlierPolicy(policy, start)
    assert train(trained, 3)[-1] > 1e-3
    with torch.no_grad():
        now = policy.target_logits(packed())
        resumed = EarlierPolicy(policy, start)  # from the copy in a checkpoint
        for reference in (trained.reference, resumed):
            assert torch.equal(reference.target_logits(packed()), before)
        assert torch.equal(policy.target_logits(packed()), now)
    assert not torch.equal(now, before)
    assert adapter_weights(model).keys() == start.keys()
