"""Advantages that tell the turns of an attempt apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain
from math import fsum, sqrt

from rlfactory_core.algo.advantages import EPS, Credit, all_equal, group_advantages
from rlfactory_core.types import Trajectory


def turn_rloo(trajectories: Sequence[Trajectory], credit: Credit) -> list[list[float]]:
    """The return from a turn on, minus the mean return of the other attempts from that turn on.

    A turn is compared with the same turn of the attempts that got as far. Whether they did is settled before the turn
    is sampled, and the attempt itself is not in its baseline, so the policy gradient is unbiased with ``gamma`` 1 even
    though the policy decides when to stop. A baseline for each turn's own reward, summed over the turns that an attempt
    took (MT-GRPO, arXiv 2505.11821), is biased: the sum has more terms if the policy goes on (verl issue 7244).

    A turn that no other attempt reached is compared by whole attempts, as in RLOO.
    """
    returns = [returns_to_go(turn_rewards(each), credit.gamma) for each in trajectories]
    return [[_against_others(returns, index, turn) for turn in range(len(own))] for index, own in enumerate(returns)]


def turn_grpo(trajectories: Sequence[Trajectory], credit: Credit) -> list[list[float]]:
    """As `turn_rloo`, divided by the root mean square of the group's values, as GRPO divides by a deviation.

    One scale for the whole group: a scale for each turn would weigh turns by how much their rewards vary.
    """
    values = turn_rloo(trajectories, credit)
    scale = sqrt(fsum(value * value for value in chain(*values)) / max(1, sum(map(len, values))))
    return [[0.0 if scale <= EPS else value / (scale + EPS) for value in each] for each in values]


def gigpo(trajectories: Sequence[Trajectory], credit: Credit) -> list[list[float]]:
    """That of the whole attempt as in GRPO, plus ``turn_weight`` times that of the turn among turns in its state.

    Turns are compared that began in the same state of the environment (`EnvStep.state`, or without one what the model
    was shown since its last turn), in any attempt of the group and at any time, by their discounted returns; one
    without peers has none: GiGPO, Feng et al. 2025, arXiv 2505.10978.
    """
    whole = group_advantages("grpo", [trajectory.reward for trajectory in trajectories])
    groups: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    returns = [returns_to_go(turn_rewards(each), credit.gamma) for each in trajectories]
    for index, trajectory in enumerate(trajectories):
        for number, turn in enumerate(trajectory.turns):
            groups[turn.state or turn.context_ids].append((index, number))
    values = [[value] * len(each.turns) for value, each in zip(whole, trajectories, strict=True)]
    for places in groups.values():
        own = group_advantages("grpo", [returns[index][number] for index, number in places])
        for (index, number), value in zip(places, own, strict=True):
            values[index][number] += credit.turn_weight * value
    return values


def turn_rewards(trajectory: Trajectory) -> list[float]:
    """What each turn earned: the environment's reward and process rewards; the score of the outcome is the last's."""
    score = trajectory.score
    rewards = [turn.reward for turn in trajectory.turns]
    for number, reward in enumerate(score.turn_rewards if score else ()):
        rewards[number] += reward
    if score and rewards:
        rewards[-1] += score.value
    return rewards


def returns_to_go(rewards: Sequence[float], gamma: float) -> list[float]:
    """The discounted sum of the rewards from each turn on."""
    found: list[float] = []
    later = 0.0
    for reward in reversed(rewards):
        later = reward + gamma * later
        found.append(later)
    return found[::-1]


def _against_others(returns: Sequence[Sequence[float]], index: int, turn: int) -> float:
    others = [each for number, each in enumerate(returns) if number != index and each]
    peers = [each[turn] for each in others if len(each) > turn]
    own, peers = (returns[index][turn], peers) if peers else (returns[index][0], [each[0] for each in others])
    if not peers or all_equal([own, *peers]):
        return 0.0
    return own - fsum(peers) / len(peers)
