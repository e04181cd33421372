"""The forms of a judge's answer: a score, a score for each turn, and an order; and how an answer is read.

An object with the verdict at the end of the answer is final, whatever comes before it, unless the judged text holds the
same object: then the judge may only be quoting. Otherwise all verdicts of an answer must agree. The time is linear in
the answer's length.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from rlfactory_core.errors import VerifierError

MAX_CHARACTERS = 256 * 1024  # a longer answer is no verdict
_MAX_OBJECTS = 256  # tries to read one; each costs at most the answer's length
_BRACE = re.compile(r"\{\s{0,64}[\"}]")
_FENCED = re.compile(r"```[a-zA-Z]{0,16}\s")
_SAME = re.compile(r"[\s\"'`\\]+|(?<=\d)\.0+(?!\d)")  # {"score": 10} is {'score':10.0}
_NOTHING = re.compile(r"(?:[\s`*_.$]|<[/|]?[A-Za-z_]{1,24}\|?>){0,100}")  # such as an end of turn that a server left in
# Qwen, QwQ, DeepSeek and most; others; Mistral; Kimi
_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"))


class UnreadableError(VerifierError):
    """The judge's answer does not have the requested form."""


class Form(ABC):
    """The required form of the judge's answer: its description, and what counts as a verdict."""

    keys: ClassVar[tuple[str, ...]]  # of a JSON object with the verdict; the first one is asked for
    instruction: str  # the description for the judge, at the end of the prompt
    wanted: str  # a description of a verdict in words
    example: str  # a JSON object with one
    value_schema: Mapping[str, Any]  # the JSON schema of the object's value

    @abstractmethod
    def of_json(self, value: object) -> Any:
        """The verdict in this JSON value; None if it is not clear. Numbers are floats."""

    @abstractmethod
    def values(self, verdict: Any) -> tuple[float, ...]:
        """The numbers of a verdict, clamped and mapped onto [0, 1]."""

    def is_beyond(self, verdict: Any) -> bool:
        """Whether a number of the verdict is outside the scale, so that it is clamped."""
        return False

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of an object with exactly one, required property, for servers that enforce one."""
        name = self.keys[0]
        return {
            "type": "object",
            "properties": {name: self.value_schema},
            "required": [name],
            "additionalProperties": False,
        }

    def read(self, text: str) -> tuple[float, ...]:
        """The numbers of the `verdict` in an answer, mapped onto [0, 1]."""
        return self.values(self.verdict(text))

    def verdict(self, text: str, judged: str = "") -> Any:
        """The verdict in an answer about the text ``judged``.

        Raises:
            UnreadableError: no verdict, an unclear one, several that differ, or one that the judge may have quoted.
        """
        answer = _without_reasoning(text)
        if not answer:
            raise UnreadableError("The judge's answer is empty.")
        if len(answer) > MAX_CHARACTERS:
            raise UnreadableError(f"The judge's answer has {len(answer)} characters, more than any verdict needs.")
        whole = _whole_json(answer)
        verdict = None if isinstance(whole, dict) else self.of_json(answer if whole is None else whole)
        return self._decided(answer, judged) if verdict is None else verdict

    def _decided(self, answer: str, judged: str) -> Any:
        found = list(self._verdicts(answer))
        values = {value for value, _, _ in found}
        only = next(iter(values)) if len(values) == 1 else None
        is_quoted = False
        if found:
            last, start, end = found[-1]
            is_last = last is not None and _NOTHING.fullmatch(answer, end) is not None
            # Asked only of the object that decides: the last one of several that differ, or the only one before a text.
            is_quoted = is_last is (only is None) and _bare(answer[start:end]) in _bare(judged)
            if is_last and not is_quoted:
                return last
        if only is None or is_quoted:
            what = "several verdicts that differ" if len(values) > 1 else "no verdict that can be read"
            if is_quoted:
                what = "a verdict that the judged text holds, too, so that it may be quoted"
            shown = repr(answer if len(answer) <= 160 else f"{answer[:60]} … {answer[-90:]}")
            raise UnreadableError(
                f"The judge's answer holds {what}: {shown}. Expected {self.wanted}, such as {self.example}."
            )
        return only

    def _verdicts(self, answer: str) -> Iterator[tuple[Any, int, int]]:
        """Verdict, start and end of the JSON objects that have one of the keys. Objects within belong to them."""
        end = 0
        for start, stop, found in _json_objects(answer):
            if start >= end and any(key in found for key in self.keys):
                end = stop
                first, *others = [self.of_json(found[key]) for key in self.keys if key in found]
                yield first if {first, *others} <= {first, None} else None, start, stop


def _json_objects(answer: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Start, end and value of all JSON objects, also within others and a code fence."""
    for count, brace in enumerate(_BRACE.finditer(answer)):
        if count == _MAX_OBJECTS:
            raise UnreadableError("The judge's answer holds too many braces to be a verdict.")
        try:
            value, end = _DECODER.raw_decode(answer, brace.start())
        except (ValueError, RecursionError):
            continue
        yield brace.start(), end, value


def _bare(text: str) -> str:
    """The text without what JSON can be written with and without."""
    return _SAME.sub("", text).casefold()


def _whole_json(answer: str) -> Any:
    """The JSON value if the whole answer is one, with or without a code fence; otherwise None."""
    if (fence := _FENCED.match(answer)) and answer.endswith("```"):
        answer = answer[fence.end() : -3]
    try:
        return _DECODER.decode(answer.strip())
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):  # choosing one of two verdicts would be a guess
        raise ValueError("a key is repeated")
    return made


_DECODER = json.JSONDecoder(parse_int=float, parse_constant=_no_constant, object_pairs_hook=_without_repeats)


def _without_reasoning(text: str) -> str:
    """The stripped text after the last end of reasoning, in which no verdict counts; all of it if there is none.

    The client has removed what the server marks as reasoning; here are other models' tags, and reasoning that is cut.
    """
    for begin, end in _TAGS:
        text = text.rpartition(end)[2]
        if begin in text:
            raise UnreadableError(
                f"The judge's answer ends within its reasoning ({begin} is not closed). Raise max_tokens."
            )
    return text.strip()


_MOST_CHOICES = 101  # up to so many whole numbers are given to the server as a choice, which every server supports
_NUMBER = re.compile(r"[-+]?[0-9]{1,12}(?:\.[0-9]{0,12})?")
Scores = tuple[float, ...]
_CANDIDATE = re.compile(r"(?:candidate\s?)?#?([0-9]{1,4})", re.IGNORECASE)
Order = tuple[tuple[int, ...], ...]  # groups of equally good candidates, the best first, counted from 1


@dataclass(frozen=True, slots=True)
class Scale:
    """From ``low``, the worst, to ``high``, the best; the options have checked that they are finite, and low less."""

    low: float
    high: float

    @property
    def whole(self) -> bool:
        """Whether the judge is asked for whole numbers. A scale such as 0 to 1 has too few of them."""
        return self.low == int(self.low) and self.high == int(self.high) and self.high - self.low >= 2

    @property
    def words(self) -> str:
        """Such as ``a whole number from 0 (worst) to 10 (best)``."""
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {json_number(self.low)} (worst) to {json_number(self.high)} (best)"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of one number on the scale."""
        if self.whole and self.high - self.low < _MOST_CHOICES:
            return {"type": "integer", "enum": list(range(int(self.low), int(self.high) + 1))}
        kind = "integer" if self.whole else "number"
        return {"type": kind, "minimum": json_number(self.low), "maximum": json_number(self.high)}

    def example(self, share: float) -> int | float:
        """A number for an example, ``share`` of the way from ``low`` to ``high``."""
        value = self.low + share * (self.high - self.low)
        return round(value) if self.whole else json_number(float(f"{value:.3g}"))

    def fraction(self, value: float) -> float:
        """The position of a finite value on the scale: 0.0 for ``low`` or less, 1.0 for ``high`` or more."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def json_number(number: float) -> int | float:
    """An int where the number is whole, because ``7.0`` in a prompt invites ``7.0`` in the answer."""
    return int(number) if float(number).is_integer() else number


def as_number(value: object, scale: Scale) -> float | None:
    """A JSON number, or a text that is one, such as ``7`` or ``7/10`` on a scale up to 10; None for anything else."""
    if isinstance(value, str) and len(value) <= 64:
        bare = value.strip(" \t\r\n*_`$.\"'").removesuffix(f"/{scale.high:g}")
        return float(bare) if _NUMBER.fullmatch(bare) else None
    return value if isinstance(value, float) and math.isfinite(value) else None


class _NumbersForm(Form):
    """Numbers from ``low`` to ``high``. Those outside are clamped."""

    def __init__(self, low: float, high: float) -> None:
        self._scale = Scale(low, high)

    def values(self, verdict: Scores) -> tuple[float, ...]:
        return tuple(map(self._scale.fraction, verdict))

    def is_beyond(self, verdict: Scores) -> bool:
        return not self._scale.low <= min(verdict) <= max(verdict) <= self._scale.high


class ScoreForm(_NumbersForm):
    """One number. Words such as yes and no are no scores."""

    keys: ClassVar[tuple[str, ...]] = ("score", "rating", "grade")

    def __init__(self, low: float, high: float) -> None:
        super().__init__(low, high)
        self.value_schema = self._scale.schema
        self.wanted = f"a score of {self._scale.words}"
        self.example = json.dumps({"score": self._scale.example(0.7)})
        self.instruction = (
            f"The score is {self._scale.words}. End your reply with one JSON object that holds the score and nothing "
            f"else, such as {self.example}."
        )

    def of_json(self, value: object) -> Scores | None:
        number = as_number(value, self._scale)
        return None if number is None else (number,)


class TurnScoresForm(_NumbersForm):
    """A number for each of ``turns`` turns, in order."""

    keys: ClassVar[tuple[str, ...]] = ("scores", "turns", "score")

    def __init__(self, turns: int, low: float, high: float) -> None:
        super().__init__(low, high)
        self.turns = turns
        self.value_schema = {"type": "array", "items": self._scale.schema, "minItems": turns, "maxItems": turns}
        self.wanted = f"{turns} scores, each {self._scale.words}"
        # An example of the right length, with different scores, so that none is suggested.
        shares = ((0.7, 0.2, 1.0)[turn % 3] for turn in range(turns))
        self.example = json.dumps({"scores": [self._scale.example(share) for share in shares]})
        self.instruction = (
            f"Score each of the {turns} turns, in their order. A score is {self._scale.words}. End your reply "
            f"with one JSON object that holds exactly {turns} scores and nothing else, such as {self.example}."
        )

    def of_json(self, value: object) -> Scores | None:
        """A list in the turns' order, an object with their numbers as keys, or the score of a single turn."""
        if isinstance(value, dict):
            value = [value.get(str(turn), value.get(f"turn {turn}")) for turn in range(1, len(value) + 1)]
        elif not isinstance(value, list):
            value = [value]
        numbers = [as_number(item, self._scale) for item in value]
        scores = tuple(number for number in numbers if number is not None)
        return scores if len(scores) == len(numbers) == self.turns else None


class RankingForm(Form):
    """``count`` candidates, at least two, from the best to the worst, ties allowed."""

    keys: ClassVar[tuple[str, ...]] = ("ranking", "order")

    def __init__(self, count: int) -> None:
        self.count = count
        # The schema does not say that each candidate occurs once; `read` checks that.
        one = {"type": "integer", "enum": list(range(1, count + 1))}
        several = {"type": "array", "items": one, "minItems": 2, "maxItems": count}
        self.value_schema = {"type": "array", "items": {"anyOf": [one, several]}, "minItems": 1, "maxItems": count}
        self.wanted = f"an order of the candidates 1 to {count}, each named once"
        # An example of the right length, with a tie if there are enough candidates for one.
        self.example = json.dumps({"ranking": [2, 1] if count == 2 else [2, *range(4, count + 1), [1, 3]]})
        tie = " ([[1, 2]])" if count == 2 else ""
        self.instruction = (
            f"Rank all {count} candidates, the best first, by their numbers; candidates that are equally good "
            f"stand together in a list{tie}. End your reply with one JSON object that holds the ranking and nothing "
            f"else, such as {self.example}."
        )

    def of_json(self, value: object) -> Order | None:
        """The order with ties in one notation; None unless each candidate occurs once."""
        if not isinstance(value, list):
            return None
        groups = [[_candidate(name) for name in (group if isinstance(group, list) else [group])] for group in value]
        numbers = [number for group in groups for number in group if number is not None]
        if sum(map(len, groups)) != self.count or sorted(numbers) != list(range(1, self.count + 1)):
            return None
        return tuple(tuple(sorted(number for number in group if number is not None)) for group in groups if group)

    def values(self, verdict: Order) -> tuple[float, ...]:
        """1.0 for the best, 0.0 for the worst, evenly spaced; equally good ones share the mean of their places."""
        values = [0.0] * self.count
        place = 0
        for group in verdict:
            for number in group:
                values[number - 1] = 1.0 - (place + (len(group) - 1) / 2) / (self.count - 1)
            place += len(group)
        return tuple(values)


def _candidate(name: object) -> int | None:
    if isinstance(name, str):
        found = _CANDIDATE.fullmatch(name.strip()[:32])
        return int(found[1]) if found else None
    return int(name) if isinstance(name, float) and name.is_integer() else None
