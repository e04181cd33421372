"""A plugin's own section and report section in a real run: every process reads the one, the page has the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import Cli

pytestmark = pytest.mark.slow

PLUGIN = """
import os
from rlfactory_core import Section, hookimpl
from rlfactory_core.reporting import ReportSection as Part
from tiny_task import Colours


class Shelf(Section):
    books: int = 1


class Shelved(Colours):
    async def open(self):
        (self.run.folder / f"seen-by-{os.getpid()}").write_text(repr(self.run.sections["shelf"]))


def books(run):
    rows = [(path.name, path.read_text()) for path in sorted(run.folder.path.glob("seen-by-*"))]
    return Part.of_table("Books", ("process", "shelf"), rows)


@hookimpl
def rlfactory_tasks(register):
    register("shelved", Shelved)


@hookimpl
def rlfactory_config_sections(register):
    register("shelf", Shelf)


@hookimpl
def rlfactory_report_sections(register):
    register("books", books)
"""


def test_both_processes_of_a_run_see_the_section(cli: Cli, tiny_model: Path, tmp_path: Path) -> None:
    plugin, run = tmp_path / "shelved.py", tmp_path / "run"
    plugin.write_text(PLUGIN)
    small = ("--steps", 1, "train.prompts_per_step=4", "train.group_size=2", "train.workers=2", "eval.limit=2")
    lengths = ("rollout.max_tokens=320", "rollout.max_turn_tokens=40")
    done = cli(
        "run", "--plugin", plugin, "--model", tiny_model, *small, *lengths, "plugins.shelf.books=3", "--out", run
    )
    assert done.code == 0, done.err
    assert [path.read_text() for path in run.glob("seen-by-*")] == ["Shelf(books=3)"] * 2
    page = (run / "report.html").read_text(encoding="utf-8")
    assert page.partition("<h2>Books</h2>")[2].count("Shelf(books=3)") == 2
