"""The task ``miniwob``: pages of MiniWoB++, each with a seed, in a Chromium that all attempts share."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from rlfactory_benchmarks.miniwob.actions import TOOLS
from rlfactory_benchmarks.miniwob.env import INFO, UNFINISHED, PageEnv
from rlfactory_benchmarks.miniwob.solving import SOLVED, next_call
from rlfactory_benchmarks.packages import version
from rlfactory_core import Message, Sample, Section, Task, ToolContext
from rlfactory_core.errors import ConfigError, MissingExtraError, UsageError, nearest
from rlfactory_core.protocols import Env, ToolManager
from rlfactory_core.reporting import EvalTable
from rlfactory_core.settings import Positive
from rlfactory_core.types import Group

if TYPE_CHECKING:
    from rlfactory_benchmarks.miniwob.browser import Browsers

__all__ = ["Miniwob"]

INSTALL = "python -m pip install --no-deps miniwob && python -m pip install 'rlfactory-benchmarks[miniwob]'"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
EVAL_SEEDS = 2**30  # the first seed of evaluation; training begins at 1


class Miniwob(Task):
    """Small web pages, each with a task, a time limit and a reward of its own."""

    class Config(Section):
        """Which pages are played, and how."""

        pages: str = ""
        """Names of pages, with commas between them, such as click-button,login-user; by default all that the solver
        knows. Training and evaluation never share a seed."""
        eval_pages: str = ""
        """Other pages for the evaluation, to measure what carries over; by default the same."""
        train_seeds: Positive = 32
        """Training samples of each page."""
        eval_seeds: Positive = 4
        """Held-out samples of each page."""
        chromium: str = ""
        """Chromium's program; by default the one on the path."""
        screenshots: bool = False
        """Also show a picture of the page after each action, to a model that sees (rlfactory-vision)."""
        step_s: float = Field(0.5, gt=0, le=5)
        """Seconds of the page's clock that an action takes. A page's own limit, mostly 10 s, is so one of steps."""
        at_once: Positive = 32
        """Most pages open at once in a process; further attempts wait."""
        deadline_s: float = Field(60.0, gt=0)
        """Seconds of real time for a page to open."""

    config: Config
    tools = TOOLS
    rewards: Mapping[str, float] = {"miniwob": 1.0, "miniwob_success": 0.0}
    defaults: ClassVar[Mapping[str, Any]] = {
        "rollout": {"max_turns": 40, "max_tool_calls": 60, "max_tokens": 16384, "max_turn_tokens": 256},
        # A dead browser fails the calls of all attempts in it; it is replaced, so calls go on.
        "tools": {"breaker_failures": 1000, "max_result_tokens": 4096},
    }

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self._browsers: Browsers | None = None
        named = {name for split in ("train", "eval") for name in self._pages(split)}
        self.has_solution = named <= SOLVED.keys()

    def _pages(self, split: str) -> Sequence[str]:
        """The pages of a split; raises `ConfigError` if one does not exist."""
        chosen = (self.config.eval_pages if split == "eval" else "") or self.config.pages
        names = list(dict.fromkeys(name.strip() for name in chosen.split(",") if name.strip()))
        known = _known_pages()
        for name in names:
            if known and name not in known:
                raise ConfigError(f"task.pages: there is no page {name!r}. {nearest(name, [*known])}")
        return names or list(SOLVED)

    def samples(self, split: str) -> Iterable[Sample]:
        """Seeds first, so that the first samples are of different pages."""
        is_eval = split == "eval"
        first, count = (EVAL_SEEDS, self.config.eval_seeds) if is_eval else (1, self.config.train_seeds)
        for number in range(count):
            for page in self._pages(split):
                about = {"page": page, "seed": first + number}
                words = f"{page}, seed {first + number}"  # the model reads the page instead
                yield Sample(f"{page}-{number}", words, metadata=about, split=split, slice=page)

    def check(self, samples: Sequence[Sample]) -> None:
        missing = [name for name in ("miniwob", "playwright") if find_spec(name) is None]
        if missing:
            raise MissingExtraError(f"The task miniwob needs {' and '.join(missing)}: {INSTALL}")
        if self.config.screenshots and find_spec("PIL") is None:
            raise MissingExtraError("Screenshots need a package: python -m pip install rlfactory-vision")
        self._program()
        for sample in samples:
            if sample.metadata.get("page") not in _known_pages() or "seed" not in sample.metadata:
                raise UsageError(
                    f"Sample '{sample.id}' names no page. The task miniwob plays its own samples only; choose them by "
                    "--pages, --train-seeds and --eval-seeds."
                )

    def _program(self) -> str:
        """Chromium's program; raises `UsageError` if there is none."""
        named = (self.config.chromium,) if self.config.chromium else PROGRAMS
        found = next(filter(None, map(shutil.which, named)), None)
        if found is None:
            raise UsageError(
                f"There is no Chromium ({', '.join(named)}). Install it (apt-get install chromium), or name its "
                "program: --chromium /path/to/chrome"
            )
        return found

    async def open(self) -> None:
        self.check(())
        from rlfactory_benchmarks.miniwob.browser import Browsers

        config = self.config
        self._browsers = Browsers(
            self._program(),
            most=config.at_once,
            step_s=config.step_s,
            deadline_s=config.deadline_s,
            screenshots=config.screenshots,
        )
        await self._browsers.open()

    async def close(self) -> None:
        if self._browsers is not None:
            await self._browsers.close()

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        assert self._browsers is not None, "make_env before open"
        url, mode = _known_pages()[sample.metadata["page"]], "test" if sample.split == "eval" else "train"
        return PageEnv(manager, context, self._browsers.page(url, int(sample.metadata["seed"]), mode))

    def eval_tables(self, passes: Mapping[str, Sequence[Group]]) -> Sequence[EvalTable]:
        """The pages, each with the mean of its rewards and the share of full ones, as its package counts them."""
        how = (
            f"miniwob {version('miniwob')}; the reward has no decay over time, and success is the full one. An action "
            f"takes {self.config.step_s:g} s of the page's clock. Masked attempts count as none."
        )
        columns = ("page", "attempts", "reward", "success")
        return [EvalTable(f"MiniWoB++, {name}", columns, _rows(groups), [how]) for name, groups in passes.items()]

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        """The next action of the page's rule, which reads the page's text only."""
        return Message("assistant", "", tool_calls=(next_call(sample.metadata["page"], messages, SOLVED),))


def _rows(groups: Sequence[Group]) -> list[list[str | float | None]]:
    """A row for each page, and one in which every page counts alike."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for group in groups:
        found[group.sample.slice] += [
            float(each.info.get(INFO, UNFINISHED)) for each in group.trajectories if not each.masked
        ]
    rows = [(page, len(raws), mean(raws), mean(r >= 1.0 for r in raws)) for page, raws in sorted(found.items()) if raws]
    if rows:
        _, counts, rewards, shares = zip(*rows, strict=True)
        rows.append((f"all {len(rows)} pages", sum(counts), mean(rewards), mean(shares)))
    return [list(row) for row in rows]


@cache
def _known_pages() -> Mapping[str, str]:
    """The addresses of all pages by name; empty where the package is not installed.

    The package itself is not imported, for it would need Gymnasium and Selenium.
    """
    found = find_spec("miniwob")
    files = (Path(found.origin).parent / "html" / "miniwob").glob("*.html") if found and found.origin else ()
    return {path.stem: path.as_uri() for path in sorted(files)}
