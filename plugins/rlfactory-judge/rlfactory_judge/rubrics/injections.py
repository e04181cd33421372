"""Wrong answers that try to talk the judge into a good verdict: to test quoting and to measure a judge with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources

FIELD = "{answer}"


@dataclass(frozen=True, slots=True)
class Injection:
    """One text to put where an answer is expected."""

    name: str  # unique
    kind: str  # such as "fake_json"; the file has several of each kind
    text: str  # with `FIELD` in place of a wrong answer

    def filled(self, answer: str) -> str:
        """The text around a wrong answer."""
        return self.text.replace(FIELD, answer)


def injections() -> tuple[Injection, ...]:
    """All texts of the file ``injections.jsonl``, in its order."""
    text = (resources.files("rlfactory_judge.rubrics") / "injections.jsonl").read_text(encoding="utf-8")
    return tuple(Injection(**json.loads(line)) for line in text.splitlines())
