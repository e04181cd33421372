"""Progress that keeps what was said."""

from __future__ import annotations

from rlfactory_core.reporting.progress import Progress


class Said(Progress):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
