"""Reads a run's folder once for reports: series of metrics, results before and after training, examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from rlfactory_core.algo.evaluation import changed
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import count_text, number_label, seconds_text
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.types import FaultKind

Points = Sequence[tuple[float, float]]
"""``(step, value)``, by step."""

_FAULTS = {
    FaultKind.POLICY: "wrong tool call",
    FaultKind.TOOL: "tool error",
    FaultKind.INFRA: "infrastructure failure",
    FaultKind.VERIFIER: "verifier failure",
    FaultKind.AGENT: "agent failure",
}
_MAX_READ = 1000  # evaluation trajectories that are read for examples


@dataclass(frozen=True, slots=True)
class EvalRow:
    """One line of the results: a metric overall or on a slice. None: not measured."""

    slice: str  # empty: overall
    greedy: tuple[float | None, float | None]  # before, after
    sampled: tuple[float | None, float | None]  # at temperature 1


@dataclass(frozen=True, slots=True)
class Pair:
    """The same sample before and after training; either may be missing."""

    before: StoredTrajectory | None
    after: StoredTrajectory | None


@dataclass(frozen=True, slots=True)
class RunData:
    """The data of a report; any part may be empty, for example if the run was stopped early."""

    folder: RunFolder  # with the rest, such as all trajectories
    name: str
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    metrics: Sequence[Mapping[str, float | None]]
    pairs: Sequence[Pair]
    rewards: Sequence[str] = ()  # the names of the scorers; empty if no trajectory is saved

    @classmethod
    def read(cls, folder: RunFolder, pairs: int = 3) -> RunData:
        """Read a run's folder, with up to ``pairs`` example samples before and after."""
        return cls(
            folder=folder,
            name=folder.name,
            config=folder.read_config() if folder.config.exists() else {},
            summary=folder.read_summary(),
            metrics=folder.read_metrics(),
            pairs=example_pairs(
                islice(folder.read_trajectories("eval-before"), _MAX_READ),
                islice(folder.read_trajectories("eval-after"), _MAX_READ),
                pairs,
            ),
            rewards=scorers(folder),
        )

    @property
    def stages(self) -> list[tuple[float, str]]:
        """The first step of each stage so far, and its method; empty if the run has one stage."""
        warm, train = self.config.get("warm_start"), self.config.get("train") or {}
        rest = self.config.get("stages") or ([train] if warm else [])
        methods = ["sft"] * bool(warm) + [str(stage.get("method", train.get("method", ""))) for stage in rest]
        numbered = [(int(row.get("stage") or 0), float(row.get("step") or 0)) for row in self.metrics]
        first = {number: step for number, step in reversed(numbered) if 0 < number <= len(methods)}
        return [(step, methods[number - 1]) for number, step in sorted(first.items())]

    def series(self, name: str) -> Points:
        """A metric over steps, without the steps that lack it.

        The first and last values of evaluations (``eval/…``) come from the summary if the metrics lack them.
        """
        points = {float(row.get("step") or 0): value for row in self.metrics if (value := row.get(name)) is not None}
        if name.startswith("eval/"):
            key = name.removeprefix("eval/")
            before, after = eval_value(self.summary, "before", key), eval_value(self.summary, "after", key)
            if before is not None:
                points.setdefault(0.0, before)
            if after is not None:
                points.setdefault(float(self.summary.get("steps") or 0), after)
        return sorted(points.items())

    def names(self, prefix: str) -> list[str]:
        """All metrics that begin with ``prefix``, in order of appearance; ends in the summary included."""
        found = {name: None for name in dict.fromkeys(chain.from_iterable(self.metrics)) if name.startswith(prefix)}
        if prefix.startswith("eval/"):
            key = prefix.removeprefix("eval/")
            found.update(dict.fromkeys(f"eval/{name}" for name in _measured(self.summary) if name.startswith(key)))
        return list(found)


def eval_value(summary: Mapping[str, Any], when: str, key: str) -> float | None:
    """One number of ``summary.json``'s evaluations, before or after; None if it was not measured."""
    value = _evaluation(summary, when).get(key)
    return None if value is None else float(value)


def _evaluation(summary: Mapping[str, Any], when: str) -> Mapping[str, Any]:
    return (summary.get("eval") or {}).get(when) or {}


def _measured(summary: Mapping[str, Any]) -> list[str]:
    """The names of all results, in order of appearance."""
    return [*{**_evaluation(summary, "before"), **_evaluation(summary, "after")}]


def success_metric(summary: Mapping[str, Any]) -> str:
    """The name of the score that says whether an attempt succeeded."""
    return str(summary.get("success") or "exact_match")


def eval_rows(summary: Mapping[str, Any]) -> list[EvalRow]:
    """The success metric, overall first, then each slice in order of appearance."""
    metric = success_metric(summary)
    keys = [key.removeprefix("sampled/") for key in _measured(summary)]
    slices = dict.fromkeys(key.removeprefix(f"{metric}/") for key in keys if key.startswith(f"{metric}/"))
    rows = []
    for name in ("", *slices):
        key = f"{metric}/{name}" if name else metric
        greedy = eval_value(summary, "before", key), eval_value(summary, "after", key)
        sampled = eval_value(summary, "before", f"sampled/{key}"), eval_value(summary, "after", f"sampled/{key}")
        if any(value is not None for value in (*greedy, *sampled)):
            rows.append(EvalRow(name, greedy, sampled))
    return rows


def eval_extras(summary: Mapping[str, Any]) -> list[tuple[str, float | None, float | None]]:
    """The other metrics, such as pass@4: name, before, after."""
    names = [name for name in _measured(summary) if "@" in name]
    return [(name, eval_value(summary, "before", name), eval_value(summary, "after", name)) for name in names]


def control_results(summary: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Each control's name and its success after training."""
    metric = success_metric(summary)
    after = _evaluation(summary, "after").items()
    parts = ((key.split("/"), value) for key, value in after if key.startswith("control/"))
    return [(key[1], float(value)) for key, value in parts if key[2:] == [metric]]


def faults_text(summary: Mapping[str, Any]) -> str:
    """Such as ``53 wrong tool calls, 1 infrastructure failure``; empty if there was no fault."""
    faults = summary.get("faults") or {}
    counts = [(kind, faults.get(kind.value, 0)) for kind in FaultKind]
    return ", ".join(count_text(count, _FAULTS[kind]) for kind, count in counts if count)


def masked_text(summary: Mapping[str, Any]) -> str:
    """Such as ``40 of 5,120 trajectories were masked (search 37, judge 3), and left out of the updates``; or empty."""
    masked = summary.get("masked") or {}
    if not masked:
        return ""
    sources = ", ".join(f"{source} {count:,.0f}" for source, count in sorted(masked.items(), key=lambda pair: -pair[1]))
    text = f"{sum(masked.values()):,.0f} of {summary['trajectories']:,.0f} trajectories were masked ({sources}), "
    replays = summary.get("replays", 0)
    again = f"; steps were played again {count_text(replays, 'time')}, because too many were masked" if replays else ""
    return f"{text}and left out of the updates{again}"


def example_pairs(before: Iterable[StoredTrajectory], after: Iterable[StoredTrajectory], limit: int) -> list[Pair]:
    """Samples to show, those with the largest gain first, one of each slice before a second of any."""
    firsts, lasts = _by_sample(before), _by_sample(after)
    pairs = [Pair(firsts.get(key), lasts.get(key)) for key in {**lasts, **firsts}]
    pairs.sort(key=_gain, reverse=True)
    chosen: list[tuple[int, Pair]] = []
    seen: dict[str, int] = {}
    for pair in pairs:
        turn = seen.get(_slice(pair), 0)
        seen[_slice(pair)] = turn + 1
        chosen.append((turn, pair))
    chosen.sort(key=lambda item: item[0])
    return [pair for _, pair in chosen[:limit]]


def scorers(folder: RunFolder) -> tuple[str, ...]:
    """The scorers' names, from the first scored trajectory; its latencies include scorers that failed."""
    files: list[int | str] = ["eval-before", "eval-after", *folder.trajectory_steps()[:1]]
    for file in files:
        for stored in islice(folder.read_trajectories(file), _MAX_READ):
            if stored.trajectory.score is not None:
                return tuple(stored.trajectory.score.latency_s)
    return ()


def _by_sample(trajectories: Iterable[StoredTrajectory]) -> dict[str, StoredTrajectory]:
    found: dict[str, StoredTrajectory] = {}
    for stored in trajectories:
        found.setdefault(stored.trajectory.sample.id, stored)
    return found


def _gain(pair: Pair) -> float:
    """The gain in reward; a pair with one side only comes last."""
    if pair.before is None or pair.after is None:
        return float("-inf")
    return pair.after.trajectory.reward - pair.before.trajectory.reward


def _slice(pair: Pair) -> str:
    stored = pair.after or pair.before
    return stored.trajectory.sample.slice if stored else ""


def ended_text(summary: Mapping[str, Any]) -> str:
    """Why the training ended before its last step, as a further sentence; empty if it did not."""
    ended = summary.get("ended") or {}
    return "" if ended.get("by", "steps") == "steps" else f" The training ended early: {ended['text']}."


def _lost_text(summary: Mapping[str, Any]) -> str:
    """How many attempts the results leave out, as a further sentence."""
    counts = [eval_value(summary, when, "masked") or 0 for when in ("before", "after")]
    text = f" Masked attempts, which are not counted: {counts[0]:,.0f} before, {counts[1]:,.0f} after."
    return text if any(counts) else ""


def _too_few(summary: Mapping[str, Any], before: float, after: float) -> int:
    """The number of held-out samples, if chance alone may change a share of them so; 0 if it is known to be no chance.

    Also 0 where it is not known how much chance can change: no number of samples, or values beyond 0 and 1.
    """
    counts = [
        int((eval_value(summary, when, "samples") or 0) - (eval_value(summary, when, "masked") or 0))
        for when in ("before", "after")
    ]
    if min(counts) <= 0 or not 0 <= min(before, after) <= max(before, after) <= 1:
        return 0
    return 0 if changed(before, after, (counts[0], counts[1])) else min(counts)


def _change(summary: Mapping[str, Any], before: float, after: float) -> tuple[str, str]:
    """The change in words; and what to add if chance alone may have made it."""
    if f"{before:.2f}" == f"{after:.2f}":
        return f"stayed at {after:.2f}", ""
    samples = _too_few(summary, before, after)
    verb = "went" if samples else "rose" if after > before else "fell"
    chance = f": no change that {count_text(samples, 'sample')} can show" if samples else ""
    return f"{verb} from {before:.2f} to {after:.2f}", chance


def title(summary: Mapping[str, Any]) -> str:
    """The result in a few words: the first line of a run's page."""
    metric = success_metric(summary)
    before, after = eval_value(summary, "before", metric), eval_value(summary, "after", metric)
    held_out = f"Held-out {number_label(metric)}"
    if after is None:
        return f"{held_out} is not known yet"
    if before is None:
        return f"{held_out} is {after:.2f}"
    return f"{held_out} {_change(summary, before, after)[0]}"


def headline(summary: Mapping[str, Any], steps: int) -> str:
    """The run in one sentence. ``steps`` are those in the metrics, for a run that has no summary yet."""
    metric = success_metric(summary)
    before, after = eval_value(summary, "before", metric), eval_value(summary, "after", metric)
    length = count_text(summary.get("steps", steps), "step")
    if summary.get("seconds"):
        length += f" and {seconds_text(summary['seconds'])}"
    if before is not None and after is not None:
        change, chance = _change(summary, before, after)
        early = f"{ended_text(summary)}{_lost_text(summary)}"
        return f"Held-out {number_label(metric)} (greedy) {change} in {length}{chance}.{early}"
    if after is not None:
        return f"Held-out {number_label(metric)} (greedy) is {after:.2f}."
    ended = "The run ended" if summary else "The run has not ended; so far it took"
    lack = "without an evaluation after training"
    if eval_value(summary, "after", "masked"):
        lack = "and every held-out attempt after training was masked: none has a score"
    return f"{ended}{' after' if summary else ''} {length}, {lack}."
