"""Solutions of pages from what their text says: one rule for pages that ask alike.

A rule returns the calls that it can plan from the page as it is; when they are made, it is asked again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlfactory_core import Message
from rlfactory_core.tiny import call
from rlfactory_core.types import ToolCall

__all__ = ["SOLVED", "Rule", "Seen", "next_call"]

TEXT = r'"(?:[^"\\]|\\.)*"'
FIELD = "input (?!checkbox|radio)"


@dataclass(frozen=True, slots=True)
class Seen:
    """What an agent has read of a page."""

    task: str
    text: str  # a line for each element

    @property
    def quoted(self) -> list[str]:
        """The texts in the task that stand in quotation marks."""
        return re.findall(r'"([^"]*)"', self.task)

    def refs(self, kind: str = "", text: str | None = None) -> list[int]:
        """The numbers of the elements whose line begins with a kind, which is a pattern, and ends with a text."""
        end = "" if text is None else re.escape(" " + json.dumps(text, ensure_ascii=False)) + "$"
        return [int(ref) for ref in re.findall(rf"^ *\[(\d+)\] {kind}.*?{end}", self.text, re.MULTILINE)]


Calls = list[ToolCall]
Rule = Callable[[Seen, int], Calls]
"""Gets the page, and how many plans were made before."""


def next_call(page: str, messages: Sequence[Message], rules: Mapping[str, Rule]) -> ToolCall:
    """The next call of a page's solution by these rules.

    Raises:
        LookupError: no rule solves the page, or the page is not as the rule expects it.
    """
    task = messages[0].content.partition("Task: ")[2].partition("\n")[0]
    planned: Calls = []
    text, plans = "", 0
    for message in messages:
        if message.role in ("user", "tool"):
            text = message.content.partition("Page:\n")[2] or text  # as before
            if not planned:
                planned, plans = rules[page](Seen(task, text), plans), plans + 1
            following = planned.pop(0)
    return following


def _click(ref: int) -> ToolCall:
    return call("click", ref=ref)


def _submit(page: Seen) -> ToolCall:
    """A click on what confirms: what is called so, or the last button."""
    named = [ref for name in ("Submit", "Search", "Go!", "Login") for ref in page.refs(text=name)]
    return _click((named or page.refs("button"))[-1])


def _filled(texts: Callable[[Seen], Sequence[str]]) -> Rule:
    """Type texts into the fields, and submit."""
    return lambda page, _: [
        *(call("type", ref=ref, text=text) for ref, text in zip(page.refs(FIELD), texts(page), strict=False)),
        _submit(page),
    ]


def _labelled(text: Callable[[Seen], str]) -> Rule:
    """Click what has a text."""
    return lambda page, _: [_click(page.refs(text=text(page))[0])]


def _table(page: Seen) -> Sequence[str]:
    cells = [json.loads(text) for text in re.findall(rf"\] td.* ({TEXT})$", page.text, re.MULTILINE)]
    labels = [json.loads(text) for text in re.findall(rf"\] label.* ({TEXT})$", page.text, re.MULTILINE)]
    keys = [label.rstrip(":") for label in labels] or re.findall("value of (.*) into", page.task)
    return [cells[cells.index(key) + 1] for key in keys]


def _calculated(page: Seen) -> Sequence[str]:
    left, sign, right = re.findall(r"(\d+) ([-+x]) (\d+)", page.text)[0]
    a, b = int(left), int(right)
    return [str({"+": a + b, "-": a - b, "x": a * b}[sign])]


def _chosen(page: Seen, _: int) -> Calls:
    """Choose what is named in a list, or the boxes that have these labels."""
    names = re.findall(r"Select (.*?) (?:from the|and click)", page.task)[0].split(", ")
    if lists := page.refs("select"):
        return [call("select", ref=lists[0], options=names), _submit(page)]
    boxes = re.findall(rf"\] label.* ({TEXT})\n *\[(\d+)\] input", page.text)
    return [*(_click(int(ref)) for label, ref in boxes if json.loads(label) in names), _submit(page)]


def _linked(page: Seen, plans: int) -> Calls:
    """Click the link that is named; while it is not to be seen, open the next section or tab."""
    links, parts = page.refs(r"span\S*\.alink", page.quoted[0]), page.refs("h3") or page.refs(r"a\b")
    return [_click(links[0] if links else parts[plans % len(parts)])]


SOLVED: Mapping[str, Rule] = {
    page: rule
    for pages, rule in (
        ("choose-list click-scroll-list", _chosen),
        ("click-button unicode-test", _labelled(lambda page: page.quoted[0])),
        ("click-button-sequence", lambda page, _: [_click(page.refs("button", name)[0]) for name in ("ONE", "TWO")]),
        ("click-checkboxes click-checkboxes-large click-checkboxes-transfer click-option", _chosen),
        ("click-collapsible click-collapsible-nodelay", lambda page, _: [_click(page.refs("h3")[0]), _submit(page)]),
        ("click-collapsible-2 click-collapsible-2-nodelay", _linked),
        ("click-link click-tab-2 click-tab-2-easy click-tab-2-hard click-tab-2-medium", _linked),
        ("click-tab", _labelled(lambda page: re.findall(r"Tab #\d", page.task)[0])),
        ("click-test", lambda page, _: [_click(page.refs("button")[0])]),
        ("click-test-2 click-test-transfer", _labelled(lambda page: page.task[-4:-1])),
        ("enter-password", _filled(lambda page: page.quoted * 2)),
        ("enter-text enter-text-dynamic login-user", _filled(lambda page: page.quoted)),
        ("focus-text", lambda page, _: [_click(page.refs(FIELD)[0])]),
        ("focus-text-2", lambda page, _: [_click(page.refs(FIELD)[int(re.findall(r"\d+", page.task)[-1]) - 1])]),
        ("read-table read-table-2", _filled(_table)),
        ("simple-arithmetic", _filled(_calculated)),
    )
    for page in pages.split()
}
"""The rule of each page that has one."""
