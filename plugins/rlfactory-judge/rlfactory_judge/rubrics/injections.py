"""Wrong answers that try to persuade the judge of a good verdict, to test quotations and to measure a judge."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources

FIELD = "{answer}"


@dataclass(frozen=True, slots=True)
class Injection:
    """One injected text that replaces an answer."""

    name: str  # unique
    kind: str  # such as "fake_json"; the file has several of each kind
    text: str  # with `FIELD` in place of a wrong answer

    def filled(self, answer: str) -> str:
        """The injected text with a wrong answer filled in."""
        return self.text.replace(FIELD, answer)


def injections() -> tuple[Injection, ...]:
    """All texts of ``injections.jsonl``, in the file's order."""
    text = (resources.files("rlfactory_judge.rubrics") / "injections.jsonl").read_text(encoding="utf-8")
    return tuple(Injection(**json.loads(line)) for line in text.splitlines())
