"""Tells from a run's metrics that its training goes wrong: from the rows of ``metrics.jsonl``, a step at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import isfinite

from rlfactory_core.algo.guard_past import LONG, REWARD, STEPS, Past, Row, nothing_trained
from rlfactory_core.algo.guard_scores import gap_name, gaps, pairs, reward_falls, scores_part
from rlfactory_core.algo.guard_signs import CHANGES, Finding, has_risen

STOPPED_BY = "train.guard: "  # the beginning of the reason for a stop
QUIET = 10  # steps without a finding, after which it is said again
YOUNG = 2 * STEPS  # steps that a run may need until the first group teaches something
ENTROPY = 0.01  # nats per token
SOLVED = 0.95  # of the highest reward, or of the success: that attempts are alike is then no fault
CUT_OFF = 0.5  # share of attempts
MISMATCH = 0.1  # nats per token, as the KL estimate of the sampling to the training policy
DRIFT = 20.0  # times what was usual in the run
PROBABILITY = 0.05  # likewise the mean difference of probabilities, as verl measures it
SLOW = ("fall", "gap", "tools")  # findings from `LONG` or more steps
LIMITS = {
    "length": "at a limit of tokens. Raise rollout.max_tokens, or read whether the policy rambles.",
    "max_turns": "at the limit of turns. Raise rollout.max_turns, or read whether the policy goes in circles.",
    "tool_budget": "at the limit of calls. Raise rollout.max_tool_calls, or read what the policy calls.",
    "max_rows": "because the agent rewrote its history too often.",
    "agent_failed": "because the agent failed. Read its errors.",
    "no_tool_call": "without a call or a final answer. Read what the policy writes instead.",
}
ADVICE = "The task is solved, or too hard, or its reward does not tell attempts apart: read some attempts of one group."
NOTHING = "Read some attempts: does the model know the form of an answer, and does the scorer accept a right one?"


class Guard:
    """Follows a run step by step, with a memory of constant size.

    Args:
        weights: of the scores by their metrics; those of weight 0 are only measured.
        opinions: the scores that a model gives; None: those that have "judge" in their name.
        top: the highest reward of an attempt; None: the sum of the weights.
        success: the metric that means success; by default exact_match, or the score with the largest weight.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        opinions: Collection[str] | None = None,
        top: float | None = None,
        success: str = "",
    ) -> None:
        models = [name for name in weights if "judge" in name.lower()] if opinions is None else opinions
        self.pairs = pairs(weights, models)  # of rewarded opinions and measured truths
        by_weight = max(weights, key=lambda name: weights[name], default="")
        self._weights, self._success = weights, success or ("exact_match" if "exact_match" in weights else by_weight)
        self._top = top or sum(max(weight, 0.0) for weight in weights.values()) or 1.0
        self._past = Past((*weights, *(gap_name(*each) for each in self.pairs)))
        self._said: dict[tuple[str, str], int] = {}  # the last step of each finding
        self._earned: set[str] = set()  # of the reward and the success, what was not 0 in some step

    def add(self, row: Row) -> tuple[list[Finding], list[Finding]]:
        """What the run shows after one more step; and what of it is new."""
        gaps_now = {
            gap_name(judge, truth): right - opinion
            for judge, truth in self.pairs
            if (opinion := row.get(judge)) is not None and (right := row.get(truth)) is not None
        }
        past = self._past
        past.add({**row, **gaps_now})
        self._earned |= {name for name in (REWARD, self._success) if row.get(name) != 0}
        if past.steps < STEPS:
            return [], []
        found = [*_broken(past), *reward_falls(past)]  # the most telling first: it is the reason of a stop
        apart = list(scores_part(past, self._weights))
        fallen = {finding.subject for finding in apart}
        found += [*apart, *gaps(past, [each for each in self.pairs if each[1] not in fallen])]
        found += [*_alike(past, self._share_of_top()), *_limits(past), *_mismatch(past)]
        found += [finding for change in CHANGES for finding in change.found(past)]
        found = list({(each.name, each.subject): each for each in found}.values())
        new = [each for each in found if past.steps - self._said.get((each.name, each.subject), -QUIET) >= QUIET]
        self._said |= {(each.name, each.subject): past.steps for each in found}
        return found, new

    def _share_of_top(self) -> float:
        """The reward as a share of the highest one, or the success if that is more; 1: the task is solved."""
        window = self._past.window()
        return max(window.mean(self._success) or 0.0, (window.mean(REWARD) or 0.0) / self._top)

    def whole(self) -> list[str]:
        """What the run as a whole shows when it has ended."""
        past = self._past
        if not past.steps:
            return []
        texts = []
        nothing = [name for name in dict.fromkeys((REWARD, self._success)) if name and name not in self._earned]
        if nothing:
            texts.append(f"In all {count_text(past.steps)} {' and '.join(nothing)} stayed at 0. {NOTHING}")
        elif not past.trained:
            texts.append(
                f"In all {count_text(past.steps)} the attempts of each group got the same reward: nothing was trained. "
                f"{ADVICE}"
            )
        return texts

    def trained(self, name: str) -> float | None:
        """The mean of a metric in the last ten steps."""
        return self._past.window(LONG).mean(name)


def count_text(steps: int) -> str:
    return f"{steps} steps" if steps > 1 else "1 step"


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
        bad = [row for row in rows if name in row and not _finite(row[name]) and not row.get("masked")]
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


def _finite(value: float | None) -> bool:
    return value is not None and isfinite(value)


def _alike(past: Past, share: float) -> Iterator[Finding]:
    """Attempts that are all alike, in a task that is not solved."""
    window = past.window()
    rows = window.rows if past.trained else past.window(YOUNG).rows
    if share < SOLVED and all(map(nothing_trained, rows)) and len(rows) >= (STEPS if past.trained else YOUNG):
        yield Finding(
            "equal",
            f"In the last {len(rows)} steps all attempts of each group got the same reward: nothing was "
            f"trained. {ADVICE}",
            steps=len(rows),
        )
    trained = [row for row in window.rows if row.get("trained_tokens") != 0]  # otherwise nothing was measured
    values = [value for row in trained if (value := row.get("entropy")) is not None and isfinite(value)]
    if share < SOLVED and len(values) == STEPS and max(values) < ENTROPY:
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
        share, then = now.mean(metric), None if best is None else best.mean(metric)
        if share is None or then is None or has_risen(past):
            continue
        if share > CUT_OFF > 2 * then and min(now.values(metric)) > then + CUT_OFF / 4:
            text = f"{share:.0%} of the attempts end {words} When the reward was best, it was {then:.0%}."
            yield Finding("cut_off", text, reason)


def _mismatch(past: Past) -> Iterator[Finding]:
    window = past.window()
    if any(row.get("staleness") for row in window.rows):  # older weights sampled, so a difference is expected
        return
    usual = past.usual("mismatch_kl")
    risen = MISMATCH if usual is None else min(MISMATCH, max(DRIFT * usual, MISMATCH / 4))
    for name, most in (("mismatch_kl", risen), ("rollout_probs_diff_mean", PROBABILITY)):
        values = window.values(name)
        if len(values) == STEPS and min(values) > most:
            yield Finding(
                "mismatch",
                f"What is sampled is not what is trained: {name} is {window.mean(name):.3g} (at most {most:.3g} is "
                "usual). Are the weights transferred, and do both compute alike?",
                name,
            )
