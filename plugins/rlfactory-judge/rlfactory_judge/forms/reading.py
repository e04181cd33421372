"""How a judge's answer is read: as JSON, with or without other text around it.

An object with the verdict at the end of the answer is final, whatever comes before it, unless the judged text holds the
same object: then the judge may only be quoting. Otherwise all verdicts of an answer must agree. The time is linear in
the answer's length.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
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
