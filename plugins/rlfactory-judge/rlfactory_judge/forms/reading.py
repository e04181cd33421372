"""The common parser of the forms: JSON objects, marked verdicts, and the choice among several verdicts.

A marked verdict (a JSON object, a tag, brackets) at the end of the answer is final, whatever comes before it. A box is
not, because right answers are written in boxes too. Otherwise all verdicts of an answer must agree. The time is linear
in the answer's length.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from rlfactory_judge.contract import UnreadableError

T = TypeVar("T")

MAX_CHARACTERS = 256 * 1024  # a longer answer is no verdict
_MAX_OBJECTS = 256  # tries to read one; each costs at most the answer's length
_BRACE = re.compile(r"\{\s{0,64}[\"}]")
_FENCED = re.compile(r"```[a-zA-Z]{0,16}\s")
_MARKED = r"\\boxed\{([^{}]{0,64})\}|\[\[([^\[\]]{0,64})\]\]"  # MT-Bench's judges write [[7]]
_QUOTATION = re.compile("[\"'\u2018\u201c\u00ab][A-Za-z]{1,16}(?![A-Za-z\"'])")
_TAIL = " \t\r\n`*_.$"
_CLOSING_TAG = re.compile(r"<[/|]?[A-Za-z_]{1,24}\|?>\Z")  # also an end of turn that a server left in
# Qwen, QwQ, DeepSeek and most; others; Mistral; Kimi
_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"))
_CHANNEL = "<|channel|>"  # gpt-oss: several channels, of which ``final`` is the answer
_FINAL = _CHANNEL + "final<|message|>"


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """A verdict with its place in the answer. The value is None if it has a verdict's form but cannot be understood."""

    value: T | None
    start: int
    end: int
    boxed: bool = False


class ParsedForm(ABC, Generic[T]):
    """A form of the judge's answer: its description, and what it counts as a verdict."""

    keys: ClassVar[tuple[str, ...]]  # of a JSON object with the verdict; the first one is asked for
    marked: ClassVar[bool] = False  # `of_text` is asked about ``<key>…</key>``, boxes and brackets too
    instruction: str  # see `contract.Form`
    wanted: str  # a description of a verdict in words
    example: str  # a JSON object with one
    value_schema: Mapping[str, Any]  # the JSON schema of the object's value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.instruction)

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
        """See `contract.Form`. Raises `UnreadableError`: no verdict, an unclear one, or several that differ."""
        answer = without_reasoning(text)
        if not answer:
            raise UnreadableError("The judge's answer is empty.")
        if len(answer) > MAX_CHARACTERS:
            raise UnreadableError(f"The judge's answer has {len(answer)} characters, more than any verdict needs.")
        verdict = self.whole(answer)
        return self.values(self._decided(answer) if verdict is None else verdict)

    @abstractmethod
    def values(self, verdict: T) -> tuple[float, ...]:
        """The numbers of a verdict on [0, 1]."""

    def of_object(self, found: Mapping[str, Any]) -> T | None:
        """The verdict in a JSON object that has one of the keys; None if it is not clear."""
        return self.of_json(next(found[key] for key in self.keys if key in found))

    def in_prose(self, answer: str) -> Iterable[Found[T]]:
        """The verdicts in the answer without its marked ones."""
        return ()

    def of_json(self, value: object) -> T | None:
        """The verdict in this JSON value, of an object or the whole answer."""
        return None

    def of_text(self, text: str) -> T | None:
        """The verdict in the text of a mark, or in a whole answer."""
        return None

    def whole(self, answer: str) -> T | None:
        """The verdict if the whole answer is nothing else."""
        if self.marked:
            return self.of_text(answer)
        value = _whole_json(answer)
        return self.of_json(value) if isinstance(value, list) else None

    def _decided(self, answer: str) -> T:
        marked = sorted([*self._objects(answer), *self._marks(answer)], key=lambda found: found.end)
        end = _end(answer)
        final = next((found for found in reversed(marked) if found.end >= end), None)
        if final is not None and final.value is not None and not final.boxed:
            return final.value
        values = {found.value for found in (*marked, *self.in_prose(_blanked(answer, marked)))}
        only = next(iter(values)) if len(values) == 1 else None
        if only is None:
            what = "several verdicts that differ" if len(values) > 1 else "no verdict that can be read"
            shown = f"The judge's answer holds {what}: {excerpt(answer)}."
            raise UnreadableError(f"{shown} Expected {self.wanted}, such as {self.example}.")
        return only

    def _objects(self, answer: str) -> Iterator[Found[T]]:
        """The verdicts among the JSON objects, which have one of the keys. Objects inside a verdict belong to it."""
        end = 0
        for start, stop, value in _json_objects(answer):
            if start >= end and any(key in value for key in self.keys):
                end = stop
                yield Found(self.of_object(value), start, stop)

    def _marks(self, answer: str) -> Iterator[Found[T]]:
        r"""The verdicts in ``<key>…</key>``, ``\boxed{…}`` and ``[[…]]``; others are no verdicts."""
        pattern = rf"<{self.keys[0]}>([^<>]{{0,64}})</{self.keys[0]}>|{_MARKED}"
        for found in re.finditer(pattern, answer, re.IGNORECASE) if self.marked else ():
            value = self.of_text(next(group for group in found.groups() if group is not None))
            if value is not None:
                yield Found(value, found.start(), found.end(), boxed=found[0].startswith("\\boxed"))


def _json_objects(answer: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Start, end and value of all JSON objects, also within others and a code fence. Numbers are floats."""
    for count, brace in enumerate(_BRACE.finditer(answer)):
        if count == _MAX_OBJECTS:
            raise UnreadableError(f"The judge's answer holds too many braces to be a verdict: {excerpt(answer)}.")
        try:
            value, end = _DECODER.raw_decode(answer, brace.start())
        except (ValueError, RecursionError):
            continue
        yield brace.start(), end, value


def is_quoted(answer: str, start: int) -> bool:
    """Whether a verdict in prose opens a quotation, as in ``it says "score: 8"``. A quoted key alone is none."""
    return bool(_QUOTATION.match(answer, max(0, start - 1)))


def _whole_json(answer: str) -> Any:
    """The JSON value if the whole answer is one, with or without a code fence; otherwise None."""
    if (fence := _FENCED.match(answer)) and answer.endswith("```"):
        answer = answer[fence.end() : -3]
    try:
        return _DECODER.decode(answer.strip())
    except (ValueError, RecursionError):
        return None


def excerpt(answer: str) -> str:
    """A short text for a message, on one line, with the answer's end, where verdicts are."""
    return repr(answer if len(answer) <= 160 else f"{answer[:60]} … {answer[-90:]}")


def _end(answer: str) -> int:
    """The end of the answer without white space, marks of emphasis, fences and closing tags."""
    answer = answer.rstrip(_TAIL)
    for _ in range(4):
        if not (tag := _CLOSING_TAG.search(answer, max(0, len(answer) - 30))):
            break
        answer = answer[: tag.start()].rstrip(_TAIL)
    return len(answer)


def _blanked(answer: str, marked: Sequence[Found[T]]) -> str:
    parts, position = [], 0
    for found in sorted(marked, key=lambda found: found.start):
        if found.start >= position:
            parts += [answer[position : found.start], " " * (found.end - found.start)]
            position = found.end
    return "".join((*parts, answer[position:]))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):  # choosing one of two verdicts would be a guess
        raise ValueError("a key is repeated")
    return made


_DECODER = json.JSONDecoder(parse_int=float, parse_constant=_no_constant, object_pairs_hook=_without_repeats)


def without_reasoning(text: str) -> str:
    """The stripped text after the last end of reasoning, in which no verdict counts; all of it if there is none.

    The client has removed what the server marks as reasoning; here are other models' tags, and reasoning that is cut.

    Raises:
        UnreadableError: the reasoning does not end.
    """
    if _CHANNEL in text:
        _, final, text = text.rpartition(_FINAL)
        if not final:
            raise UnreadableError("The judge's answer ends within its reasoning. Raise max_tokens.")
    for begin, end in _TAGS:
        text = text.rpartition(end)[2]
        if begin in text:
            raise UnreadableError(
                f"The judge's answer ends within its reasoning ({begin} is not closed). Raise max_tokens."
            )
    return text.strip()
