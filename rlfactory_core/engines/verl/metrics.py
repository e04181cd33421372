"""One step's metrics: ours, under the names of every engine, and verl's own under ``verl/``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlfactory_core.engines.verl.replay import Row
from rlfactory_core.reporting.metrics import group_metrics
from rlfactory_core.reporting.tool_metrics import tool_metrics
from rlfactory_core.types import Group

# verl 0.9's name -> ours, where both mean the same.
SAME = {
    "actor/pg_loss": "loss",
    "actor/grad_norm": "grad_norm",
    "actor/pg_clipfrac": "clip_fraction",
    "actor/entropy": "entropy",
    "actor/kl_loss": "kl",
    "actor/lr": "lr",
    "training/off_policy/trajectory_staleness/mean": "staleness",
    "training/rollout_probs_diff_mean": "rollout_probs_diff_mean",
    "training/rollout_probs_diff_max": "rollout_probs_diff_max",
    "timing_s/gen": "rollout_s",
    "timing_s/update_actor": "update_s",
    "timing_s/update_weights": "sync_s",
    "timing_s/step": "step_s",
}


def training_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """What our rollout, tools and rewards say about a step."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    return {**group_metrics(groups), **tool_metrics(trajectories)}


def common_metrics(verl: Mapping[str, Any], rows: Iterable[Row]) -> dict[str, float]:
    """verl's numbers; ``trained_tokens`` and rates come from the trajectories themselves."""
    numbers = {name: float(value) for name, value in verl.items() if _is_number(value)}
    metrics = {ours: numbers[name] for name, ours in SAME.items() if name in numbers}
    live = [row.stored.trajectory for row in rows if not row.stored.trajectory.masked]
    sampled = sum(trajectory.num_sampled for trajectory in live)
    metrics["trained_tokens"] = float(sampled)
    metrics["sampled_tokens_s"] = sampled / max(metrics.get("rollout_s", 0.0), 1e-9)
    return {**metrics, **{f"verl/{name}": value for name, value in numbers.items()}}


def _is_number(value: Any) -> bool:
    if isinstance(value, (str, bytes, bool)):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
