"""What a page's text says, as data, and parts of rules that read it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rlfactory_benchmarks.miniwob.solving import TEXT, Calls, Rule, Seen

from rlfactory_core.tiny import call
from rlfactory_core.types import ToolCall

_LINE = re.compile(r"( *)\[(\d+)\] (input \w+|\w+)([#.]\S+)?(.*)")


@dataclass(frozen=True, slots=True)
class Element:
    """One line of a page's text."""

    ref: int
    depth: int
    kind: str  # the tag, with an input's type
    names: str  # ``#id.class.class``
    rest: str  # its state, as it is written
    text: str  # its own, or the texts beside its parts

    @property
    def value(self) -> str:
        """The text in a field."""
        found = re.search(f" value=({TEXT})", self.rest)
        return str(json.loads(found[1])) if found else ""

    def fits(self, kind: str = "", text: str | None = None, cls: str = "", id: str = "") -> bool:  # noqa: A002
        named = (not cls or f".{cls}." in f"{self.names}.") and (not id or f"{self.names}.".startswith(f"#{id}."))
        return named and self.kind.startswith(kind) and (text is None or self.text == text)


@dataclass(frozen=True, slots=True)
class PageText:
    """A page as its agent has read it."""

    task: str
    elements: Sequence[Element] = ()

    def all(self, kind: str = "", text: str | None = None, cls: str = "", id: str = "") -> list[Element]:  # noqa: A002
        """The elements that fit; a kind fits by its beginning."""
        return [each for each in self.elements if each.fits(kind, text, cls, id)]

    def first(self, kind: str = "", text: str | None = None, cls: str = "", id: str = "") -> Element:  # noqa: A002
        """The first of them. Raises `LookupError` if there is none."""
        return self.all(kind, text, cls, id)[0]

    def within(self, outer: Element) -> list[Element]:
        """The elements of a container."""
        place = self.elements.index(outer) + 1
        inner = (i for i, each in enumerate(self.elements) if i >= place and each.depth <= outer.depth)
        return [*self.elements[place : next(inner, None)]]


def _elements(text: str) -> list[Element]:
    found: list[Element] = []
    for line in text.splitlines():
        if match := _LINE.fullmatch(line):
            indent, ref, kind, names, rest = match.groups()
            texts = re.findall(f"(?<!=)({TEXT})", re.sub(r" options=\[.*\]", "", rest))
            found.append(Element(int(ref), len(indent), kind, names or "", rest, json.loads(texts[0]) if texts else ""))
        elif re.fullmatch(f" *{TEXT}", line):  # beside the parts of the last element that is less indented
            depth = len(line) - len(line.lstrip())
            place = next((i for i in reversed(range(len(found))) if found[i].depth < depth), None)
            if place is not None:
                found[place] = replace(found[place], text=f"{found[place].text} {json.loads(line)}".strip())
    return found


DataRule = Callable[[PageText, int], Calls]


def reading(rules: Mapping[str, DataRule]) -> Mapping[str, Rule]:
    """Rules that get a page as data."""

    def read(rule: DataRule) -> Rule:
        return lambda page, plans: rule(page_text(page), plans)

    return {name: read(rule) for name, rule in rules.items()}


def page_text(page: Seen) -> PageText:
    return PageText(page.task, _elements(page.text))


def click(element: Element, **more: object) -> ToolCall:
    return call("click", ref=element.ref, **more)


def type_text(element: Element, text: str) -> ToolCall:
    return call("type", ref=element.ref, text=text)


def quoted(page: PageText) -> list[str]:
    return re.findall(r'"([^"]*)"', page.task)


def submit(page: PageText) -> ToolCall:
    """A click on what confirms: the last button, or what is called so."""
    named = [each for each in page.elements if each.text in ("Submit", "Search", "Go!", "Login")]
    return click((named or page.all("button"))[-1])


def fields_of(page: PageText) -> list[Element]:
    return [each for each in page.all("input") if each.kind not in ("input checkbox", "input radio")]


def filled(texts: Callable[[PageText], Sequence[str]]) -> DataRule:
    """Type texts into the fields, and submit."""
    return lambda page, _: [*map(type_text, fields_of(page), texts(page)), submit(page)]


def ordinal(page: PageText) -> int:
    return int(re.findall(r"(\d+)(?:st|nd|rd|th)", page.task)[-1]) - 1
