"""A Chromium that many attempts share: one process, and a context for each attempt, which shares nothing with others.

Nothing of a page depends on real time. Its clock, with all timers and animations of JavaScript, stands still while the
model writes, and each action moves it by a fixed time. So a page's own time limit is one of steps, and a seed gives the
same episode on any machine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import Browser, BrowserContext, Dialog, Error, async_playwright
from playwright.async_api import Page as BrowserPage

from rlfactory_core.errors import BackendError, ToolArgumentsError, ToolError
from rlfactory_core.images import Image

__all__ = ["Browsers", "Page"]

_log = logging.getLogger(__name__)
SCRIPT = Path(__file__).with_name("page.js").read_text("utf-8")
# Pages are a package's own files. As in Playwright's default, Chromium runs without its sandbox, which root cannot use.
ARGUMENTS = ("--disable-gpu", "--no-first-run", "--disable-sync", "--disable-component-update")
DAY = 1_475_280_000  # seconds since 1970: 1 October 2016, a day within the calendars of most pages
LOADED = DAY + 3600  # when a page has been loaded
CLOSE_S = 15.0
WORN = 500  # pages after which a browser is replaced, because it grows
Point = tuple[float, float]  # of the window
Action = Callable[[BrowserPage, Point], Awaitable[str | None]]


class Page:
    """One page, as its agent acts on it and reads it. All methods raise `BackendError`."""

    def __init__(self, page: BrowserPage, step_s: float, *, screenshots: bool) -> None:
        self._page, self._step_s, self._screenshots = page, step_s, screenshots
        self._dialogs: list[str] = []
        self.task = self.text = ""  # what to do, and a line for each element, as they were read last
        self.done, self.raw = False, 0.0  # whether the episode is over, and its reward without the decay over time

    async def begin(self, url: str, seed: int, mode: str) -> None:
        """Load the page and begin its episode, at a fixed time of its clock."""
        page = self._page
        await page.clock.install(time=DAY)
        await page.goto(url)
        await page.clock.pause_at(LOADED)
        await page.evaluate(SCRIPT)
        page.on("dialog", self._dismiss)
        await page.evaluate("([seed, mode]) => rlfactory.begin(seed, mode)", [seed, mode])

    async def _dismiss(self, dialog: Dialog) -> None:
        self._dialogs.append(f"A dialog said {dialog.message!r:.200}, and was dismissed.")
        with suppress(Error):
            await dialog.dismiss()

    async def read(self) -> str:
        """The page for its agent."""
        async with _reached("the page does not answer"):
            seen = await self._page.evaluate("() => rlfactory.look()")
            self.task, self.done, self.raw = seen["task"], bool(seen["done"]), float(seen["raw"])
            said, self._dialogs = self._dialogs, []
            before, self.text = self.text, "\n".join((*said, seen["text"]))
            if self.done:
                return "The task is over."
            text = "The page looks as before." if self.text == before else f"Page:\n{self.text}"
            if not self._screenshots:
                return text
            shown = await self._page.screenshot(clip={"x": 0, "y": 0, "width": 160, "height": 210})  # the task's part
        return f"{text}\n{Image.of(shown)}"

    async def act(
        self,
        action: Action,
        ref: int | None = None,
        x: float | None = None,
        y: float | None = None,
        seconds: float | None = None,
    ) -> str:
        """Act at a point of an element, let time pass, and read the page.

        Args:
            action: gets Playwright's page and the point; returns why it did nothing.
            x: pixels from the left edge of the element, instead of its middle.
            y: likewise from the upper edge.
            seconds: by which the page's clock is moved; None: by ``step_s``.
        """
        async with _reached("the page does not answer"):
            problem = await action(self._page, (0, 0) if ref is None else await self.point(ref, x, y))
            await self._page.clock.run_for(round(1000 * (seconds or self._step_s)))
        text = await self.read()
        if problem:
            raise ToolError(f"{problem}.\n{text}")
        return text

    async def point(self, ref: int, x: float | None = None, y: float | None = None) -> Point:
        """A point of the window: so far from the left and upper edges of an element, or its middle."""
        found: list[float] | None = await self._page.evaluate("(args) => rlfactory.point(...args)", [ref, x, y])
        if found is None:
            raise ToolArgumentsError(f"there is no element {ref} on the page now; see the numbers in brackets")
        return found[0], found[1]


class Browsers:
    """Opens pages in one Chromium; one that has died or is worn is replaced, and ended with its last page.

    Args:
        program: Chromium's executable.
        most: pages open at once; an attempt beyond them waits.
        step_s: seconds of a page's clock that an action takes.
        deadline_s: seconds of real time for a page to open.
        screenshots: whether an agent also gets a picture of what it reads.
    """

    def __init__(self, program: str, *, most: int, step_s: float, deadline_s: float, screenshots: bool = False) -> None:
        self._program, self._step_s, self._deadline_s, self._screenshots = program, step_s, deadline_s, screenshots
        self._slots = asyncio.Semaphore(most)
        self._started: asyncio.Task[Browser] | None = None
        self._newest: Browser | None = None  # it takes new pages
        self._made = 0  # pages in it
        self._endings: dict[Browser, AsyncExitStack] = {}  # of all that run

    async def open(self) -> Browser:
        """The Chromium for a new page, which is started if need be; raises `BackendError` if it does not start."""
        last = self._started
        is_dead = last is not None and last.done() and (last.exception() or not last.result().is_connected())
        if last is None or is_dead or self._made >= WORN:
            self._started, self._made = asyncio.create_task(self._start()), 0
        assert self._started is not None
        return await asyncio.shield(self._started)  # else a cancelled attempt would leave half a browser

    async def _start(self) -> Browser:
        ending = AsyncExitStack()
        browser = await ending.enter_async_context(_chromium(self._program))
        self._newest, self._endings[browser] = browser, ending
        return browser

    @asynccontextmanager
    async def page(self, url: str, seed: int, mode: str) -> AsyncIterator[Page]:
        """A page in a new context, in which the episode of the seed has begun.

        Raises:
            BackendError: it does not open, or the browser has died.
        """
        async with self._slots, AsyncExitStack() as stack:
            browser = await self.open()
            self._made += 1
            async with _reached("the page does not open"), asyncio.timeout(self._deadline_s):
                # Files are read, and nothing else: offline, not even the loopback is reached.
                context = await browser.new_context(
                    viewport={"width": 500, "height": 320},  # pixels, as in the package's environments
                    offline=True,
                    timezone_id="UTC",
                    locale="en-US",
                    accept_downloads=False,
                )
                stack.push_async_callback(self._leave, context, browser)
                context.set_default_timeout(0)  # this deadline and the tools' count instead of Playwright's
                page = Page(await context.new_page(), self._step_s, screenshots=self._screenshots)
                await page.begin(url, seed, mode)
            yield page

    async def _leave(self, context: BrowserContext, browser: Browser) -> None:
        """Close a page, and its browser if that gets no further ones and this was the last."""
        if not await _closed(context) and browser.is_connected():
            self._made = WORN
        takes_pages = browser is self._newest and self._made < WORN
        if not browser.is_connected() or not (takes_pages or browser.contexts):
            await self._endings.pop(browser, AsyncExitStack()).aclose()

    async def close(self) -> None:
        """End all browsers, with the pages in them."""
        if self._started is not None:
            await asyncio.wait((self._started,))
        while self._endings:
            await self._endings.popitem()[1].aclose()


@asynccontextmanager
async def _chromium(program: str) -> AsyncIterator[Browser]:
    """A process of the browser, and Playwright's that drives it and removes Chromium's profile, also if we are killed.

    Raises:
        BackendError: it does not start.
    """
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="miniwob-", ignore_cleanup_errors=True))
        profiles: list[str] = []
        stack.callback(_remove, profiles)
        playwright = await stack.enter_async_context(async_playwright())
        try:
            browser = await playwright.chromium.launch(
                executable_path=program,
                args=ARGUMENTS,
                artifacts_dir=folder,
                env={**os.environ, "TMPDIR": folder},  # for a socket, which it may leave
                handle_sigint=False,  # Ctrl-C is left to the run, which ends its attempts first
            )
            stack.push_async_callback(_closed, browser)
            about = await (await browser.new_browser_cdp_session()).send("SystemInfo.getInfo")
        except Error as error:
            raise BackendError(f"{program} does not start: {' '.join(error.message.split())[:800]}") from error
        profiles += re.findall(r"--user-data-dir=(\S*/playwright_chromiumdev_profile\S*)", about["commandLine"])
        yield browser


def _remove(profiles: Sequence[str]) -> None:
    """Playwright may stop before it has removed that of a browser that has died."""
    for path in profiles:
        shutil.rmtree(path, ignore_errors=True)


async def _closed(what: Browser | BrowserContext) -> bool:
    """Close a browser, or a page's context; whether it does."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await what.close()
    except (Error, TimeoutError) as error:
        _log.warning("a %s of Chromium does not close: %s", type(what).__name__, error or type(error).__name__)
        return False
    return True


@asynccontextmanager
async def _reached(what: str) -> AsyncIterator[None]:
    """Raises Playwright's errors as `BackendError`: a browser that died, a page that crashed or hangs."""
    try:
        yield
    except Error as error:
        raise BackendError(f"{what}: {error.message.strip().partition(chr(10))[0] or type(error).__name__}") from error
    except TimeoutError as error:
        raise BackendError(f"{what} in time") from error
