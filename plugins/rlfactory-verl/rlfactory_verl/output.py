"""Converts a scored trajectory for verl's trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

from rlfactory_core.reporting import StoredTrajectory
from rlfactory_core.types import Row, Trajectory
from rlfactory_verl.rollout_request import FIELD, IMAGES, POSITION, Position
from rlfactory_verl.vision import multi_modal

GRID = 2**18


@dataclass(frozen=True, slots=True)
class TokenReward:
    """A reward and the response token to which it belongs."""

    position: int
    value: float


def token_rewards(trajectory: Trajectory) -> list[TokenReward]:
    """Each turn's reward at its last sampled token, the outcome's at the trajectory's last.

    Positions count from the start of the response. The rewards sum up to `Trajectory.reward`. An estimator such as GAE
    uses them at their positions; GRPO sums them.
    """
    rewards: list[TokenReward] = []
    end = 0
    score = trajectory.score
    for number, turn in enumerate(trajectory.turns):
        end += (len(turn.context_ids) if number else 0) + len(turn.sampled_ids)
        process = score.turn_rewards[number] if score and score.turn_rewards else 0.0
        rewards.append(TokenReward(end - 1, turn.reward + process))
    if score is not None:
        rewards.append(TokenReward(max(end - 1, 0), score.value))
    return rewards


def _on_grid(value: float) -> float:
    """The nearest multiple of 1 / GRID.

    In 32 bits the mean of equal rewards can differ from that reward, and the sum of 0.1 and 0.2 from 0.3. GRPO divides
    such a difference by a deviation of the same size, so equal attempts would get advantages of 0.1. On this grid sums
    and means are exact for groups whose rewards sum up to less than 2**24 / GRID.
    """
    return round(value * GRID) / GRID


class TrajectoryOutput(AgentLoopOutput):
    """Puts each reward at its own token; verl 0.9 would put ``reward_score`` at the last."""

    rewards: list[TokenReward] = []

    def as_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().as_dict()
        fields.pop("rewards", None)
        scores = fields["rm_scores"].zero_()
        total = 0.0
        for reward in self.rewards:
            before, total = total, total + reward.value
            scores[reward.position] += _on_grid(total) - _on_grid(before)
        return fields


def agent_loop_outputs(
    stored: StoredTrajectory,
    prompt: list[int],
    position: Position,
    *,
    pad_id: int,
    oldest: int | None,
    newest: int | None,
    images: Sequence[str] | None = None,
) -> list[TrajectoryOutput]:
    """The outputs of verl's worker for its trainer, one for each row.

    The response is everything after the row's first prompt; its mask is 1 exactly on sampled ids. A trajectory in which
    nothing was sampled is one padding token with mask 0, because verl cannot take an empty response. The last output
    has the trajectory and its reward: verl's GRPO compares the last outputs of attempts, and gives their advantages to
    the other outputs.

    Args:
        prompt: the prompt's ids, used only if the trajectory has no turn.
        oldest: the version of the weights that sampled the first turn.
        newest: the version that sampled the last turn.
        images: the hashes of the prompt's images, used only if the trajectory has no turn; None if the model sees none.
    """
    trajectory = stored.trajectory
    *before, last = trajectory.rows or (Row(()),)
    seen = [row.images for row in before] + [last.images if last.turns else tuple(images or ())]
    shown: list[dict[str, Any]] = [{} if images is None else multi_modal(names) for names in seen]
    score = trajectory.score
    versions: dict[str, Any] = {"min_global_steps": oldest, "max_global_steps": newest}
    versions |= {"turn_scores": [], "tool_rewards": []}
    known = dict(score.components) if score and not trajectory.masked else {}
    own = {"reward_extra_info": known, FIELD: stored.to_line(), POSITION: asdict(position)}
    end = sum(len(turn.context_ids) + len(turn.sampled_ids) for turn in last.turns)
    start = len(last.turns[0].context_ids) if last.turns else 0
    return [
        *(
            TrajectoryOutput(
                **_sequence(row), **fields, num_turns=0, extra_fields={**versions, IMAGES: list(names), FIELD: ""}
            )
            for row, fields, names in zip(before, shown, seen, strict=False)
        ),
        TrajectoryOutput(
            **(_sequence(last, score.seconds if score else 0.0) if last.turns else _nothing(prompt, pad_id)),
            **shown[-1],
            reward_score=trajectory.reward,
            num_turns=len(trajectory.sample.messages) + sum(1 + bool(turn.results) for turn in trajectory.turns),
            extra_fields={**versions, **own, IMAGES: list(seen[-1])},
            rewards=[TokenReward(end - start - 1, trajectory.reward)] if before else token_rewards(trajectory),
        ),
    ]


def _sequence(row: Row, scoring_s: float = 0.0) -> dict[str, Any]:
    start, turns = len(row.turns[0].context_ids), row.turns
    return {
        "prompt_ids": list(row.ids[:start]),
        "response_ids": list(row.ids[start:]),
        "response_mask": list(row.loss_mask[start:]),
        "response_logprobs": list(row.logprobs[start:]),
        "metrics": AgentLoopMetrics(
            generate_sequences=sum(turn.sample_s for turn in turns),
            tool_calls=sum(turn.tools_s for turn in turns),
            compute_score=scoring_s,
        ),
    }


def _nothing(prompt: list[int], pad_id: int) -> dict[str, Any]:
    only: dict[str, Any] = {"response_ids": [pad_id], "response_mask": [0], "response_logprobs": [0.0]}
    return {"prompt_ids": prompt, **only, "metrics": AgentLoopMetrics()}
