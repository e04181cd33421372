"""Counts and latencies of tool calls, between one take and the next."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rlfactory_core.types import FaultKind, ToolResult

_MAX_LATENCIES = 65536  # where nobody takes the metrics
_KINDS = (FaultKind.POLICY, FaultKind.TOOL, FaultKind.INFRA)


@dataclass(slots=True)
class _Window:
    counts: Counter[str] = field(default_factory=Counter)
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_LATENCIES))


class ToolMeter:
    """Results go in, flat metrics come out."""

    def __init__(self) -> None:
        self._windows: defaultdict[str, _Window] = defaultdict(_Window)

    def record(self, name: str, result: ToolResult) -> None:
        """``name`` is the tool's, or one name for all that do not exist."""
        window = self._windows[name]
        window.latencies.append(result.latency_s)
        window.counts.update(
            {
                "calls": 1,
                "attempts": result.attempts,
                "bytes": result.size_bytes,
                "cached": result.cached,
                "truncated": result.truncated,
            }
        )
        if result.fault is not None:
            window.counts[result.fault.value] += 1

    def take(self) -> Mapping[str, float]:
        """Everything since the last take, for the tools that were called, as ``tool/<name>/<metric>``."""
        windows, self._windows = self._windows, defaultdict(_Window)
        return {f"tool/{name}/{key}": value for name, window in windows.items() for key, value in _metrics(window)}


def _metrics(window: _Window) -> Iterator[tuple[str, float]]:
    counts, latencies = window.counts, sorted(window.latencies)
    for key in ("calls", "attempts", "bytes", "truncated"):
        yield key, float(counts[key])
    for kind in _KINDS:
        yield f"faults_{kind.value}", float(counts[kind.value])
    yield "cache_hit_rate", counts["cached"] / counts["calls"]
    yield "latency_p50_s", _quantile(latencies, 0.5)
    yield "latency_p95_s", _quantile(latencies, 0.95)
    yield "latency_max_s", latencies[-1]


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
