"""Sequences as a tree: what they share is there once, whatever they are, and micro-batches keep to their budget."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch", reason="needs rlfactory-core[local]")

from rlfactory_core.engines.local.model.pack import SHORTEST, Packed, pack, split  # noqa: E402
from rlfactory_core.types import TrainSequence  # noqa: E402


def tokens(count: int, seed: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(100, 200) for _ in range(count))


def sequence(*ids: int, trained: int = 5) -> TrainSequence:
    """The last ``trained`` tokens are trained on; advantages and log-probs tell where a token was."""
    mask = tuple(int(at >= len(ids) - trained) for at in range(len(ids)))
    places = tuple(float(at) * own for at, own in enumerate(mask))
    return TrainSequence(ids, mask, places, tuple(-place for place in places))


def read_back(packed: Packed, number: int) -> list[tuple[int, ...]]:
    """The tokens of the nodes up to each target of a sequence."""
    found = []
    for target in (packed.sequence == number).nonzero()[:, 0].tolist():
        at = int(packed.before[target])
        at_node = next(i for i, n in enumerate(packed.nodes) if n.start <= at < n.start + n.length)
        node, end, ids = at_node, at + 1, ()
        while node >= 0:
            each = packed.nodes[node]
            assert each.depth == 0 if each.parent < 0 else each.parent < node  # a node stands behind its parent
            ids = (*packed.flat_ids[each.start : end].tolist(), *ids)
            node = each.parent
            end = packed.nodes[node].start + packed.nodes[node].length
        found.append(ids)
    return found


def check(sequences: list[TrainSequence], *, share_prefix: bool = True) -> Packed:
    """Each target is predicted by exactly the tokens before it, and has its own numbers."""
    packed = pack(sequences, torch.device("cpu"), share_prefix=share_prefix)
    assert packed.flat_ids.numel() == sum(node.length for node in packed.nodes)
    for number, each in enumerate(sequences):
        own = packed.sequence == number
        places = [at for at, trained in enumerate(each.loss_mask) if trained]
        assert packed.place[own].tolist() == places
        assert packed.advantages[own].tolist() == [float(at) for at in places]
        assert packed.logprobs[own].tolist() == [-float(at) for at in places]
        assert packed.target_ids[own].tolist() == [each.ids[at] for at in places]
        assert read_back(packed, number) == [each.ids[:at] for at in places]
    return packed


def test_each_level_of_what_is_shared_is_there_once() -> None:
    everyone, groups = tokens(40, 0), [tokens(30, 1), tokens(25, 2)]
    first = [sequence(*everyone, *groups[0], *tokens(20 + n, 10 + n)) for n in range(3)]
    turns = [sequence(*first[0].ids, *tokens(17, 20)), sequence(*first[0].ids, *tokens(18, 21))]
    other = [sequence(*everyone, *groups[1], *tokens(9, 30 + n)) for n in range(2)]
    packed = check([*other, *first, *turns])
    assert packed.flat_ids.numel() == 40 + 30 + 20 + 21 + 22 + 17 + 18 + 25 + 9 + 9
    assert len(packed.nodes) == 1 + 2 + 3 + 2 + 2
    apart = check([*other, *first, *turns], share_prefix=False)
    assert [node.length for node in apart.nodes] == [len(each.ids) for each in (*other, *first, *turns)]


def test_equal_sequences_and_beginnings_of_others() -> None:
    ids = tokens(60, 0)
    packed = check([sequence(*ids), sequence(*ids[:40]), sequence(*ids), sequence(*ids[:48]), sequence(*ids[:40])])
    assert packed.flat_ids.numel() == 40 + 8 + 20  # from 40 on, too little is shared for a node


def test_what_is_shorter_than_a_node_is_not_shared() -> None:
    for shared in (SHORTEST - 1, SHORTEST):
        begin = tokens(shared, 0)
        packed = check([sequence(*begin, 1, *tokens(9, 1)), sequence(*begin, 2, *tokens(9, 2))])
        assert packed.flat_ids.numel() == 20 + shared * (2 if shared < SHORTEST else 1)


@pytest.mark.parametrize("seed", range(20))
def test_random_trees(seed: int) -> None:
    rng = random.Random(seed)
    made = [tokens(rng.randrange(6, 30), seed)]
    while len(made) < 24:
        base = rng.choice(made)
        made.append((*base[: rng.randrange(1, len(base) + 1)], *tokens(rng.randrange(6, 40), rng.randrange(9))))
    rng.shuffle(made)
    check([sequence(*ids, trained=rng.randrange(1, 6)) for ids in made])


def test_rows_that_each_continue_the_one_before() -> None:
    ids = tokens(20 * 101, 0)
    packed = check([sequence(*ids[: 20 * n], trained=1) for n in range(1, 101)])
    assert packed.flat_ids.numel() == 20 * 100


@pytest.mark.parametrize("seed", range(5))
def test_a_microbatch_keeps_its_budget_and_a_group_together(seed: int) -> None:
    rng = random.Random(seed)
    everyone, made = tokens(50, 0), []
    for group in range(8):
        prompt = (*everyone, *tokens(60, 100 + group))
        made += [sequence(*prompt, *tokens(rng.randrange(6, 30), rng.randrange(999))) for _ in range(6)]
    order = list(made)
    rng.shuffle(order)
    parts = split(order, 500, share_prefix=True)
    assert sorted(each.ids for part in parts for each in part) == sorted(each.ids for each in made)
    sizes = [pack(part, torch.device("cpu"), share_prefix=True).flat_ids.numel() for part in parts]
    assert max(sizes) <= 500
    assert sum(sizes) < 0.4 * sum(len(each.ids) for each in made)


def test_equal_sequences_do_not_train_more_tokens_than_the_budget_at_once() -> None:
    made = [sequence(*tokens(60, 0), trained=40)] * 20
    assert [len(part) for part in split(made, 200, share_prefix=True)] == [5, 5, 5, 5]


def test_without_sharing_sequences_of_similar_length_stay_together() -> None:
    made = [sequence(*tokens(6 + n % 40, n)) for n in range(100)]
    parts = split(made, 300, share_prefix=False)
    assert sum(len(part) for part in parts) == 100
    for part in parts:
        lengths = [len(each.ids) for each in part]
        assert len(part) * max(lengths) <= 300
        assert max(lengths) - min(lengths) <= 14


@pytest.mark.parametrize("share", [True, False])
def test_a_sequence_over_the_budget_stands_alone(share: bool) -> None:
    made = [sequence(*tokens(100, 0)), sequence(*tokens(10, 1)), sequence(*tokens(100, 2))]
    assert sorted(len(part) for part in split(made, 50, share_prefix=share)) == [1, 1, 1]
