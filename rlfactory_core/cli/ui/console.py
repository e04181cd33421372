"""The console of styled output, in which no text can control the terminal."""

from __future__ import annotations

from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.segment import Segment

from rlfactory_core.utils.display import printable


def make_console(stream: TextIO, **options: Any) -> Console:
    """A console that shows control characters in the text as what they are; its own styles work."""
    console = Console(file=stream, highlight=False, **options)
    console.push_render_hook(_Printable())
    return console


class _Printable(RenderHook):
    """Makes the text of everything that is printed harmless."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_PrintableRenderable(each) for each in renderables]


class _PrintableRenderable:
    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
