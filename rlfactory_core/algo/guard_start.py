"""Tells that a policy earns nothing from its start on, what of it is zero, and which stage or key would help.

From attempts that are all worth the same, a policy that is compared with itself learns nothing. A pretrained model
that never calls a tool can try for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from rlfactory_core.algo.guard_past import REWARD, Row

START = "start"  # the name of the finding
ATTEMPTS = "attempts"  # the metric: how many were played
SILENT = 48  # attempts without a valid call that are enough to say so: it makes one in fewer than 6 % of them
FAILING = 200  # attempts without a success, of a policy that calls: it succeeds in fewer than 1.5 %
LAST = 100  # steps that are looked at
MOST = 0.5  # share of the attempts
SOME = 0.25
Cause = Literal["", "cut", "unparsed", "unknown", "silent", "failing"]


@dataclass(frozen=True, slots=True)
class Remedies:
    """What the advice can name.

    Args:
        command: starts another run like this one; empty: it is not known.
        group_size: of the training.
        demonstrated: whether the task shows how it is solved.
        taught: whether the policy has learnt from demonstrations already.
        turn_tokens, tokens: the limits of a turn and of an attempt.
        served: whether a server answers, which nothing here trains.
    """

    command: str = ""
    group_size: int = 1
    demonstrated: bool = False
    taught: bool = False
    turn_tokens: int = 0
    tokens: int = 0
    served: bool = False

    @property
    def warm_start(self) -> str:
        """What to do about a model that does not know how the task is solved."""
        if self.served:
            return (
                "Read what it writes (rlfactory trace), and see whether the server reads calls (vLLM: "
                "--enable-auto-tool-choice --tool-call-parser NAME)"
            )
        if self.taught:
            return "Give it more or other demonstrations, or a larger model"
        if self.demonstrated:
            return f"Let it learn from the task's own demonstrations first{self._with('--warm-start solve')}"
        return (
            "Let it learn from demonstrations first: a file of conversations, or what a better model did "
            f"(rlfactory eval --api URL --model TEACHER --out teacher){self._with('--warm-start FILE')}"
        )

    def raised(self) -> str:
        """The advice for attempts of which some succeed, and those of a group are alike."""
        keys = f"train.group_size={2 * self.group_size}"
        more = f"Some attempts succeed: play more of each prompt{self._with(keys)}"
        return f"{more}, or learn from those that do (train.method=rft)."

    def longer(self, *, silent: bool) -> str:
        """The advice for attempts that limits of tokens cut off; ``silent``: and that have no valid call."""
        keys = f"rollout.max_turn_tokens={2 * self.turn_tokens}"
        keys += f" rollout.max_tokens={2 * self.tokens}" if self.tokens <= 4 * self.turn_tokens else ""
        room = f"Give it more room{self._with(keys)}"
        return f"{room}, or if it only rambles, {_lower(self.warm_start)}" if silent else room

    def _with(self, words: str) -> str:
        return f": {self.command} {words}" if self.command else f" ({words})"


@dataclass(frozen=True, slots=True)
class Signs:
    """What some attempts show."""

    attempts: int  # that no fault masks
    reward: float  # mean
    success: float | None  # mean; None: it was not measured
    called: float | None  # share with a valid call; None: no tool is offered
    unparsed: float  # share with a call that cannot be read
    unknown: float  # share of the calls that name a tool that does not exist
    cut: float  # share that a limit of tokens ended
    group: int  # attempts at a prompt

    @classmethod
    def of(cls, rows: Sequence[Row], success: str, group: int) -> Signs:
        """From rows of metrics.

        Args:
            success: the metric that means success.
            group: attempts at a prompt.
        """
        masked = sum(row.get("masked") or 0.0 for row in rows)
        played = sum(row.get(ATTEMPTS) or (row.get("groups") or 0.0) * group for row in rows)
        tools = {name for row in rows for name in row if name.startswith("tool/") and name.endswith("/calls")}
        calls = {name: sum(row.get(name) or 0.0 for row in rows) for name in tools}
        return cls(
            attempts=int(played - masked),
            reward=_mean(rows, REWARD) or 0.0,
            success=_mean(rows, success),
            called=_mean(rows, "called"),
            unparsed=_mean(rows, "unparsed") or 0.0,
            unknown=calls.get("tool/unknown/calls", 0.0) / (sum(calls.values()) or 1.0),
            cut=_mean(rows, "stop/length") or 0.0,
            group=group,
        )

    @property
    def cause(self) -> Cause:
        """Why nothing is earned; empty: something is, or too few attempts say so."""
        silent = self.called == 0
        if (
            self.success is None
            or self.success > 0
            or self.attempts < (SILENT if silent and self.reward <= 0 else FAILING)
        ):
            return ""
        if self.reward > 0 and not silent:
            return ""
        if self.cut > MOST:
            return "cut"
        if silent and self.unparsed > SOME:
            return "unparsed"
        if silent and self.unknown > MOST:
            return "unknown"
        return "silent" if silent else "failing"

    def text(self, success: str, remedies: Remedies) -> str:
        """What is zero, and what to do about it; empty where nothing is to be said."""
        does = {
            "cut": f"{self.cut:.0%} of them end at a limit of tokens. {remedies.longer(silent=self.called == 0)}",
            "unparsed": "The model writes calls in a form that the chat format does not read: see rlfactory trace, "
            f"and choose the right chat.format. If it is the right one: {_lower(remedies.warm_start)}",
            "unknown": f"The model calls tools that do not exist. {remedies.warm_start}",
            "silent": f"The model does not call its tools. {remedies.warm_start}",
            "failing": f"The model does not know how the task is solved. {remedies.warm_start}",
        }
        if not (cause := self.cause):
            return ""
        shares = [f"{success} 0"]
        shares += [f"pass@{self.group} 0"] if self.group > 1 else []
        if self.called is not None:
            shares.append(f"attempts with a valid call {self.called:.0%}, with an unreadable call {self.unparsed:.0%}")
        shares.append(f"cut off {self.cut:.0%}")
        earned = "earned anything" if self.reward <= 0 else "succeeded"
        return f"None of {self.attempts:,} attempts has {earned} ({', '.join(shares)}). {does[cause]}"


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _mean(rows: Sequence[Row], name: str) -> float | None:
    """Over groups; None where no row has the metric."""
    known = [(value, row.get("groups") or 1.0) for row in rows if (value := row.get(name)) is not None]
    found = [(value, groups) for value, groups in known if isfinite(value)]
    return sum(value * groups for value, groups in found) / sum(groups for _, groups in found) if found else None
