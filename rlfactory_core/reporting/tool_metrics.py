"""Counts and latencies of the tool calls in trajectories, as flat numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from rlfactory_core.types import FaultKind, ToolResult, Trajectory

UNKNOWN = "unknown"  # stands for all tools that do not exist
_KINDS = (FaultKind.POLICY, FaultKind.TOOL, FaultKind.INFRA)


def tool_metrics(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """``tool/<name>/<metric>`` for the tools that were called, and ``tools/cache_hit_rate`` over all calls, if any.

    Counts: ``calls``, ``attempts``, ``bytes``, ``truncated``, ``faults_<kind>``; shares: ``cache_hit_rate``; seconds:
    ``latency_p50_s``, ``latency_p95_s``, ``latency_max_s``.
    """
    results: defaultdict[str, list[ToolResult]] = defaultdict(list)
    for trajectory in trajectories:
        names = {tool.name for tool in trajectory.tools}
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
    """The share of calls that another call had been made for: from the cache, or under way at the same moment."""
    return sum(call.cached for call in calls) / len(calls)
