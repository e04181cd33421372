"""Which trajectories are meant: a small expression over their facts, such as ``reward >= 1 and tool_calls >= 1``."""

from __future__ import annotations

import ast
import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.types import Trajectory

FACTS: Mapping[str, Callable[[Trajectory], Any]] = {
    "reward": lambda each: each.reward,
    "turns": lambda each: len(each.turns),
    "tool_calls": lambda each: each.num_tool_calls,
    "failed_calls": lambda each: sum(result.fault is not None for turn in each.turns for result in turn.results),
    "tokens": lambda each: each.num_sampled,
    "context_tokens": lambda each: len(each.ids) - each.num_sampled,
    "rows": lambda each: len(each.rows),
    "stop": lambda each: each.stop.value,
    "masked": lambda each: each.masked,
    "faults": lambda each: [fault.kind.value for fault in each.faults],
    "tools": lambda each: [call.name for turn in each.turns for call in turn.message.tool_calls],
    "sample": lambda each: each.sample.id,
    "slice": lambda each: each.sample.slice,
    "split": lambda each: each.sample.split,
    "task": lambda each: each.sample.task,
    "attempt": lambda each: each.attempt,
    "seconds": lambda each: each.seconds,
}
"""Name -> its value. Further names are those of scores, unweighted; one with other characters is ``score["NAME"]``."""
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_MOST_PARTS = 500  # each may be within the one before
_EXPECTED = 'an expression such as: reward >= 1 and tool_calls >= 1 and stop != "length"'


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on trajectories; nothing in it is executed as Python.

    Args:
        text: comparisons of facts, scores, numbers and texts, joined by ``and``, ``or``, ``not`` and brackets; ``in``
            for faults and tools. Empty: all trajectories.

    Raises:
        UsageError: it is no such expression.
    """

    text: str = ""
    _tree: ast.expr = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            tree = ast.parse(self.text.strip() or "True", mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            raise UsageError(f"--where {self.text!r} cannot be read; expected {_EXPECTED}") from error
        parts = list(ast.walk(tree))
        if len(parts) > _MOST_PARTS:
            raise UsageError(f"--where {self.text!r:.80} is too long; expected {_EXPECTED}")
        for node in parts:
            if not isinstance(node, _ALLOWED):
                part = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
                raise UsageError(f"--where {self.text!r}: {part!r} cannot stand there; expected {_EXPECTED}")
        object.__setattr__(self, "_tree", tree)

    @property
    def names(self) -> Sequence[str]:
        """The facts and scores that it names."""
        return [*dict.fromkeys(name for name in map(_named, ast.walk(self._tree)) if name is not None)]

    def holds(self, trajectory: Trajectory) -> bool:
        """Whether it is true of a trajectory. No comparison with a score is true of one that has none.

        Raises:
            UsageError: a name is neither a fact nor a score of the trajectory, or values cannot be compared.
        """
        try:
            return bool(self._value(self._tree, trajectory))
        except TypeError as error:
            raise UsageError(f"--where {self.text!r}: {error}; expected {_EXPECTED}") from error

    def among(self, trajectories: Sequence[Trajectory], what: str) -> list[Trajectory]:
        """Those of which it is true, if there is one.

        Args:
            what: names the trajectories in the error.

        Raises:
            UsageError: it is true of none, and the message has the values that there are; or as `holds`.
        """
        kept = [each for each in trajectories if self.holds(each)]
        if not kept:
            values = [self._values(name, trajectories) for name in self.names] if trajectories else []
            there = f" They have {'; '.join(values)}." if values else ""
            raise UsageError(f"--where {self.text!r} keeps none of {len(trajectories)} {what}.{there}")
        return kept

    def _values(self, name: str, trajectories: Sequence[Trajectory]) -> str:
        found: list[Any] = []
        for each in trajectories:
            value = FACTS[name](each) if name in FACTS else self._score(name, each)
            found += (value or ["none"]) if isinstance(value, list) else [value]
        numbers = [each for each in found if isinstance(each, int | float) and not isinstance(each, bool)]
        if len(numbers) == len(found):
            counted = [each for each in numbers if not math.isnan(each)]
            return f"{name} from {min(counted):g} to {max(counted):g}" if counted else f"no {name}"
        common = Counter(map(str, found)).most_common(6)
        return f"{name} " + ", ".join(f"{value or 'empty'} ({count})" for value, count in common)

    def _value(self, node: ast.expr, of: Trajectory) -> Any:
        match node:
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(self._value(part, of) for part in parts)
            case ast.BoolOp(values=parts):
                return any(self._value(part, of) for part in parts)
            case ast.UnaryOp(op=op, operand=part):
                value = self._value(part, of)
                return not value if isinstance(op, ast.Not) else -value
            case ast.Compare(left=left, ops=ops, comparators=rights):
                values = [self._value(part, of) for part in (left, *rights)]
                pairs = zip(ops, values, values[1:], strict=False)
                return all(_COMPARE[type(op)](one, other) for op, one, other in pairs)
            case ast.Constant(value=value):
                return value
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self._value(part, of) for part in parts]
            case _ if (name := _named(node)) is not None:
                return FACTS[name](of) if name in FACTS and isinstance(node, ast.Name) else self._score(name, of)
        raise UsageError(f"--where {self.text!r}: {ast.unparse(node)!r} cannot stand there; expected {_EXPECTED}")

    def _score(self, name: str, of: Trajectory) -> float:
        if of.score is None:
            return math.nan
        scores = of.score.components
        if name not in scores:
            raise UsageError(f"--where {self.text!r}: there is no {name!r}. {nearest(name, [*FACTS, *scores])}")
        return scores[name]


def _named(node: ast.AST) -> str | None:
    """The fact or the score that a part of the expression names."""
    match node:
        case ast.Subscript(value=ast.Name(id="score"), slice=ast.Constant(value=str(name))):
            return name
        case ast.Name(id=name) if name != "score":
            return name
    return None


_ALLOWED = (
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, *_COMPARE),
    *(ast.Constant, ast.List, ast.Tuple, ast.Subscript, ast.Name, ast.Load),
)
