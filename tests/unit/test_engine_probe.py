"""The probe accepts models that run without padding, refuses others, and detects a wrong plan."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_models import PADDED, RAGGED, make_model

from rlfactory_core.engines.local.decoding.decoder import SlotDecoder
from rlfactory_core.engines.local.decoding.padded_decoder import PaddedDecoder, make_decoder
from rlfactory_core.engines.local.model import plans, probe
from rlfactory_core.engines.local.model.loading import make_policy
from rlfactory_core.engines.local.model.probe import ProbeReport


@pytest.mark.parametrize("name", RAGGED)
def test_families_that_run_without_padding(name: str) -> None:
    policy, report = make_policy(make_model(name))
    assert report.passed, report.reason
    assert policy.kind == "ragged"
    assert max(report.sampling_error, report.training_error, report.gradient_error) < 1e-4
    assert "agrees" in report.line()
    decoder = make_decoder(policy, slots=2, prefix=(), stop_token_ids=(7,), version=4)
    assert isinstance(decoder, SlotDecoder)
    assert decoder.version == 4


@pytest.mark.parametrize("name", PADDED)
def test_families_that_are_refused_with_a_reason(name: str) -> None:
    model = make_model(name)
    policy, report = make_policy(model)
    assert policy.kind == "padded"
    assert report.line().startswith("padded attention is used, which is slower: ")
    reason = "soft-capping or sinks" if name in ("gemma2", "gpt_oss") else "differs from its eager forward"
    assert reason in report.reason
    assert isinstance(make_decoder(policy, slots=2, prefix=(), stop_token_ids=(7,)), PaddedDecoder)
    logits = model(torch.arange(1, 9)[None], use_cache=False).logits  # the model is as it was
    assert torch.isfinite(logits).all()


def _without_own_window(attend: Any) -> Any:
    def wrong(self: Any, layer: int, q: Any, k: Any, v: Any, scale: float, window: int | None) -> Any:
        return attend(self, layer, q, k, v, scale, None)

    return wrong


def _shifted_positions(init: Any) -> Any:
    def wrong(self: Any, *args: Any) -> None:
        init(self, *args)
        self.positions = self.positions + (self.positions > 30)  # wrong only late in a sequence

    return wrong


def _without_last_key(attend: Any) -> Any:
    def wrong(self: Any, *args: Any) -> Any:
        distance, self.distance = self.distance, self.distance - 1
        try:
            return attend(self, *args)
        finally:
            self.distance = distance

    return wrong


@pytest.mark.parametrize(
    ("plan", "method", "mistake", "seen_in"),
    [
        (plans.DecodePlan, "attend", _without_own_window, "sampling_error"),
        (plans.PrefillPlan, "attend", _without_own_window, "sampling_error"),
        (plans.TrainPlan, "attend", _without_own_window, "training_error"),
        (plans.PrefillPlan, "attend", _without_last_key, "sampling_error"),
        (plans.Bucket, "attend", _without_last_key, "gradient_error"),
        (plans.DecodePlan, "__init__", _shifted_positions, "sampling_error"),
        (plans.TrainPlan, "__init__", _shifted_positions, "training_error"),
    ],
)
def test_a_wrong_plan_is_caught(
    plan: Any, method: str, mistake: Any, seen_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, method, mistake(getattr(plan, method)))
    report = probe.probe(make_model("gemma3"))
    assert not report.passed
    assert getattr(report, seen_in) > 1e-3


def test_a_window_that_no_trajectory_reaches_does_not_matter() -> None:
    """The probe stays within the run's longest trajectory."""
    report = probe.probe(make_model("mistral"), max_tokens=40)
    assert report.passed
    sequences = probe._sequences(make_model("mistral"), 40)
    assert max(len(sequence.ids) for sequence in sequences) <= 40


def test_a_model_that_raises_is_padded_not_fatal() -> None:
    model = make_model("llama")

    def broken(*_args: Any, **_kwargs: Any) -> None:
        raise KeyError("plan")

    model.model.layers[0].register_forward_pre_hook(broken)
    report = probe.probe(model)
    assert not report.passed
    assert "plan" in report.reason


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe", "gemma3", "lfm2"])
def test_half_precision_hides_nothing_and_comes_back_bit_by_bit(name: str) -> None:
    """In bf16 the error of LFM2's convolutions is hardly larger than the rounding of a mixture of experts."""
    model = make_model(name).to(torch.bfloat16)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    report = probe.probe(model)
    assert report.passed == (name in RAGGED), report.reason
    for key, tensor in model.state_dict().items():
        assert tensor.dtype == before[key].dtype
        assert torch.equal(tensor, before[key])


def test_without_room_for_fp32_the_model_is_tried_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    errors, tried = probe._errors, []

    def full(model: Any, sequences: Any) -> dict[str, float]:
        tried.append(model.dtype)
        if model.dtype == torch.float32:
            raise torch.OutOfMemoryError
        return errors(model, sequences)

    monkeypatch.setattr(probe, "_errors", full)
    assert probe.probe(make_model("qwen3").to(torch.bfloat16)).passed
    assert tried == [torch.float32, torch.bfloat16]


def test_nan_is_not_agreement() -> None:
    model = make_model("llama")
    with torch.no_grad():
        model.lm_head.weight[:5] = float("nan")
    assert not probe.probe(model).passed


def test_the_verdict_in_words() -> None:
    assert ProbeReport(passed=False, reason="why").line().endswith(": why")
