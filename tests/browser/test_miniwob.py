"""Pages of MiniWoB++ in a real Chromium: played, timed, kept apart, and what is left of a browser that dies."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from miniwob_rules import FURTHER
from process_tree import descendants, is_gone

from rlfactory_core import Message
from rlfactory_core.errors import BackendError
from rlfactory_core.images import images_in
from rlfactory_core.runner import TaskBench, script
from rlfactory_core.tiny import call
from rlfactory_core.types import FaultKind, Sample, StopReason, Trajectory

pytest.importorskip("playwright.async_api", reason="needs playwright")
if find_spec("miniwob") is None:
    pytest.skip("needs miniwob (pip install --no-deps miniwob)", allow_module_level=True)

from rlfactory_benchmarks.miniwob.browser import Browsers, Page
from rlfactory_benchmarks.miniwob.solving import SOLVED, next_call

pytestmark = pytest.mark.slow

PROGRAM = shutil.which("chromium") or ""
# One for each kind of action, and those whose timers, pictures or dates would be of real time.
PLAYED = (
    *(
        "button-delay",
        "choose-date-easy",
        "click-menu",
        "click-scroll-list",
        "click-test-2",
        "copy-paste-2",
        "drag-items",
    ),
    *(
        "email-inbox-reply",
        "enter-date",
        "enter-time",
        "form-sequence",
        "highlight-text",
        "login-user-popup",
        "order-food",
    ),
    *("scroll-text-2", "social-media", "terminal"),
)


@pytest.fixture(autouse=True)
def profiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Chromium writes, with a short path for its sockets; it has to be empty in the end."""
    with tempfile.TemporaryDirectory(prefix="w") as name:
        monkeypatch.setenv("TMPDIR", name)
        yield Path(name)
        assert not [*Path(name).iterdir()]


def bench(pages: str, *overrides: str) -> TaskBench:
    patient = ("task.deadline_s=600", "tools.deadline_s=600")  # on a machine that does much else
    samples = (f"task.pages={pages}", "task.train_seeds=1", "task.eval_seeds=1")
    return TaskBench("miniwob", [*samples, *patient, *overrides])


def solver(sample: Sample, messages: Any, *_: object) -> Message:
    rules = {**SOLVED, **FURTHER}
    return Message("assistant", "", tool_calls=(next_call(sample.metadata["page"], messages, rules),))


def read(trajectory: Trajectory) -> list[str]:
    return [result.content for turn in trajectory.turns for result in turn.results]


def test_a_solver_that_sees_what_a_model_sees_plays_pages_of_each_kind() -> None:
    with bench(",".join(PLAYED)) as opened:
        played = opened.play(solver, opened.rows("train"), deadline_s=600)
    assert {each.sample.id: each.reward for each in played} == dict.fromkeys([f"{page}-0" for page in PLAYED], 1.0)
    assert {each.stop for each in played} == {StopReason.ENV_DONE}


def test_a_seed_gives_the_same_episode_and_another_seed_another_one() -> None:
    with bench("click-button", "task.train_seeds=2") as opened:
        first, other = opened.rows("train")
        once, again, different = opened.play(
            script(call("wait", seconds=0.1), ""), [first, first, other], deadline_s=600
        )
    assert read(once) == read(again)
    assert once.turns[0].observed == again.turns[0].observed != different.turns[0].observed


def test_a_pages_time_is_that_of_its_actions() -> None:
    """10 seconds of the page's clock: 20 actions of half a second, or one that waits; a text ends it unfinished."""
    with bench("click-test", "task.step_s=0.5") as opened:
        samples = opened.rows("train")
        (acting,) = opened.play(script(call("press", key="Tab")), samples, deadline_s=600)
        (waiting,) = opened.play(script(call("wait", seconds=10)), samples, deadline_s=600)
        (talking,) = opened.play(script("I am done."), samples, deadline_s=600)
    assert (acting.stop, len(acting.turns), acting.reward) == (StopReason.ENV_DONE, 20, -1.0)
    assert (waiting.stop, len(waiting.turns), waiting.reward) == (StopReason.ENV_DONE, 1, -1.0)
    assert (talking.stop, talking.reward) == (StopReason.NO_TOOL_CALL, -1.0)


def test_a_model_that_sees_gets_a_picture_after_each_action() -> None:
    pytest.importorskip("PIL", reason="needs rlfactory-vision")
    with bench("click-test", "task.screenshots=true") as opened:
        (played,) = opened.play(script(call("wait", seconds=0.1), ""), opened.rows("train"), deadline_s=600)
    shown = [images_in(text) for text in (played.turns[0].observed[-1].content, *read(played))]
    assert [[(image.width, image.height) for image in images] for images in shown] == [[(160, 210)]] * 2


def test_wrong_calls_are_answered_in_words() -> None:
    wrong = [
        call("click", ref=99),
        call("select", ref=5, options=["Nobody"]),
        call("type", ref=5, text="no"),
        call("press", key="F5"),
    ]
    with bench("drag-box") as opened:
        (played,) = opened.play(script(*wrong, ""), opened.rows("train"), deadline_s=600)
    texts = read(played)
    assert [result.fault for turn in played.turns for result in turn.results] == [
        FaultKind.POLICY,
        FaultKind.TOOL,
        FaultKind.TOOL,
        FaultKind.POLICY,
    ]
    for text, words in zip(texts, ("no element 99", "no list", "takes no text", "must be one of"), strict=True):
        assert words in text


def test_the_readme_lists_the_pages_that_no_rule_solves() -> None:
    text = (Path(__file__).parents[2] / "plugins/rlfactory-benchmarks/README.md").read_text()
    table = text.partition("why no rule gets")[2].partition("\n\n")[0]
    listed = {name.strip() for row in table.splitlines()[2:] for name in row.split("|")[1].split(",")}
    package = find_spec("miniwob")
    assert package is not None
    assert package.origin is not None
    pages = {path.stem for path in (Path(package.origin).parent / "html" / "miniwob").glob("*.html")}
    assert listed == pages - {*SOLVED, *FURTHER}
    assert (len(SOLVED), len({*SOLVED, *FURTHER}), len(pages)) == (31, 105, 130)  # as the text says


# ---- the browser itself

HTML = """<script>
var WOB_DONE_GLOBAL = false, WOB_RAW_REWARD_GLOBAL = 0, WOB_EPISODE_ID = 0;
var core = {nextRefCode: 1, getUtterance: () => "Try", setDataMode() {}, startEpisodeReal() {}};
Math.seedrandom = () => {};
</script><div id=query></div>
<form action="other.html"><input id=field><button id=go>go</button></form><a href="other.html">link</a>
<a target=_blank href="other.html">window</a>
<button onclick="alert('hello')">alert</button><button onclick="while (true) {}">loop</button>
<button onclick="location.href='http://127.0.0.1:9/'">away</button>"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "page.html").write_text(HTML)
    (tmp_path / "other.html").write_text("other")
    return (tmp_path / "page.html").as_uri()


def browse(work: Callable[[Browsers], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        browsers = Browsers(PROGRAM, **{"most": 32, "step_s": 0.1, "deadline_s": 600.0, **options})
        try:
            await work(browsers)
        finally:
            await browsers.close()

    before = descendants(os.getpid())
    asyncio.run(run())
    assert all(map(is_gone, descendants(os.getpid()) - before))


async def click(page: Page, ref: int) -> None:
    await page.act(lambda inside, at: inside.mouse.click(*at), ref)


async def ref_of(page: Page, text: str) -> int:
    await page.read()
    line = next(line for line in page.text.splitlines() if text in line)
    return int(line.partition("[")[2].partition("]")[0])


def chromiums() -> list[int]:
    """The processes of the browser, its own before those that it has started."""
    found = []
    for pid in sorted(descendants(os.getpid())):
        command = Path(f"/proc/{pid}/cmdline").read_bytes() if Path(f"/proc/{pid}").exists() else b""
        if b"--remote-debugging-pipe" in command and b"--type=" not in command:
            found.append(pid)
    return found


def test_a_page_is_not_left_and_its_dialogs_and_windows_are_closed(url: str) -> None:
    async def work(browsers: Browsers) -> None:
        async with browsers.page(url, 1, "train") as page:
            for text in ("go", "link", "window", "away"):
                await click(page, await ref_of(page, f'"{text}"'))
            await click(page, await ref_of(page, "#field"))
            await page.act(lambda inside, _: inside.keyboard.press("Enter"))
            text = await page.act(lambda inside, at: inside.mouse.click(*at), await ref_of(page, '"alert"'))
            assert "A dialog said 'hello', and was dismissed." in text
            assert "#field" in text

    browse(work)


def test_32_attempts_at_once_share_no_cookie_and_no_storage(url: str) -> None:
    met = asyncio.Barrier(32)

    async def one(browsers: Browsers, number: int) -> list[str]:
        async with browsers.page(url, 1, "train") as page:
            await met.wait()  # all are open
            inside = page._page
            before = await inside.evaluate("localStorage.getItem('me') + document.cookie")
            await inside.evaluate(
                "(me) => { localStorage.setItem('me', me); document.cookie = 'me=' + me }", str(number)
            )
            await met.wait()
            return [before, await inside.evaluate("localStorage.getItem('me')")]

    async def work(browsers: Browsers) -> None:
        found = await asyncio.gather(*(one(browsers, number) for number in range(32)))
        assert found == [["null", str(number)] for number in range(32)]
        assert len(chromiums()) == 1

    browse(work)


def test_a_page_that_hangs_or_crashes_takes_no_other_with_it(url: str) -> None:
    async def work(browsers: Browsers) -> None:
        async with browsers.page(url, 1, "train") as calm:
            async with browsers.page(url, 1, "train") as hanging:
                loop = await ref_of(hanging, '"loop"')
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(click(hanging, loop), 1)
            async with browsers.page(url, 1, "train") as crashing:
                with pytest.raises(Exception, match="ERR_ABORTED"):
                    await crashing._page.goto("chrome://crash")
                with pytest.raises(BackendError, match="crashed"):
                    await crashing.read()
            await calm.read()
            assert calm.task == "Try"
        assert len(chromiums()) == 1

    browse(work)


def test_a_killed_browser_masks_its_attempts_and_is_replaced() -> None:
    def kill(sample: Sample, messages: Any, *_: object) -> Message:
        if len(messages) == 1:
            os.kill(chromiums()[0], signal.SIGKILL)
        return Message("assistant", "", tool_calls=(call("wait", seconds=0.1),))

    with bench("click-test") as opened:
        (lost,) = opened.play(kill, opened.rows("train"), deadline_s=600)
        (played,) = opened.play(solver, opened.rows("train"), deadline_s=600)
    assert lost.masked
    assert lost.stop is StopReason.FAULT
    assert "has been closed" in lost.faults[0].message
    assert (played.reward, played.faults) == (1.0, ())


def test_a_program_that_is_no_browser_is_refused_and_leaves_nothing() -> None:
    with pytest.raises(BackendError, match="true does not start"):
        asyncio.run(Browsers("/bin/true", most=1, step_s=0.1, deadline_s=60.0).open())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_no_process_and_no_folder(how: signal.Signals, profiles: Path) -> None:
    program = """
        from rlfactory_core.runner import TaskBench, script
        from rlfactory_core.tiny import call
        with TaskBench("miniwob", ["task.pages=click-test", "rollout.max_turns=100000"]) as opened:
            print("open", flush=True)
            opened.play(script(call("click", ref=99)), opened.samples(limit=4), deadline_s=600)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"open\n"
        started = descendants(run.pid)
        assert len(started) > 3
        assert [*profiles.iterdir()]
        if how is signal.SIGKILL:
            run.kill()
        else:
            os.killpg(run.pid, how)  # as Ctrl-C in a terminal, or `timeout`
    assert all(map(is_gone, started))
    if how is not signal.SIGINT:  # nobody was left to remove it; Chromium's profile is gone
        shutil.rmtree(*profiles.glob("miniwob-*"))
