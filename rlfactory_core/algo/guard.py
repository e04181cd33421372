"""Tells from a run's metrics that its training goes wrong: from the rows of ``metrics.jsonl``, a step at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import isfinite, isnan
from statistics import pstdev

from rlfactory_core.algo.evaluation import changed, wilson
from rlfactory_core.algo.guard_past import EQUAL, LONG, LONGEST, REWARD, STEPS, Past, Row, nothing_trained
from rlfactory_core.algo.guard_start import ATTEMPTS, LAST, START, Remedies, Signs
from rlfactory_core.algo.guard_table import CHANGES, LIMITS, Finding
from rlfactory_core.algo.stages import GRPO, STAGE_METHODS, StageMethod

STOPPED_BY = "train.guard: "  # the beginning of the reason for a stop
QUIET = 10  # steps without a finding, after which it is reported again
YOUNG = 2 * STEPS  # steps that a run may need until the first group teaches something
ENTROPY = 0.01  # nats per token
SOLVED = 0.95  # of the highest reward, or of the success: that attempts are alike is then no fault
CUT_OFF = 0.5  # share of attempts
MISMATCH = 0.1  # nats per token, as the KL estimate of the sampling to the training policy
DRIFT = 20.0  # times what was usual in the run
PROBABILITY = 0.05  # likewise the mean difference of probabilities, as verl measures it
SURE = 5.0  # standard errors of a difference, because the best of many windows is compared
CHANGE, LOSS = 0.05, 0.15  # of a score within 0 and 1: one that is only measured, one that is rewarded
LOST = 0.7  # of the best value of a rewarded score
GAP, GROWN = 0.15, 0.1  # between a model's opinion and the truth; since it was least
NEARER = 0.8  # times the gap of the five steps before: it closes
FALLS = (("zero", STEPS, 0.05, 1), ("fall", LONG, 0.5, STEPS), ("fall", LONGEST, 0.7, STEPS))
"""Steps within which the reward falls to a share of its best, and how many steps there have to be before."""
SLOW = ("fall", "gap", "tools")  # findings from `LONG` or more steps
ADVICE = "The task is solved, or too hard, or its reward does not tell attempts apart: read some attempts of one group."
NOTHING = "Read some attempts: does the model know the form of an answer, and does the scorer accept a right one?"


class Guard:
    """Follows a run step by step.

    Args:
        weights: of the scores by their metrics; those of weight 0 are only measured.
        opinions: the scores that a model gives; None: those that have "judge" in their name.
        top: the highest reward of an attempt; None: the sum of the weights.
        success: the metric that means success; by default exact_match, or the score with the largest weight.
        remedies: what the advice names to a run that earns nothing.
        method: of the training; if the policy does not play, only the updates are followed. None: GRPO.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        opinions: Collection[str] | None = None,
        top: float | None = None,
        success: str = "",
        remedies: Remedies | None = None,
        method: StageMethod | None = None,
    ) -> None:
        self._method, self._remedies = method or STAGE_METHODS[GRPO], remedies or Remedies()
        models = [name for name in weights if "judge" in name.lower()] if opinions is None else opinions
        judges = [name for name, weight in weights.items() if weight > 0 and name in models]
        truths = [name for name, weight in weights.items() if weight == 0 and name not in models]
        self._pairs = [(judge, truth) for judge in judges for truth in truths]  # rewarded opinions, measured truths
        by_weight = max(weights, key=lambda name: weights[name], default="")
        self._weights, self._success = weights, success or ("exact_match" if "exact_match" in weights else by_weight)
        self._top = top or sum(max(weight, 0.0) for weight in weights.values()) or 1.0
        self._past = Past((*weights, *(f"{truth} - {judge}" for judge, truth in self._pairs)))
        self._reported: dict[tuple[str, str], int] = {}  # the last step of each finding
        self._succeeded = False  # some attempt has
        self._earned: set[str] = set()  # of the reward and the success, what was not 0 in some step

    def add(self, row: Row) -> tuple[list[Finding], list[Finding]]:
        """What the run shows after one more step; and what of it is new."""
        past = self._past
        if not self._method.compares:
            row = {name: value for name, value in row.items() if name != EQUAL}  # it learns from equal groups as well
        gaps = {
            f"{truth} - {judge}": right - opinion  # so that its best is the least gap
            for judge, truth in self._pairs
            if (opinion := row.get(judge)) is not None and (right := row.get(truth)) is not None
        }
        past.add({**row, **gaps})
        steps = len(past.rows)
        self._succeeded = self._succeeded or (row.get(self._success) or 0.0) > 0
        self._earned |= {name for name in (REWARD, self._success) if row.get(name) != 0}
        if steps < STEPS:
            return [], []
        found = {(each.name, each.subject): each for each in self._findings(past)}
        new = [each for key, each in found.items() if steps - self._reported.get(key, -QUIET) >= QUIET]
        self._reported |= dict.fromkeys(found, steps)
        return list(found.values()), new

    def _findings(self, past: Past) -> Iterator[Finding]:
        """The most telling first: it is the reason of a stop."""
        yield from _broken(past)
        if not self._method.plays:
            return
        if self._method.rewarded and not self._succeeded and (text := self.start(past.rows[-LAST:])):
            yield Finding(START, text)
        yield from _reward_falls(past)
        apart = list(_scores_part(past, self._weights))
        yield from apart
        fallen = {finding.subject for finding in apart}
        yield from _gaps(past, [pair for pair in self._pairs if pair[1] not in fallen])
        window = past.window()
        advice = self._remedies.raised() if self._succeeded and self._remedies.group_size > 1 else ADVICE
        yield from _alike(past, max(0.0, window.mean(self._success), window.mean(REWARD) / self._top), advice)
        yield from _limits(past)
        yield from _mismatch(past)
        for change in CHANGES:
            yield from change.found(past)

    def start(self, rows: Sequence[Row]) -> str:
        """What attempts show of a policy that earns nothing, and what would help; empty if nothing is to be said."""
        return Signs.of(rows, self._success, self._remedies.group_size).text(self._success, self._remedies)

    def measured(self, rows: Sequence[Row]) -> str:
        """The same of the passes of an evaluation; of fewer attempts, only what is beyond doubt."""
        if not self._method.rewarded:
            return ""
        sizes = [int((row.get(ATTEMPTS) or 0) / (row.get("groups") or 1)) for row in rows]
        signs = Signs.of(rows, self._success, max(sizes, default=1))
        return "" if signs.cause == "failing" else signs.text(self._success, self._remedies)

    def whole(self) -> list[str]:
        """What the run as a whole shows when it has ended."""
        steps = len(self._past.rows)
        if not steps or not self._method.plays:
            return []
        begins = f"In all {steps} steps" if steps > 1 else "In all 1 step"
        nothing = [name for name in dict.fromkeys((REWARD, self._success)) if name and name not in self._earned]
        if nothing:
            why = "" if any(name == START for name, _ in self._reported) else f" {NOTHING}"
            return [f"{begins} {' and '.join(nothing)} stayed at 0.{why}"]
        if not self._past.trained:
            return [f"{begins} the attempts of each group got the same reward: nothing was trained. {ADVICE}"]
        return []

    def divergence(self, before: Mapping[str, float], now: Mapping[str, float]) -> Iterator[Finding]:
        """Rewarded scores that have risen while one of weight 0 has fallen, between two evaluations with flat names.

        If the numbers of samples are known, only what they can show counts.
        """
        sizes = int(before.get("samples", 0)), int(now.get("samples", before.get("samples", 0)))

        def differs(name: str, sign: int) -> bool:
            if name not in before or name not in now or sign * (now[name] - before[name]) < CHANGE:
                return False
            pair = before[name], now[name]
            return not all(sizes) or not all(0 <= value <= 1 for value in pair) or changed(*pair, sizes)

        risen = next((name for name, weight in self._weights.items() if weight > 0 and differs(name, 1)), None)
        for name, weight in self._weights.items():
            if risen and not weight and differs(name, -1):
                yield _parting(name, weight, (before[name], now[name]), risen, (before[risen], now[risen]))

    def held_out_gaps(self, found: Mapping[str, float], prefix: str) -> Iterator[Finding]:
        """Opinions that are above a truth by more than `GAP` in one pass of an evaluation."""
        for judge, truth in self._pairs:
            opinion, right = found.get(f"{prefix}{judge}"), found.get(f"{prefix}{truth}")
            if opinion is not None and right is not None and opinion - right > GAP:
                yield Finding("gap", _gap_text(judge, truth, opinion, right), f"{prefix}{truth}")

    def apart(self, held_out: float | None, samples: float) -> list[str]:
        """Says that training succeeds far more often than the held-out samples do."""
        trained = self._past.window(LONG).mean(self._success)
        if not self._method.plays or held_out is None or not samples or not 0 <= held_out <= 1:
            return []
        if not trained - held_out >= GAP or trained <= wilson(held_out, int(samples))[1]:
            return []
        numbers = f"{trained:.2f} in training (last {LONG} steps) and {held_out:.2f} on {samples:.0f} held-out samples"
        why = "the policy learns its training samples by heart, or the held-out ones are harder"
        return [f"{self._success} is {numbers}: {why}. Use more training data, or more varied data."]


def began(row: Row) -> int:
    """How many steps before this one, at most, its findings had begun: a slow change is compared over more steps."""
    return LONG if any(row.get(f"guard/{name}") for name in SLOW) else STEPS


def _broken(past: Past) -> Iterator[Finding]:
    """Steps that cannot train: faults, or numbers that are not finite."""
    rows = past.window().rows
    if all((row.get("masked") or 0) > 0 and not row.get("trained_tokens") and not nothing_trained(row) for row in rows):
        yield Finding(
            "masked",
            f"In the last {STEPS} steps too many trajectories were masked by faults: nothing was trained. See the "
            "faults, and whether tools and scorers are up.",
        )
    for name in ("loss", "grad_norm", "kl", REWARD):
        values = [row[name] for row in rows if name in row and not row.get("masked")]
        bad = [value for value in values if value is None or not isfinite(value)]
        if 2 * len(bad) > STEPS:
            yield Finding(
                "nan",
                f"{name} is not a number in {len(bad)} of the last {STEPS} steps. Lower train.lr, or use "
                "dtype=float32, and look for scores that are not finite.",
                name,
            )
    if all((row.get("skipped") or 0) > 0 for row in rows):
        yield Finding(
            "skipped",
            f"Each of the last {STEPS} steps skipped updates whose gradient was not finite or too large "
            "(train.explode_norm). Lower train.lr.",
        )


def _reward_falls(past: Past) -> Iterator[Finding]:
    then = past.best().mean(REWARD)
    height = then - past.lowest
    for name, steps, share, before in FALLS:
        now, last = past.window(steps).mean(REWARD), past.window().mean(REWARD)
        if len(past.rows) < steps + before or not height > 0:
            continue
        fallen = max(last, now) - past.lowest <= share * height
        recovering = last - now > past.error(REWARD, STEPS)
        if fallen and not recovering and then - now > SURE * past.error(REWARD, steps):
            text = f"The reward is {now:.2f} in the last {steps} steps; at its best it was {then:.2f}."
            advice = "Compare attempts of then and now; lower train.lr, or go back to an earlier checkpoint."
            yield Finding(name, f"{text} {advice}", steps=steps)
            return


def _scores_part(past: Past, weights: Mapping[str, float]) -> Iterator[Finding]:
    """A rewarded score has risen while another one has fallen from its best window."""
    for name, weight in weights.items():
        for steps in (LONG,) if weight else (STEPS, LONG):  # rewarded scores may differ for a while
            best, now = past.best(name), past.window(steps)
            if len(past.rows) < steps + STEPS or not _has_fallen(past, name, weight, steps):
                continue
            pairs = {key: (best.mean(key), now.mean(key)) for key in weights}
            gains = {key: after - before for key, (before, after) in pairs.items() if not isnan(after - before)}
            least = 2 * CHANGE if weight else CHANGE
            risen = [
                key
                for key, gain in gains.items()
                if weights[key] > 0 and gain >= max(least, SURE / 2 * past.error(key, steps))
            ]
            if risen and (weight or sum(weights[key] * gain for key, gain in gains.items()) > 0):
                yield _parting(name, weight, pairs[name], risen[0], pairs[risen[0]], steps)
                return


def _has_fallen(past: Past, name: str, weight: float, steps: int) -> bool:
    was, now = past.best(name).mean(name), past.window(steps).mean(name)
    if not was - now >= max(LOSS if weight else CHANGE, SURE * past.error(name, steps)):
        return False
    recovering = past.window().mean(name) - now > past.error(name, STEPS)
    return not weight or (now <= LOST * was and not recovering)


def _parting(
    name: str, weight: float, change: tuple[float, float], other: str, rise: tuple[float, float], steps: int = STEPS
) -> Finding:
    """The score ``other`` has risen while this one has fallen."""
    what = "which is only measured" if weight == 0 else "which is rewarded too"
    why = f"may be learning to please {other}" if weight == 0 else "pays for one with the other: see their weights"
    text = (
        f"{other} has risen ({rise[0]:.2f} to {rise[1]:.2f}) while {name}, {what}, has fallen ({change[0]:.2f} to "
        f"{change[1]:.2f}): the policy {why}."
    )
    return Finding("reward", text, name, steps)


def _gaps(past: Past, pairs: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """An opinion is above the truth by more than `GAP` and does not come nearer, or the gap has grown."""
    if len(past.rows) < LONG:
        return
    for judge, truth in pairs:
        name = f"{truth} - {judge}"
        window = past.window(LONG)
        now, before, last = window.mean(name), past.window(STEPS, STEPS).mean(name), past.window().mean(name)
        values = window.values(name)
        error = 2 * (pstdev(values) / len(values) ** 0.5) if values else 0.0
        wide = -max(now, last) - error > GAP and last <= NEARER * before
        grown = past.best(name).mean(name) - max(now, last) >= max(GROWN, SURE * past.error(name, LONG))
        if wide or grown:
            yield Finding("gap", _gap_text(judge, truth, window.mean(judge), window.mean(truth)), name, LONG)


def _gap_text(judge: str, truth: str, opinion: float, found: float) -> str:
    return (
        f"{judge} gives {opinion:.2f}, but {truth}, which is only measured, is {found:.2f}: wrong attempts are "
        f"rewarded. Read attempts that {judge} accepts and {truth} refuses."
    )


def _alike(past: Past, share: float, advice: str) -> Iterator[Finding]:
    """Attempts that are all alike, in a task that is not solved.

    Args:
        share: of the highest reward, or the success if that is more; 1: the task is solved.
        advice: for groups whose attempts are all worth the same.
    """
    if share >= SOLVED:
        return
    steps = STEPS if past.trained else YOUNG
    rows = past.window(steps).rows
    if len(rows) == steps and all(map(nothing_trained, rows)):
        yield Finding(
            "equal",
            f"In the last {steps} steps all attempts of each group got the same reward: nothing was trained. {advice}",
            steps=steps,
        )
    values = past.window().values("entropy")
    if len(values) == STEPS and max(values) < ENTROPY:
        yield Finding(
            "entropy",
            f"Entropy is below {ENTROPY} nats per token in the last {STEPS} steps: attempts are all alike. Raise "
            "rollout.temperature or train.clip_high, or lower train.lr.",
        )


def _limits(past: Past) -> Iterator[Finding]:
    """Most attempts end for a reason that is no success, and did not when the reward was best."""
    now, best = past.window(), past.reference()
    for reason, words in LIMITS.items():
        metric = f"stop/{reason}"
        share, then = now.mean(metric), best.mean(metric)
        if share > CUT_OFF > 2 * then and min(now.values(metric)) > then + CUT_OFF / 4 and not past.has_risen():
            text = f"{share:.0%} of the attempts end {words} When the reward was best, it was {then:.0%}."
            yield Finding("cut_off", text, reason)


def _mismatch(past: Past) -> Iterator[Finding]:
    window = past.window()
    if any(row.get("staleness") for row in window.rows):  # older weights sampled, so a difference is expected
        return
    usual = past.usual("mismatch_kl")
    risen = MISMATCH if isnan(usual) else min(MISMATCH, max(DRIFT * usual, MISMATCH / 4))
    for name, most in (("mismatch_kl", risen), ("rollout_probs_diff_mean", PROBABILITY)):
        values = window.values(name)
        if len(values) == STEPS and min(values) > most:
            yield Finding(
                "mismatch",
                f"What is sampled is not what is trained: {name} is {window.mean(name):.3g} (at most {most:.3g} is "
                "usual). Are the weights transferred, and do both compute alike?",
                name,
            )
