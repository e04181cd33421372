"""Decoding sessions over turns: the sampled log-probs are those of a plain forward pass, whatever else is going on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tiny_models import VOCABULARY, eager_logprobs, make_model, random_ids

from rlfactory_core.engines.local.decoding import decoder as decoding
from rlfactory_core.engines.local.decoding.decoder import Request, SlotDecoder, draw_uniforms, sample
from rlfactory_core.engines.local.model.policy import RaggedPolicy
from rlfactory_core.types import SampledTokens, SamplingParams

PREFIX = random_ids(12, 100)
STOPS = (7, 8, 9, 10, 11, 12, 13, 14)


def decoder(model: Any, *, slots: int = 4, prefix: Sequence[int] = PREFIX, stops: Sequence[int] = STOPS) -> SlotDecoder:
    return SlotDecoder(RaggedPolicy(model), slots=slots, prefix=prefix, stop_token_ids=stops)


def request(name: str, ids: Sequence[int], **params: Any) -> Request:
    return Request(name, tuple(ids), SamplingParams(**{"max_tokens": 12, "stop_token_ids": STOPS, **params}))


def run(engine: SlotDecoder, requests: Sequence[Request]) -> dict[str, SampledTokens]:
    """Admit what fits, decode, refill, until all turns are over."""
    waiting, answers = list(requests), {}
    while waiting or engine.active:
        admitted = engine.admissible(waiting)
        waiting = [item for item in waiting if item not in admitted]
        finished = engine.admit(admitted) if admitted else []
        if engine.active:
            finished += engine.step()
        for item, tokens in finished:
            assert item.session not in answers
            answers[item.session] = tokens
            if item.session.startswith("once"):
                engine.release(item.session)
    return answers


def check_logprobs(model: Any, ids: Sequence[int], tokens: SampledTokens, temperature: float = 1.0) -> None:
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = eager_logprobs(model, (*ids, *tokens.token_ids), temperature)[-len(tokens.token_ids) :]
    assert torch.tensor(tokens.logprobs).sub(expected).abs().max() < 1e-4
    model.set_attn_implementation("rlfactory_ragged")


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_sessions_over_turns_equal_the_full_forward(name: str) -> None:
    """Three turns of five sessions with observations between them, in six slots, past the sliding window."""
    model = make_model(name)
    engine = decoder(model, slots=6)
    histories = {f"s{i}": (*PREFIX, *random_ids(3 + 4 * i, i)) for i in range(5)}
    for turn in range(3):
        names = list(histories)[turn % 2 :] + list(histories)[: turn % 2]  # sessions come back in another order
        asked = {n: request(n, histories[n], seed=turn * 10 + i, temperature=1.3) for i, n in enumerate(names)}
        for n, tokens in run(engine, list(asked.values())).items():
            check_logprobs(model, histories[n], tokens, 1.3)
            histories[n] = (*histories[n], *tokens.token_ids, *random_ids(2 + turn * 6, turn))


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_long_prompts_are_computed_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups and two alone, behind a beginning of all, in pieces of 16 to 40 tokens of each; and a second turn."""
    model = make_model(name)
    start = (*PREFIX, *random_ids(60, 99))
    alone = [(*start, *random_ids(size, size)) for size in (5, 90)]
    groups = [(*start, *random_ids(size, size)) for size in (33, 70) for _ in range(2)]
    answers = []
    for entries in (decoding.PIECE, 2**12):
        monkeypatch.setattr(decoding, "PIECE", entries)
        engine, turns = decoder(model, slots=6, prefix=start), []
        histories = {f"s{index}": ids for index, ids in enumerate(alone + groups)}
        for turn in range(2):
            asked = [request(each, ids, seed=turn * 10 + i) for i, (each, ids) in enumerate(histories.items())]
            turns.append(run(engine, asked))
            for each, tokens in turns[-1].items():
                check_logprobs(model, histories[each], tokens)
                histories[each] = (*histories[each], *tokens.token_ids, *random_ids(50, turn))
        answers.append([{each: tokens.token_ids for each, tokens in turn.items()} for turn in turns])
    assert answers[0] == answers[1]


def test_more_sessions_than_slots_and_release() -> None:
    model = make_model("llama")
    engine = decoder(model, slots=3)
    requests = [request(f"once{i}", (*PREFIX, *random_ids(4 + i, i)), seed=i) for i in range(8)]
    answers = run(engine, requests)
    assert len(answers) == 8
    for item in requests:
        check_logprobs(model, item.ids, answers[item.session])


def test_the_cache_has_room_for_those_that_came_not_for_all_slots() -> None:
    model = make_model("llama")
    engine = decoder(model, slots=100)
    asked = [request(f"s{index}", (*PREFIX, *random_ids(4, index)), seed=index) for index in range(21)]
    for count, rows in ((1, 8), (7, 8), (13, 32)):
        now, asked = asked[:count], asked[count:]
        answers = run(engine, now)
        assert engine._cache.layers[0].keys.shape[0] == rows
        for item in now:
            check_logprobs(model, item.ids, answers[item.session])


def test_release_in_the_middle_of_a_turn_frees_the_slot() -> None:
    model = make_model("llama")
    engine = decoder(model, slots=2, stops=())
    a, b, c = (request(n, (*PREFIX, *random_ids(5, i)), seed=i) for i, n in enumerate("abc"))
    engine.admit([a, b])
    assert engine.admissible([c]) == []
    engine.release("a")
    engine.release("unknown")
    assert engine.active == 1
    assert engine.admissible([c]) == [c]
    answers = run(engine, [c])
    assert set(answers) == {"b", "c"}
    for item in (b, c):
        check_logprobs(model, item.ids, answers[item.session])


def test_stop_ids_limits_and_finish() -> None:
    model = make_model("qwen3")
    engine = decoder(model, slots=40, stops=tuple(range(60)))
    params = {"stop_token_ids": tuple(range(60)), "temperature": 5.0}
    asked = [request(f"s{i}", (*PREFIX, 5 + i), seed=i, max_tokens=1 + i % 9, **params) for i in range(40)]
    answers = run(engine, asked)
    for item in asked:
        tokens = answers[item.session]
        assert all(token >= 60 for token in tokens.token_ids[:-1])
        assert (tokens.token_ids[-1] < 60) == (tokens.finish == "stop")
        if tokens.finish == "length":
            assert len(tokens.token_ids) == item.params.max_tokens
    assert {tokens.finish for tokens in answers.values()} == {"stop", "length"}


def test_greedy_takes_the_likeliest_token() -> None:
    model = make_model("llama")
    item = request("g", (*PREFIX, *random_ids(6, 1)), temperature=0.0)
    tokens = run(decoder(model), [item])["g"]
    check_logprobs(model, item.ids, tokens)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        logits = model(torch.tensor([[*item.ids, *tokens.token_ids]]), use_cache=False).logits[0]
    assert logits[len(item.ids) - 1 : -1].argmax(-1).tolist() == list(tokens.token_ids)


def test_the_same_seed_gives_the_same_tokens_beside_whatever() -> None:
    model = make_model("qwen3")
    item = request("mine", (*PREFIX, *random_ids(9, 5)), seed=42)
    alone = run(decoder(model), [item])["mine"]
    others = [request(f"o{i}", (*PREFIX, *random_ids(30 - 9 * i, i)), seed=i, temperature=2.0) for i in range(3)]
    engine = decoder(model)
    engine.admit(others)
    engine.step()
    beside = run(engine, [item])["mine"]
    assert beside.token_ids == alone.token_ids
    assert beside.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
    elsewhere = run(decoder(model), [request("mine", item.ids, seed=43)])["mine"]
    assert elsewhere.token_ids != alone.token_ids


def test_a_prompt_without_the_prefix_waits_and_then_cuts_it() -> None:
    model = make_model("llama")
    engine = decoder(model)
    usual = request("once-usual", (*PREFIX, *random_ids(5, 1)), seed=1)
    stranger = request("once-stranger", (*PREFIX[:5], *random_ids(20, 2)), seed=2)
    engine.admit([usual])
    assert engine.admissible([stranger]) == []
    answers = run(engine, [stranger])
    assert engine.prefix == PREFIX[:5]
    for item in (usual, stranger):
        check_logprobs(model, item.ids, answers[item.session])
    nothing_shared = request("once-other", random_ids(9, 77))
    tokens = run(engine, [nothing_shared])["once-other"]
    assert engine.prefix == ()
    check_logprobs(model, nothing_shared.ids, tokens)


@pytest.mark.parametrize("replaceable", [True, False])
def test_a_prefix_that_no_prompt_had_gives_way_to_what_the_first_ones_share(replaceable: bool) -> None:
    model = make_model("llama")
    engine = SlotDecoder(RaggedPolicy(model), slots=4, prefix=PREFIX, stop_token_ids=STOPS, replaceable=replaceable)
    begun = (PREFIX[0], *random_ids(20, 5))
    asked = [request(f"once-{i}", (*begun, *random_ids(4, 10 + i)), seed=i) for i in range(2)]
    answers = run(engine, asked)
    assert engine.prefix == (begun if replaceable else begun[:1])
    later = request("once-later", (*begun[:7], *random_ids(9, 3)), seed=7)
    answers |= run(engine, [later])
    assert engine.prefix == (begun[:7] if replaceable else begun[:1])
    for item in (*asked, later):
        check_logprobs(model, item.ids, answers[item.session])


def test_ids_that_do_not_continue_the_last_turn_are_refused() -> None:
    engine = decoder(make_model("llama"))
    first = request("s", (*PREFIX, *random_ids(8, 1)))
    run(engine, [first])
    with pytest.raises(ValueError, match="do not continue"):
        engine.admit([request("s", first.ids[:-3])])


def test_new_weights_reach_the_prefix_and_the_version() -> None:
    model = make_model("llama")
    engine = decoder(model)
    run(engine, [request("once-a", (*PREFIX, 5))])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)
    engine.weights_changed(3)
    item = request("once-b", (*PREFIX, 5, 6))
    tokens = run(engine, [item])["once-b"]
    assert tokens.version == 3
    check_logprobs(model, item.ids, tokens)


PROMPTS = [(*PREFIX, *random_ids(size, size)) for size in (30, 21, 3)]  # the last is too short to be kept apart


def count_tokens(engine: SlotDecoder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each forward pass from now on."""
    forward, found = engine.policy.forward, []

    def counting(ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        found.append(len(ids))
        return forward(ids, *rest)

    monkeypatch.setattr(engine.policy, "forward", counting)
    return found


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_a_groups_prompt_is_computed_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts at three prompts and one alone, over two turns, past the sliding window."""
    model = make_model(name)
    engine = decoder(model, slots=13, stops=())
    counted = count_tokens(engine, monkeypatch)
    asked = [request(f"{g}/{i}", PROMPTS[g], seed=10 * g + i) for i in range(4) for g in range(3)]
    asked.append(request("alone", (*PREFIX, *random_ids(25, 9)), seed=99))
    answers = run(engine, asked)
    assert counted[:3] == [12, 29 + 20, 4 + 4 + 4 * 3 + 25]  # prefix, two prompts, what each attempt has for itself
    for item in asked:
        check_logprobs(model, item.ids, answers[item.session])
    del counted[:]
    again = [
        request(item.session, (*item.ids, *answers[item.session].token_ids, *random_ids(20, n)), seed=n)
        for n, item in enumerate(asked[::-1])
    ]
    more = run(engine, again)
    assert counted[0] == 13 * 21  # the last sampled token and what the tool answered
    for item in again:
        check_logprobs(model, item.ids, more[item.session])


def test_groups_that_begin_late_in_few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts come one by one as slots are freed: the first computes its prompt, and the second for all others."""
    model = make_model("llama")
    engine = decoder(model, slots=3, stops=())
    counted = count_tokens(engine, monkeypatch)
    asked = [request(f"once{g}/{i}", PROMPTS[g], seed=10 * g + i, max_tokens=2 + i) for g in range(2) for i in range(6)]
    waiting, answers = list(asked), {}
    while waiting or engine.active:
        finished = engine.admit([waiting.pop(0)]) if waiting and engine.admissible(waiting[:1]) else []
        for item, tokens in finished + (engine.step() if engine.active else []):
            answers[item.session] = tokens
            engine.release(item.session)
    for item in asked:
        check_logprobs(model, item.ids, answers[item.session])
    assert sum(size > 5 for size in counted) == 5  # the prefix, and each prompt twice


def test_a_conversation_that_forks_continues_its_groups_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("llama")
    engine = decoder(model, stops=())
    run(engine, [request(f"{i}", PROMPTS[0], seed=i) for i in range(2)])
    counted = count_tokens(engine, monkeypatch)
    fork = request("fork", (*PROMPTS[0], *random_ids(11, 5)), seed=3)
    check_logprobs(model, fork.ids, run(engine, [fork])["fork"])
    assert counted[0] == 1 + 11


def test_new_weights_reach_a_groups_prompt_and_not_those_under_way() -> None:
    model = make_model("llama")
    engine = decoder(model, slots=6, stops=())
    engine.admit([request(f"early{i}", PROMPTS[0], seed=i) for i in range(2)])
    engine.step()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.02)
    engine.weights_changed(1)
    late = [request(f"late{i}", PROMPTS[0], seed=i) for i in range(3)]
    answers = run(engine, late)
    assert answers["early0"].version == 0
    for item in late:
        assert answers[item.session].version == 1
        check_logprobs(model, item.ids, answers[item.session])
    rows = {int(engine._prompt[engine._slot[name]]) for name in answers}
    assert len(rows) == 2  # the old keys and values, and the new ones


def test_another_beginning_of_all_prompts_takes_what_groups_shared_with_it() -> None:
    model = make_model("llama")
    engine = decoder(model, slots=4)
    run(engine, [request(f"once{i}", PROMPTS[0], seed=i) for i in range(2)])
    strangers = [request(f"once-stranger{i}", (*PREFIX[:5], *random_ids(30, 2)), seed=i) for i in range(2)]
    again = [request(f"once-again{i}", PROMPTS[0], seed=i) for i in range(2)]
    answers = run(engine, strangers) | run(engine, again)
    for item in (*strangers, *again):
        check_logprobs(model, item.ids, answers[item.session])


def test_prompts_take_as_many_rows_as_are_held_at_once() -> None:
    model = make_model("llama")
    engine = decoder(model, slots=16, stops=())
    for number in range(12):
        prompt = (*PREFIX, *random_ids(20 + number, number))
        run(engine, [request(f"once{number}/{i}", prompt, seed=i, max_tokens=2) for i in range(2)])
    assert engine._prompts.cache.rows == 4
    asked = [
        request(f"{g}/{i}", (*PREFIX, *random_ids(20, 100 + g)), seed=i, max_tokens=3)
        for g in range(8)
        for i in range(2)
    ]
    answers = run(engine, asked)
    assert engine._prompts.cache.rows == 9
    for item in asked[:4]:
        check_logprobs(model, item.ids, answers[item.session])


def test_top_p_keeps_the_smallest_nucleus() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0, -1.0]]).repeat(500, 1)
    uniforms = torch.linspace(0, 0.999, 500)
    probs = torch.softmax(logits[0], -1)
    ones = torch.ones(500)
    tokens, logprobs = sample(logits, uniforms, ones, ones * float(probs[0] + 0.5 * probs[1]))
    assert set(tokens.tolist()) == {0, 1}
    assert logprobs == pytest.approx(probs[tokens].log())  # of the whole distribution, not of the nucleus
    share = float((tokens == 0).float().mean())
    assert share == pytest.approx(float(probs[0] / (probs[0] + probs[1])), abs=0.01)
    tiny, _ = sample(logits, uniforms, ones, ones * 1e-6)
    assert set(tiny.tolist()) == {0}


@pytest.mark.slow
def test_sampling_follows_the_distribution_at_each_rows_temperature() -> None:
    logits = torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(0)).repeat(20_000, 1)
    ones = torch.ones(len(logits))
    uniforms = draw_uniforms([SamplingParams(len(logits), seed=1)])[0]
    for temperature in (0.5, 1.0, 2.0):
        tokens, logprobs = sample(logits, uniforms, ones * temperature, ones)
        probs = torch.softmax(logits[0] / temperature, -1)
        found = torch.bincount(tokens, minlength=VOCABULARY) / len(logits)
        assert (found - probs).abs().sum() < 0.15
        assert logprobs == pytest.approx(probs[tokens].log(), abs=1e-4)
