"""What the guard looks for in a single metric, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isnan
from statistics import median

from rlfactory_core.algo.guard_past import LONG, STEPS, Past


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that goes wrong."""

    name: str  # in the metrics: ``guard/<name>``
    text: str  # what was seen, with the numbers, and what to do
    subject: str = ""  # distinguishes findings of one name, such as the kind of the faults
    steps: int = STEPS  # so many steps ago it had begun


@dataclass(frozen=True, slots=True)
class Change:
    """A metric that is compared with its value in the window in which the run's reward was best.

    It is found if it is more than ``factor`` times that value (below 1: less), by at least ``least``.
    """

    name: str  # of the finding
    metric: str
    factor: float
    least: float  # the change in the metric's unit that is worth a word
    few_least: float = 0.0  # it varies by itself: it also has to differ as much from the median of the run, or, as long
    # as few steps say what is usual, by this much from all of them
    below: float = inf  # it is fine from here on
    forgiven: bool = False  # it is fine if the reward has risen
    grows_with: str = ""  # it may grow as much as this metric
    steps: int = STEPS  # all of which have to show it

    def found(self, past: Past) -> Iterator[Finding]:
        now, best = past.window(self.steps), past.reference()
        values, then, least = now.values(self.metric), best.median(self.metric), self.least
        if self.grows_with:
            then *= max(1.0, now.mean(self.grows_with) / (best.mean(self.grows_with) or inf))
        if self.few_least:
            usual = past.usual(self.metric)
            if isnan(usual):
                usual, least = max(past.older().values(self.metric), default=0.0), self.few_least
            then = max(then, usual)
        if len(values) < self.steps or not all(self._beyond(value, then, least) for value in values):
            return
        if not (self.forgiven and past.has_risen()):
            text = WORDS[self.name, self.metric].format(now=median(values), then=then)
            yield Finding(self.name, text, self.metric, self.steps)

    def _beyond(self, value: float, then: float, least: float) -> bool:
        changed = value > self.factor * then if self.factor > 1 else value < self.factor * then
        return changed and abs(value - then) >= least and value < self.below


LIMITS = {
    "length": "at a limit of tokens, of a turn (rollout.max_turn_tokens) or of the attempt (rollout.max_tokens). Raise "
    "it, or read whether the policy rambles.",
    "max_turns": "at the limit of turns. Raise rollout.max_turns, or read whether the policy goes in circles.",
    "tool_budget": "at the limit of calls. Raise rollout.max_tool_calls, or read what the policy calls.",
    "max_rows": "because the agent rewrote its history too often.",
    "agent_failed": "because the agent failed. Read its errors.",
    "no_tool_call": "without a call or a final answer. Read what the policy writes instead.",
}
"""Reasons for which an attempt ends that are no success."""

CHANGES = (
    Change("entropy", "entropy", 1.8, 0.6),
    Change("gradient", "grad_norm", 10.0, 0.3, few_least=1.5),
    Change("kl", "kl", 10.0, 0.4, few_least=0.4),
    Change("calls", "tool_calls", 5.0, 3.0),
    Change("calls", "turns", 5.0, 5.0),
    Change("tools", "tool_calls", 0.07, 0.3, below=0.5),
    Change("tools", "tool_calls", 0.2, 0.3, below=0.5, steps=LONG),  # one that calls a little may be about to recover
    Change("long", "sampled_tokens", 4.0, 50.0),
    Change("length", "sampled_tokens", 0.3, 5.0, forgiven=True),
    Change("faults", "faults/policy", 10.0, 30.0, grows_with="tool_calls"),
    Change("faults", "faults/tool", 10.0, 30.0, grows_with="tool_calls"),
    Change("faults", "faults/infra", 10.0, 30.0, grows_with="tool_calls"),
    Change("faults", "faults/verifier", 10.0, 30.0, grows_with="tool_calls"),
    Change("faults", "faults/agent", 10.0, 30.0, grows_with="tool_calls"),
)
WORDS = {  # of a finding and its metric; ``{now}`` and ``{then}`` are the two values
    ("entropy", "entropy"): "Entropy has risen to {now:.2f} nats per token; when the reward was best, it was "
    "{then:.2f}: the policy drifts into noise. Lower train.lr, or raise train.kl.",
    ("gradient", "grad_norm"): "The gradient norm has risen to {now:.3g} from {then:.3g}: the updates are becoming "
    "unstable. Lower train.lr, and look for a reward or a text of unusual size.",
    ("kl", "kl"): "KL to the start model has risen to {now:.3g} nats per token from {then:.3g}: the policy leaves what "
    "it had learnt before. Lower train.lr, or raise train.kl.",
    ("calls", "tool_calls"): "The policy makes {now:.1f} tool calls per attempt; when the reward was best, it made "
    "{then:.1f}. Bound them with rollout.max_tool_calls, and see whether the reward pays for calls.",
    ("calls", "turns"): "An attempt takes {now:.1f} turns; when the reward was best, it took {then:.1f}. Bound them "
    "with rollout.max_turns.",
    ("tools", "tool_calls"): "The policy has stopped using its tools: {now:.2f} calls per attempt; when the reward was "
    "best, {then:.2f}. See whether the tools fail, or whether the reward can be had without them.",
    ("long", "sampled_tokens"): "The policy writes {now:,.0f} tokens per attempt; when the reward was best, it wrote "
    "{then:,.0f}. Read the longest attempts: they may repeat themselves.",
    ("length", "sampled_tokens"): "The policy writes {now:,.0f} tokens per attempt; when the reward was best, it wrote "
    "{then:,.0f}. See whether it still answers the question.",
    ("faults", "faults/policy"): "{now:,.0f} wrong tool calls per step, up from {then:,.0f}. Read attempts that begin "
    "to call wrongly.",
    ("faults", "faults/tool"): "{now:,.0f} calls that a tool refused per step, up from {then:,.0f}. Read the tool's "
    "answers: a tool may be down, or the policy asks differently.",
    ("faults", "faults/infra"): "{now:,.0f} infrastructure failures per step, up from {then:,.0f}. See whether the "
    "tools and servers are up.",
    ("faults", "faults/verifier"): "{now:,.0f} verifier failures per step, up from {then:,.0f}. See whether the scorer "
    "or judge is up.",
    ("faults", "faults/agent"): "{now:,.0f} failures of the agent per step, up from {then:,.0f}. Read the agent's "
    "errors.",
}
