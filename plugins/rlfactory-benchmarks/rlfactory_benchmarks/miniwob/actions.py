"""The tools of an agent in front of a page: mouse and keyboard. Each returns what the page shows afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from rlfactory_benchmarks.miniwob.env import PAGE
from rlfactory_core import ToolContext, tool

if TYPE_CHECKING:
    from rlfactory_benchmarks.miniwob.browser import Page

__all__ = ["TOOLS"]

Ref = Annotated[int, Field(description="The element's number.")]
X = Annotated[
    float | None, Field(ge=-1000, le=1000, description="Pixels from the element's left edge, instead of its middle.")
]
Y = Annotated[float | None, Field(ge=-1000, le=1000, description="Pixels from its upper edge, likewise.")]
Pixels = Annotated[float, Field(ge=-1000, le=1000)]
Text = Annotated[str, Field(max_length=1000)]
Key = Literal[
    "Enter", "Tab", "Escape", "Backspace", "Delete", "Space", "Home", "End", "PageUp", "PageDown", "ArrowLeft",
    "ArrowRight", "ArrowUp", "ArrowDown", "Control+A", "Control+C", "Control+V", "Control+X",
]  # fmt: skip


def _page(context: ToolContext) -> Page:
    found: Page = context.state[PAGE]
    return found


@tool
async def click(
    ref: Ref,
    context: ToolContext,
    x: X = None,
    y: Y = None,
    times: Annotated[Literal[1, 2, 3], Field(description="2 is a double click; 3 selects a paragraph.")] = 1,
) -> str:
    """Click an element."""
    return await _page(context).act(lambda page, at: page.mouse.click(*at, click_count=times), ref, x, y)


@tool(name="type")
async def type_text(ref: Ref, text: Text, context: ToolContext) -> str:
    """Click an element and type a text, which replaces the one that is there.

    Args:
        text: for a date YYYY-MM-DD, for a time HH:MM (24 hours).
    """

    async def act(page: Any, at: tuple[float, float]) -> str:
        await page.mouse.click(*at)
        how: str = await page.evaluate("([ref, text]) => rlfactory.fill(ref, text)", [ref, text])
        if how == "keys":
            await (page.keyboard.type(text) if text else page.keyboard.press("Delete"))
        return "" if how in ("keys", "set") else how

    return await _page(context).act(act, ref)


@tool
async def select(
    ref: Ref, options: Annotated[list[Text], Field(min_length=1, max_length=50)], context: ToolContext
) -> str:
    """Choose options in a list (select) by their texts."""
    script = "([ref, names]) => rlfactory.choose(ref, names)"
    return await _page(context).act(lambda page, _: page.evaluate(script, [ref, options]), ref)


@tool
async def scroll(ref: Ref, pixels: Annotated[int, Field(ge=-100_000, le=100_000)], context: ToolContext) -> str:
    """Scroll an element down, or up if the pixels are negative."""
    script = "([ref, pixels]) => rlfactory.scroll(ref, pixels)"
    return await _page(context).act(lambda page, _: page.evaluate(script, [ref, pixels]), ref)


@tool
async def press(key: Key, context: ToolContext, times: Annotated[int, Field(ge=1, le=100)] = 1) -> str:
    """Press a key, which goes to the focused element."""

    async def act(page: Any, _at: object) -> None:
        for _ in range(times):
            await page.keyboard.press(key)

    return await _page(context).act(act)


@tool
async def drag(
    ref: Ref, context: ToolContext, to: int | None = None, dx: Pixels = 0, dy: Pixels = 0, x: X = None, y: Y = None
) -> str:
    """Drag an element with the mouse.

    Args:
        to: the element to whose middle it goes; without it, from where it begins.
        dx: pixels to the right, in addition.
        dy: pixels down, in addition.
    """

    async def act(page: Any, at: tuple[float, float]) -> None:
        goal = at if to is None else await _page(context).point(to)
        await page.mouse.move(*at)
        await page.mouse.down()
        await page.mouse.move(goal[0] + dx, goal[1] + dy, steps=20)
        await page.mouse.up()

    return await _page(context).act(act, ref, x, y)


@tool
async def hover(ref: Ref, context: ToolContext, x: X = None, y: Y = None) -> str:
    """Move the mouse onto an element."""
    return await _page(context).act(lambda page, at: page.mouse.move(*at), ref, x, y)


@tool
async def wait(seconds: Annotated[float, Field(ge=0.1, le=10)], context: ToolContext) -> str:
    """Let time pass on the page."""
    return await _page(context).act(lambda _inside, _at: asyncio.sleep(0), seconds=seconds)


TOOLS = (click, type_text, select, scroll, press, drag, hover, wait)
