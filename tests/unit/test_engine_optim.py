"""The optimizer: schedule, who gets Muon, fp32 masters, refused gradients, resume."""

from __future__ import annotations

import io
import math
import sys
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from tiny_models import make_model
from torch import nn

from rlfactory_core.engines.local.learning.muon import Muon, orthogonal
from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions, schedule_factor
from rlfactory_core.errors import ConfigError, MissingExtraError


def fill(model: nn.Module, value: float = 0.01, seed: int = 0) -> None:
    """A gradient for every parameter."""
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = (torch.randn(p.shape, generator=generator) * value).to(p.dtype)


def copy(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def moved(model: nn.Module, before: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: float((p.detach() - before[name]).abs().max()) for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.25, 0.5, 0.75, 1.0, 1.0, 0.5, 0.0]),
        ("cosine", [0.25, 0.5, 0.75, 1.0, 1.0, 0.5, 0.0]),
    ],
)
def test_warm_up_and_decay(schedule: Any, expected: list[float]) -> None:
    options = OptimizerOptions(1.0, warmup_steps=4, total_steps=12, schedule=schedule)
    steps = (0, 1, 2, 3, 4, 8, 12)
    assert [schedule_factor(step, options) for step in steps] == pytest.approx(expected)
    assert schedule_factor(100, options) == pytest.approx(expected[-1])


def test_the_learning_rate_follows_the_schedule() -> None:
    model = nn.Linear(4, 4)
    optimizer = Optimizer(model, OptimizerOptions(0.1, warmup_steps=2))
    rates = []
    for _ in range(3):
        rates.append(optimizer.lr)
        fill(model)
        optimizer.step()
    assert rates == pytest.approx([0.05, 0.1, 0.1])


@pytest.mark.parametrize("tied", ["qwen3", "llama"])  # the first ties its head to its embedding
def test_muon_takes_hidden_matrices_only(tied: str) -> None:
    model = make_model(tied)
    optimizer = Optimizer(model, OptimizerOptions(lr=1e-9, muon_lr=0.1))
    before = copy(model)
    fill(model)
    optimizer.step()
    for name, distance in moved(model, before).items():
        hidden = "proj" in name
        assert (distance > 1e-4) == hidden, name


def test_muon_is_torchs_but_for_its_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(8, 8), (24, 8), (8, 24), (8, 8), (24, 8)]
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    ours, theirs = ([nn.Parameter(each.clone()) for each in start] for _ in range(2))
    keys = {"lr": 0.1, "weight_decay": 0.05}
    both = (Muon(ours, **keys), ours), (torch.optim.Muon(theirs, **keys), theirs)
    for _ in range(3):
        gradients = [torch.randn(shape, generator=generator) for shape in shapes]
        for optimizer, parameters in both:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
    for own, other, first in zip(ours, theirs, start, strict=True):
        assert (own - other).norm() < 0.02 * (other - first).norm()
    both[0][0].load_state_dict(both[1][0].state_dict())  # of a checkpoint of an earlier version


def test_an_orthogonalised_matrix_has_singular_values_near_1() -> None:
    found = orthogonal(torch.randn(3, 40, 16, generator=torch.Generator().manual_seed(1)))
    values = torch.linalg.svdvals(found)
    assert 0.6 < float(values.min()) <= float(values.max()) < 1.25


def test_bf16_weights_move_through_their_fp32_masters() -> None:
    """Steps far below bf16's resolution add up."""
    model = nn.Linear(8, 8, bias=False).to(torch.bfloat16)
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimizer = Optimizer(model, OptimizerOptions(lr=1e-3, max_grad_norm=1e9))
    for _ in range(10):
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
    assert model.weight.dtype == torch.bfloat16
    assert float(model.weight.detach().float().mean()) == pytest.approx(0.99, abs=2e-3)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e9])
def test_a_bad_gradient_skips_the_step(value: float) -> None:
    model = make_model("llama")
    optimizer = Optimizer(model, OptimizerOptions(lr=0.1, muon_lr=0.1, explode_norm=1e4))
    fill(model)
    optimizer.step()
    before = copy(model)
    fill(model)
    parameter = next(model.parameters())
    assert parameter.grad is not None
    parameter.grad[0, 0] = value
    norm, taken = optimizer.step()
    assert not taken
    assert not norm <= 1e4
    assert max(moved(model, before).values()) == 0.0
    assert all(p.grad is None for p in model.parameters())
    fill(model)
    assert optimizer.step()[1]
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_gradients_are_clipped_and_the_norm_is_from_before() -> None:
    model = nn.Linear(2, 1, bias=False)
    optimizer = Optimizer(model, OptimizerOptions(lr=0.1, max_grad_norm=1.0))
    model.weight.grad = torch.tensor([[30.0, 40.0]])
    norm, taken = optimizer.step()
    assert norm == pytest.approx(50.0)
    assert taken


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 32), (torch.bfloat16, 32), (torch.float32, 8)])
def test_a_resumed_optimizer_goes_on_as_if_nothing_had_happened(dtype: torch.dtype, bits: Literal[8, 32]) -> None:
    if bits == 8:
        pytest.importorskip("bitsandbytes")
    options = OptimizerOptions(lr=1e-3, muon_lr=0.02, weight_decay=0.1, warmup_steps=4, bits=bits)

    def train(model: nn.Module, optimizer: Optimizer, steps: range) -> None:
        for step in steps:
            fill(model, seed=step)
            optimizer.step()

    whole = make_model("qwen3").to(dtype)
    optimizer = Optimizer(whole, options)
    train(whole, optimizer, range(6))

    half = make_model("qwen3").to(dtype)
    first = Optimizer(half, options)
    train(half, first, range(3))
    saved = io.BytesIO()
    torch.save(first.state_dict(), saved)
    saved.seek(0)
    state, weights = torch.load(saved, weights_only=True), copy(half)
    resumed = make_model("qwen3", seed=1).to(dtype)
    resumed.load_state_dict(weights, strict=False)
    second = Optimizer(resumed, options)
    second.load_state_dict(state)
    train(resumed, second, range(3, 6))
    assert second.steps == 6
    assert all(torch.equal(tensor, copy(resumed)[name]) for name, tensor in copy(whole).items())
    other = resumed.to(torch.bfloat16 if dtype == torch.float32 else torch.float32)
    for changed in (replace(options, bits=40 - bits), replace(options, muon_lr=0.0), options):
        with pytest.raises(ConfigError, match=f"The checkpoint's optimizer has {bits} bits.*, and this run's has "):
            Optimizer(other, changed).load_state_dict(state)


def test_moments_of_8_bits_take_a_quarter_and_give_almost_the_same() -> None:
    pytest.importorskip("bitsandbytes")

    def train(bits: Literal[8, 32]) -> tuple[nn.Module, int]:
        torch.manual_seed(0)
        model = nn.Linear(256, 64, bias=False)
        optimizer = Optimizer(model, OptimizerOptions(lr=1e-2, bits=bits))
        for step in range(5):
            fill(model, seed=step)
            optimizer.step()
        held = io.BytesIO()
        torch.save(optimizer.state_dict(), held)
        return model, held.tell()

    (whole, much), (small, little) = train(32), train(8)
    assert little < much / 3
    assert 0 < (whole.weight - small.weight).abs().mean() < 3e-3  # five steps of 1e-2


def test_what_is_missing_for_8_bits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(MissingExtraError, match=r"rlfactory-core\[bits\]"):
        Optimizer(nn.Linear(4, 4), OptimizerOptions(lr=1e-2, bits=8))
