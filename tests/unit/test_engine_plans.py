"""The ragged forward against the models' own eager forward: whatever the layout, the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tiny_models import eager_logprobs, make_model, random_ids, train_sequence

from rlfactory_core.engines.local.model import logprobs as logprobs_module
from rlfactory_core.engines.local.model.kv_cache import Above, Cache
from rlfactory_core.engines.local.model.loading import checkpoint_activations
from rlfactory_core.engines.local.model.logprobs import token_logprobs
from rlfactory_core.engines.local.model.pack import pack
from rlfactory_core.engines.local.model.plans import DecodePlan, PrefillPlan
from rlfactory_core.engines.local.model.policy import PaddedPolicy, RaggedPolicy

OTHERS = ("llama", "mistral", "qwen3_moe", "gpt_neox", "opt", "granite")
FAMILIES = ("qwen3", "gemma3", "gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS))
PREFIX = random_ids(21, seed=1)


class Rollout:
    """Drives the plans by hand: which slot holds what, and the log-probs that came out for the tokens fed in."""

    def __init__(self, model: Any, prefix: Sequence[int], *, slots: int = 4, capacity: int = 8) -> None:
        self.policy = RaggedPolicy(model)
        self.cache, self.shared = Cache(slots, capacity), Cache(1, 1)
        self.fed: list[list[int]] = [[] for _ in range(slots)]
        self.logits: list[list[torch.Tensor]] = [[] for _ in range(slots)]
        self.prefix: tuple[int, ...] = ()
        self.use_prefix(prefix)

    @torch.no_grad()
    def use_prefix(self, prefix: Sequence[int]) -> None:
        self.prefix = tuple(prefix)
        if not prefix:
            return
        self.shared.reserve(len(prefix))
        row = torch.zeros(1, dtype=torch.long)
        plan = PrefillPlan(self.shared, row, row, [len(prefix)])
        self.policy.forward(torch.tensor(prefix), plan.positions, plan, plan.last)

    def above(self, rows: int) -> list[Above]:
        nothing = torch.zeros(rows, dtype=torch.long)
        return [Above(self.shared, nothing, nothing + len(self.prefix))] if self.prefix else []

    def lengths(self, slots: Sequence[int]) -> torch.Tensor:
        return torch.tensor([len(self.fed[slot]) for slot in slots])

    @torch.no_grad()
    def prefill(self, new: dict[int, Sequence[int]]) -> None:
        slots = list(new)
        counts = [len(ids) for ids in new.values()]
        self.cache.reserve(int((self.lengths(slots) + torch.tensor(counts)).max()))
        plan = PrefillPlan(self.cache, torch.tensor(slots), self.lengths(slots), counts, self.above(len(slots)))
        flat = torch.tensor([token for ids in new.values() for token in ids])
        logits = self.policy.forward(flat, plan.positions, plan, torch.arange(len(flat)))
        for slot, part in zip(slots, logits.split(counts), strict=True):
            self.fed[slot] += new[slot]
            self.logits[slot].append(part)

    @torch.no_grad()
    def decode(self, tokens: Sequence[int]) -> None:
        slots = range(len(tokens))
        self.cache.reserve(int(self.lengths(slots).max()) + 1)
        plan = DecodePlan(self.cache, self.lengths(slots), self.above(len(slots)))
        logits = self.policy.forward(torch.tensor(tokens), plan.positions, plan, torch.arange(len(tokens)))
        for slot in slots:
            self.fed[slot].append(tokens[slot])
            self.logits[slot].append(logits[slot][None])

    def restart(self, slot: int) -> None:
        self.fed[slot], self.logits[slot] = [], []

    def swap(self, a: int, b: int) -> None:
        longest = max(len(self.fed[a]), len(self.fed[b]))
        self.cache.swap(torch.tensor([a, b]), torch.tensor([b, a]), longest)
        for rows in (self.fed, self.logits):
            rows[a], rows[b] = rows[b], rows[a]

    def worst_error(self, model: Any, slots: Sequence[int]) -> float:
        """Against one eager forward of each slot's whole sequence."""
        model.set_attn_implementation("eager")
        worst = 0.0
        for slot in slots:
            own = self.fed[slot]
            with torch.no_grad():
                logits = model(torch.tensor([[*self.prefix, *own]]), use_cache=False).logits[0, len(self.prefix) :]
            ours = torch.cat(self.logits[slot]).log_softmax(-1)
            worst = max(worst, float((ours - logits.log_softmax(-1)).abs().max()))
        return worst


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rollout_with_late_joins_equals_eager(name: str) -> None:
    """Two turns, slots that join late, a slot that moves, growth of the cache, beyond the window of those with one."""
    model = make_model(name)
    play = Rollout(model, PREFIX)
    play.prefill({0: random_ids(5, 2), 1: random_ids(17, 3)})
    for i in range(3):
        play.decode(random_ids(2, 10 + i))
    play.prefill({3: random_ids(9, 4), 1: random_ids(40, 5)})  # a late join and a second turn, together
    play.swap(2, 3)
    for i in range(4):
        play.decode(random_ids(3, 20 + i))
    play.restart(1)
    play.prefill({1: random_ids(6, 6)})  # a finished slot is used again, over its old keys
    for i in range(3):
        play.decode(random_ids(3, 30 + i))
    assert play.worst_error(model, (0, 1, 2)) < 1e-4


@pytest.mark.parametrize("prefix", [(), PREFIX[:7]])
def test_the_prefix_can_change_between_rollouts(prefix: tuple[int, ...]) -> None:
    model = make_model("gemma3")
    play = Rollout(model, PREFIX)
    play.prefill({0: random_ids(60, 2)})
    play.restart(0)
    play.use_prefix(prefix)
    play.prefill({0: random_ids(50, 3), 1: random_ids(3, 4)})
    play.decode(random_ids(2, 5))
    assert play.worst_error(model, (0, 1)) < 1e-4


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("shared", [True, False])
def test_packed_training_equals_eager(name: str, shared: bool) -> None:
    """Log-probs and every parameter's gradient."""
    model = make_model(name)
    sequences = []
    for row, own in enumerate((62, 11, 30)):
        ids = (*PREFIX, *random_ids(own, row)) if shared else random_ids(len(PREFIX) + own, row)
        # The second sequence's first own token is learnt: the shared prefix predicts it.
        mask = [0] * len(PREFIX) + [int(i % 5 < 3) if row != 1 else 1 for i in range(own)]
        sequences.append(train_sequence(ids, mask, row))
    expected, loss = [], torch.zeros(())
    for sequence in sequences:
        learnt = torch.tensor(sequence.loss_mask[1:]).bool()
        logprobs = eager_logprobs(model, sequence.ids)[learnt]
        loss = loss + (logprobs * torch.tensor(sequence.advantages[1:])[learnt]).sum()
        expected.append(logprobs.detach())
    names = [key for key, p in model.named_parameters() if p.requires_grad]
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    packed = pack(sequences, torch.device("cpu"), share_prefix=True)
    assert (packed.nodes[0].length >= len(PREFIX) and {node.parent for node in packed.nodes[1:]} == {0}) == shared
    ours, _ = token_logprobs(RaggedPolicy(model).target_logits(packed), packed.target_ids, 1.0)
    assert (ours - torch.cat(expected)).abs().max() < 1e-4
    own_gradients = torch.autograd.grad((ours * packed.advantages).sum(), parameters, allow_unused=True)
    for key, ours_p, theirs in zip(names, own_gradients, gradients, strict=True):
        assert (ours_p is None) == (theirs is None), key
        if theirs is not None and ours_p is not None:
            assert (ours_p - theirs).abs().max() <= 1e-4 * max(1.0, float(theirs.abs().max())), key


def test_the_padded_forward_gives_the_same_targets() -> None:
    model = make_model("llama")
    sequences = [train_sequence(random_ids(n, n), [0] * 4 + [1] * (n - 4), n) for n in (20, 9, 33)]
    padded = PaddedPolicy(model).target_logits(pack(sequences, torch.device("cpu"), share_prefix=False))
    ragged = RaggedPolicy(model).target_logits(pack(sequences, torch.device("cpu"), share_prefix=True))
    assert (padded - ragged).abs().max() < 1e-3


def test_one_sequence_and_one_token() -> None:
    model = make_model("qwen3")
    packed = pack([train_sequence(random_ids(2, 1), [0, 1])], torch.device("cpu"), share_prefix=True)
    logits = RaggedPolicy(model).target_logits(packed)
    model.set_attn_implementation("eager")
    expected = model(torch.tensor([random_ids(2, 1)]), use_cache=False).logits[0, :1]
    assert (logits - expected).abs().max() < 1e-4


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "gpt2"])
def test_gradient_checkpointing_changes_nothing(name: str) -> None:
    """The layers are then run twice, the second time in the backward pass, with the same plan."""
    model = make_model(name)
    policy = RaggedPolicy(model.train())
    sequences = [train_sequence((*PREFIX, *random_ids(20, n)), [0] * 21 + [1] * 20, n) for n in (1, 2)]
    packed = pack(sequences, policy.device, share_prefix=True)

    def gradients() -> list[torch.Tensor]:
        logprobs, _ = token_logprobs(policy.target_logits(packed), packed.target_ids, 1.0)
        loss = (logprobs * packed.advantages).sum()
        return list(torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad]))

    plain = gradients()
    checkpoint_activations(model)
    assert all(torch.equal(a, b) for a, b in zip(plain, gradients(), strict=True))


def test_logits_in_parts_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 300, generator=generator, requires_grad=True)
    ids = torch.randint(300, (50,), generator=generator)

    def found() -> tuple[torch.Tensor, ...]:
        logprobs, entropy = token_logprobs(logits, ids, 0.7)
        (gradient,) = torch.autograd.grad((logprobs * torch.arange(50)).sum(), logits)
        return logprobs, entropy, gradient

    whole = found()
    plain = torch.log_softmax(logits / 0.7, -1)
    (gradient,) = torch.autograd.grad((plain.gather(1, ids[:, None])[:, 0] * torch.arange(50)).sum(), logits)
    entropy = -(plain.exp() * plain).sum(-1)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(whole[1:], (entropy, gradient), strict=True))
    monkeypatch.setattr(logprobs_module, "AT_ONCE", 7 * 300)
    assert all(torch.equal(a, b) for a, b in zip(whole, found(), strict=True))
