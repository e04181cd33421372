"""Computes a step's metrics from its trajectories.

`metric_table` says what each name means. Masked trajectories count in no mean of rewards and scores.

Every metric whose name ends in ``_s`` is wall-clock time or a rate. Two identical runs differ only in these, in
``machine/…``, which the recorder adds, and in counts of external services.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import ceil, nan, sqrt

from rlfactory_core.algo.advantages import all_equal
from rlfactory_core.algo.masking import is_trained, masked_by
from rlfactory_core.reporting.metric_table import RESERVED
from rlfactory_core.types import FaultKind, Group, StopReason, ToolResult, Trajectory

MOST_DIFFERENT = 0.05  # the share of tokens whose part of all differences to the teacher is a metric


def group_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """The metrics of the groups of a step or of an evaluation."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    kept = [trajectory for trajectory in trajectories if not trajectory.masked]
    rewards = [trajectory.reward for trajectory in kept]
    metrics = {"reward": _mean(rewards), "reward_std": _std(rewards)}
    tasks = sorted({trajectory.sample.task for trajectory in kept} - {""})
    metrics |= {f"reward/{task}": _mean([each.reward for each in kept if each.sample.task == task]) for task in tasks}
    metrics |= component_means(trajectories)
    metrics["tool_calls"] = _mean([trajectory.num_tool_calls for trajectory in trajectories])
    metrics |= _calls(trajectories)
    metrics["turns"] = _mean([len(trajectory.turns) for trajectory in trajectories])
    metrics["sampled_tokens"] = _mean([trajectory.num_sampled for trajectory in trajectories])
    metrics |= _agent_metrics(trajectories)
    metrics |= teacher_metrics(kept)
    stops = Counter(trajectory.stop for trajectory in trajectories)
    metrics.update({f"stop/{reason.value}": stops[reason] / max(len(trajectories), 1) for reason in StopReason})
    faults = Counter(fault.kind for trajectory in trajectories for fault in trajectory.faults)
    metrics.update({f"faults/{kind.value}": float(faults[kind]) for kind in FaultKind})
    verifiers = Counter(f.source for t in trajectories for f in t.faults if f.kind is FaultKind.VERIFIER)
    metrics.update({f"faults/verifier/{name}": float(verifiers[name]) for name in sorted(verifiers)})
    metrics.update({f"counts/{name}": total for name, total in count_sums(trajectories).items()})
    metrics["masked"] = float(len(trajectories) - len(kept))
    metrics |= {f"masked/{source}": float(count) for source, count in sorted(masked_by(trajectories).items())}
    metrics["masked_groups"] = float(sum(not is_trained(group) for group in groups))
    live = ([each.reward for each in group.trajectories if not each.masked] for group in groups)
    metrics["groups"] = float(len(groups))
    metrics["equal_groups"] = float(sum(map(all_equal, live)))
    return metrics


def _calls(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    offered = [trajectory for trajectory in trajectories if trajectory.called is not None]
    shares = {"called": [bool(each.called) for each in offered], "unparsed": [_unparsed(each) for each in offered]}
    return {name: _mean(list(map(float, values))) for name, values in shares.items() if values}


def _unparsed(trajectory: Trajectory) -> bool:
    """Whether it made a call that could not be read."""
    return any(call.error for turn in trajectory.turns for call in turn.message.tool_calls)


def _agent_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    forks = Counter(turn.fork for trajectory in trajectories for turn in trajectory.turns if turn.fork)
    overridden = sum((Counter(each.info.get("overridden", {})) for each in trajectories), Counter[str]())
    metrics = {"rows": _mean([len(trajectory.rows) for trajectory in trajectories])} if forks else {}
    metrics |= {f"forks/{reason}": float(count) for reason, count in sorted(forks.items())}
    return metrics | {f"overridden/{name}": float(count) for name, count in sorted(overridden.items())}


def teacher_metrics(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """How the policy differs from its teacher; empty without one.

    A sampled token's difference is log p of the policy minus log q of the teacher. Its mean estimates the reverse KL.
    """
    turns = [turn for each in trajectories for turn in each.turns if turn.teacher_logprobs]
    if not turns:
        return {}
    calls: list[float] = []
    others: list[float] = []
    for turn in turns:
        pairs = zip(turn.logprobs, turn.teacher_logprobs, strict=True)
        (calls if turn.message.tool_calls else others).extend(policy - teacher for policy, teacher in pairs)
    sizes = sorted(map(abs, [*calls, *others]), reverse=True)
    largest = sum(sizes[: ceil(MOST_DIFFERENT * len(sizes))])
    return {
        "teacher_kl": _mean([*calls, *others]),
        **({"teacher_kl/calls": _mean(calls)} if calls else {}),
        **({"teacher_kl/answers": _mean(others)} if others else {}),
        "teacher_kl_top": largest / sum(sizes) if any(sizes) else 0.0,
    }


def component_means(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """Mean of each score component, overall and by the samples' slices; names in alphabetical order.

    Masked trajectories are left out.
    """
    values: defaultdict[str, list[float]] = defaultdict(list)
    for trajectory in trajectories:
        for name, value in trajectory.score.components.items() if trajectory.score and not trajectory.masked else ():
            whole = component_metric(name)
            values[whole].append(value)
            for part in trajectory.sample.slices:
                values[f"{whole}/{part}"].append(value)
    return {name: _mean(values[name]) for name in sorted(values)}


def count_sums(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """The sums of the scorers' counts over all trajectories, including masked ones; names in alphabetical order."""
    sums: defaultdict[str, float] = defaultdict(float)
    for trajectory in trajectories:
        for name, count in trajectory.score.counts.items() if trajectory.score else ():
            sums[name] += count
    return {name: sums[name] for name in sorted(sums)}


def eval_metrics(groups: Iterable[Group]) -> dict[str, float]:
    """The metrics of an evaluation between steps: ``eval/<component>``, also by slice, and ``eval/counts/…``.

    Where tools are offered, also ``eval/called``; if trajectories were masked, also ``eval/masked/<source>``.
    """
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    found = _calls(trajectories) | component_means(trajectories)
    found |= {f"counts/{name}": total for name, total in count_sums(trajectories).items()}
    found |= {f"masked/{source}": float(count) for source, count in sorted(masked_by(trajectories).items())}
    return {f"eval/{name}": value for name, value in found.items()}


def component_metric(name: str) -> str:
    """The name under which a score component is reported."""
    return f"score/{name}" if name in RESERVED else name


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else nan


def _std(values: Sequence[float]) -> float:
    mean = _mean(values)
    return sqrt(_mean([(value - mean) ** 2 for value in values])) if values else nan


UNKNOWN = "unknown"  # stands for all tools that do not exist


_KINDS = (FaultKind.POLICY, FaultKind.TOOL, FaultKind.INFRA)


def tool_metrics(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """``tool/<name>/<metric>`` for each tool that was called, and ``tools/cache_hit_rate`` over all calls.

    Counts: ``calls``, ``attempts``, ``bytes``, ``truncated``, ``faults_<kind>``; shares: ``cache_hit_rate``; seconds:
    ``latency_p50_s``, ``latency_p95_s``, ``latency_max_s``.
    """
    results: defaultdict[str, list[ToolResult]] = defaultdict(list)
    for trajectory in trajectories:
        names = {tool.name for turn in trajectory.turns for tool in (*trajectory.tools, *(turn.tools or ()))}
        for result in (result for turn in trajectory.turns for result in turn.results):
            results[result.name if result.name in names else UNKNOWN].append(result)
    metrics = {f"tool/{name}/{key}": value for name, calls in results.items() for key, value in _metrics(calls)}
    if results:
        metrics["tools/cache_hit_rate"] = _cache_hit_rate([call for calls in results.values() for call in calls])
    return metrics


def _metrics(calls: Sequence[ToolResult]) -> Iterator[tuple[str, float]]:
    yield "calls", float(len(calls))
    yield "attempts", float(sum(call.attempts for call in calls))
    yield "bytes", float(sum(call.size_bytes for call in calls))
    yield "truncated", float(sum(call.truncated for call in calls))
    for kind in _KINDS:
        yield f"faults_{kind.value}", float(sum(call.fault is kind for call in calls))
    yield "cache_hit_rate", _cache_hit_rate(calls)
    latencies = sorted(call.latency_s for call in calls)
    yield "latency_p50_s", latencies[len(latencies) // 2]
    yield "latency_p95_s", latencies[min(len(latencies) - 1, int(0.95 * len(latencies)))]
    yield "latency_max_s", latencies[-1]


def _cache_hit_rate(calls: Sequence[ToolResult]) -> float:
    """The share of calls answered by another call, from the cache or in flight."""
    return sum(call.cached for call in calls) / len(calls)
