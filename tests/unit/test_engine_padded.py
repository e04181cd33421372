"""Padded decoding of any family: what is sampled is what the model's own plain forward pass says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from tiny_models import PADDED, VOCABULARY, eager_logprobs, make_model, random_ids, train_sequence

from rlfactory_core.engines.local.decoding.decoder import Request
from rlfactory_core.engines.local.decoding.padded_decoder import PaddedDecoder
from rlfactory_core.engines.local.model.logprobs import token_logprobs
from rlfactory_core.engines.local.model.pack import pack
from rlfactory_core.engines.local.model.policy import PaddedPolicy
from rlfactory_core.errors import ModelError
from rlfactory_core.types import SampledTokens, SamplingParams

FAMILIES = (*PADDED, "gpt2", "opt", "gemma3")
STOPS = tuple(range(20, 30))


def request(name: str, ids: tuple[int, ...], **params: Any) -> Request:
    return Request(name, ids, SamplingParams(**{"max_tokens": 8, "stop_token_ids": STOPS, **params}))


def run(decoder: PaddedDecoder, *requests: Request) -> dict[str, SampledTokens]:
    assert decoder.admissible(requests) == list(requests)
    finished = decoder.admit(requests)
    assert decoder.active == 0
    return {item.session: tokens for item, tokens in finished}


def worst_error(model: Any, item: Request, tokens: SampledTokens) -> float:
    ids = (*item.ids, *tokens.token_ids)
    with torch.no_grad():
        expected = eager_logprobs(model, ids, item.params.temperature or 1.0)[-len(tokens.token_ids) :]
    return float((torch.tensor(tokens.logprobs) - expected).abs().max())


@pytest.mark.parametrize("name", FAMILIES)
def test_sampled_and_trained_logprobs_equal_the_plain_forward(name: str) -> None:
    """Rows of very unequal length, with limits, temperatures and seeds of their own; beyond windows."""
    model = make_model(name)
    policy = PaddedPolicy(model)
    tolerance = 1e-3 if name == "mamba" else 1e-4  # its recurrence, step by step, adds up in another order
    asked = [
        request("short", random_ids(3, 1), seed=1, max_tokens=12),
        request("long", random_ids(60, 2), seed=2, temperature=0.6),
        request("greedy", random_ids(20, 3), temperature=0.0, max_tokens=5),
    ]
    answers = run(PaddedDecoder(policy, slots=4), *asked)
    sequences = []
    for item in asked:
        tokens = answers[item.session]
        assert worst_error(model, item, tokens) < tolerance
        ids = (*item.ids, *tokens.token_ids)
        sequences.append(train_sequence(ids, [0] * len(item.ids) + [1] * len(tokens.token_ids)))
    packed = pack(sequences, policy.device, share_prefix=False)
    with torch.no_grad():
        trained, _ = token_logprobs(policy.target_logits(packed), packed.target_ids, 1.0)
        plain = [eager_logprobs(model, s.ids)[torch.tensor(s.loss_mask[1:]).bool()] for s in sequences]
    assert (trained - torch.cat(plain)).abs().max() < tolerance


def test_a_model_that_cannot_share_a_wave_is_run_row_by_row() -> None:
    """RWKV reads padding as text, and mixes its rows up; the decoder has to find that out."""
    torch.manual_seed(0)
    config = transformers.RwkvConfig(
        vocab_size=VOCABULARY, hidden_size=32, attention_hidden_size=32, num_hidden_layers=2, pad_token_id=0
    )
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    asked = [request(f"s{i}", random_ids(4 + 7 * (i % 3), i), seed=i) for i in range(6)]
    answers = run(PaddedDecoder(PaddedPolicy(model), slots=8), *asked)
    assert len(answers) == 6
    for item in asked:
        assert worst_error(model, item, answers[item.session]) < 1e-4


def test_a_model_that_cannot_mask_padding_is_run_in_waves_of_equal_length() -> None:
    model = make_model("bloom")
    forward, widths = model.forward, []

    def ignoring_the_mask(input_ids: torch.Tensor, attention_mask: Any = None, **options: Any) -> Any:
        widths.append(len(input_ids))
        return forward(input_ids, **options)

    asked = [request(f"s{i}", random_ids(4 + 7 * (i % 3), i), seed=i) for i in range(6)]
    model.forward = ignoring_the_mask
    answers = run(PaddedDecoder(PaddedPolicy(model), slots=8), *asked)
    del model.forward
    assert max(widths) == 2
    for item in asked:
        assert worst_error(model, item, answers[item.session]) < 1e-4


def test_a_model_that_contradicts_itself_is_refused() -> None:
    model = make_model("bloom")
    forward = model.forward

    def wrong_with_a_cache(*inputs: Any, **options: Any) -> Any:
        output = forward(*inputs, **options)
        if options.get("use_cache"):
            output.logits = output.logits.roll(1, -1)
        return output

    model.forward = wrong_with_a_cache
    with pytest.raises(ModelError, match=r"Bloom.*cannot be trained"):
        PaddedDecoder(PaddedPolicy(model), slots=8).admit([request("s", random_ids(5, 1))])


def test_stop_ids_limits_and_finish() -> None:
    model = make_model("bloom")
    stops = tuple(range(60))
    asked = [
        request(f"s{i}", random_ids(5, i), seed=i, max_tokens=1 + i % 7, temperature=5.0, stop_token_ids=stops)
        for i in range(30)
    ]
    answers = run(PaddedDecoder(PaddedPolicy(model), slots=30), *asked)
    for item in asked:
        tokens = answers[item.session]
        assert len(tokens.token_ids) == len(tokens.logprobs) <= item.params.max_tokens
        assert all(token >= 60 for token in tokens.token_ids[:-1])
        assert (tokens.token_ids[-1] < 60) == (tokens.finish == "stop")
        if tokens.finish == "length":
            assert len(tokens.token_ids) == item.params.max_tokens
    assert {tokens.finish for tokens in answers.values()} == {"stop", "length"}


def test_the_same_seed_gives_the_same_tokens_beside_whatever() -> None:
    model = make_model("bloom")
    item = request("mine", random_ids(9, 5), seed=42, max_tokens=20, stop_token_ids=())
    decoder = PaddedDecoder(PaddedPolicy(model), slots=4)
    alone = run(decoder, item)["mine"]
    beside = run(decoder, request("other", random_ids(30, 6), seed=1, max_tokens=30), item)["mine"]
    assert beside.token_ids == alone.token_ids
    assert run(decoder, request("mine", item.ids, seed=43, max_tokens=20))["mine"].token_ids != alone.token_ids


def test_slots_bound_a_wave_and_versions_are_recorded() -> None:
    decoder = PaddedDecoder(PaddedPolicy(make_model("bloom")), slots=2, version=3)
    asked = [request(f"s{i}", random_ids(4, i)) for i in range(5)]
    assert decoder.admissible(asked) == asked[:2]
    assert run(decoder, asked[0])["s0"].version == 3
    decoder.weights_changed(4)
    assert run(decoder, asked[0])["s0"].version == 4
    decoder.release("s0")
    assert decoder.step() == []


def test_the_models_own_generation_settings_neither_bend_the_samples_nor_get_lost() -> None:
    """Hub models bring repetition penalties, forced tokens and cut-offs in generation_config.json."""
    model = make_model("bloom")
    own = transformers.GenerationConfig(repetition_penalty=5.0, top_k=1, do_sample=True, eos_token_id=list(range(200)))
    model.generation_config = own
    item = request("s", random_ids(9, 5), seed=4, max_tokens=25, stop_token_ids=())
    tokens = run(PaddedDecoder(PaddedPolicy(model), slots=1), item)["s"]
    assert len(tokens.token_ids) == 25
    assert worst_error(model, item, tokens) < 1e-4
    assert model.generation_config is own
