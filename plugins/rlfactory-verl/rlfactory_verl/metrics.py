"""A step's metrics: those that all engines have, and verl's own under ``verl/``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlfactory_core.reporting import group_metrics, tool_metrics
from rlfactory_core.types import Group

# verl 0.9's name -> ours, if both mean the same.
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
    "training/filter_groups/evicted_samples": "refilled_groups",
    "actor/perf/max_memory_allocated_gb": "machine/gpu_memory_gib",
    "actor/perf/cpu_memory_used_gb": "machine/memory_gib",  # of the whole node: a run has processes all over it
    "timing_s/gen": "rollout_s",
    "timing_s/update_actor": "update_s",
    "timing_s/update_weights": "sync_s",
    "timing_s/step": "step_s",
}


def training_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """The metrics of a step's rollouts, tools and rewards."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    return {**group_metrics(groups), **tool_metrics(trajectories)}


def common_metrics(verl: Mapping[str, Any], groups: Iterable[Group]) -> dict[str, float]:
    """verl's numbers; ``trained_tokens`` and rates are computed from the trajectories."""
    numbers = {name: float(value) for name, value in verl.items() if _is_number(value)}
    metrics = {ours: numbers[name] for name, ours in SAME.items() if name in numbers}
    sampled = sum(each.num_sampled for group in groups for each in group.trajectories if not each.masked)
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
