"""What is wrong with the ids, the loss mask or the rows of a trajectory."""

from __future__ import annotations

from collections.abc import Sequence

from rlfactory_core.types import BRANCH, Trajectory, Turn


def mask_problem(trajectory: Trajectory) -> str:
    """How the loss mask or the log-probs differ from the sampled ids; empty if they do not."""
    for number, turn in enumerate(trajectory.turns, start=1):
        if len(turn.logprobs) != len(turn.sampled_ids):
            return f"turn {number} has {len(turn.sampled_ids)} sampled ids and {len(turn.logprobs)} log-probs"
        if not all(value <= 0 for value in turn.logprobs):
            return f"turn {number} has an impossible log-prob: {max(turn.logprobs)}"
    ids, mask, logprobs = trajectory.ids, trajectory.loss_mask, trajectory.logprobs
    if not len(ids) == len(mask) == len(logprobs):
        return f"{len(ids)} ids, {len(mask)} mask values and {len(logprobs)} log-probs"
    own = [token for token, masked in zip(ids, mask, strict=True) if masked == 1]
    sampled = [token for row in trajectory.rows for turn in row.turns for token in turn.sampled_ids]
    if own != sampled or sum(mask) != trajectory.num_sampled:
        return f"the mask is 1 on {len(own)} ids, which are not the {len(sampled)} sampled ones"
    if any(value for value, masked in zip(logprobs, mask, strict=True) if not masked):
        return "a token that was not sampled has a log-prob"
    return ""


def row_problem(trajectory: Trajectory) -> str:
    """What is wrong with the rows of a trajectory; empty if nothing is.

    Each row but the first has a reason to exist, and begins with a prompt of its own. A branch begins with the exact
    ids of another row, up to the end of one of its turns.
    """
    rows = {index: [turn for turn in trajectory.turns if turn.row == index] for index in range(len(trajectory.rows))}
    for index, turns in rows.items():
        if not turns:
            return f"row {index} has no turns; the rows are {sorted({turn.row for turn in trajectory.turns})}"
        first, *later = turns
        if bool(index) is not bool(first.fork) or any(turn.fork for turn in later):
            return f"the turns of row {index} have the reasons {[turn.fork for turn in turns]} for a new row"
        if first.sampled_ids and not first.context_ids:
            return f"row {index} begins without a prompt"
        if first.fork == BRANCH and not any(_begins_with(first.context_ids, rows[other]) for other in range(index)):
            return f"row {index} is a branch, and begins like no other row"
    return ""


def _begins_with(ids: Sequence[int], turns: Sequence[Turn]) -> bool:
    """Whether ids begin with those of a row, up to the end of its first turn at least."""
    first = (*turns[0].context_ids, *turns[0].sampled_ids)
    return tuple(ids[: len(first)]) == first
