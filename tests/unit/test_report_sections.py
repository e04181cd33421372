"""What plugins add to report.html: in its place, also of a run that was stopped, and never at the page's cost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlfactory_core.errors import RunStopped
from rlfactory_core.reporting import ReportSection
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner import prepare, run

PLUGIN = Path(__file__).parents[1] / "support" / "sections_plugin.py"


def report(out: Path, *overrides: str, steps: int = 3) -> str:
    given = [f"plugin={PLUGIN}", "engine=still", f"train.steps={steps}", f"out={out}", *overrides]
    return run(prepare(None, given), Progress()).report.read_text(encoding="utf-8")


def section(page: str, title: str) -> str:
    (found,) = re.findall(rf"<section><h2>{title}</h2>(.*?)</section>", page, re.DOTALL)
    return str(found)


def test_a_plugin_in_use_adds_its_section_behind_the_others(tmp_path: Path) -> None:
    page = report(tmp_path / "run")
    assert re.findall("<h2>(.*?)</h2>", page)[-1] == "Politeness"
    assert section(page, "Politeness").count("<figure") == 1  # a chart without a point is left out
    assert "Politeness" not in report(tmp_path / "none", "task.report=none")


def test_a_run_that_was_stopped_has_it_too(tmp_path: Path) -> None:
    with pytest.raises(RunStopped):
        report(tmp_path / "run", steps=13)
    assert "Bows" in section((tmp_path / "run" / "report.html").read_text(encoding="utf-8"), "Politeness")


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ("raises", "ValueError: &lt;b&gt;no&lt;/b&gt; ? politeness"),
        ("misses", "MissingExtraError: The report section &#x27;politeness&#x27; needs the package"),
        ("text", "TypeError: expected a rlfactory_core.reporting.ReportSection or None, got &#x27;a text&#x27;"),
        ("broken", "UnicodeEncodeError: "),
    ],
)
def test_one_that_fails_leaves_a_note_and_the_rest_of_the_page(tmp_path: Path, wish: str, why: str) -> None:
    page = report(tmp_path / "run", f"task.report={wish}")
    note = section(page, "politeness")
    assert note.startswith('<p class="note">The plugin &#x27;sections_plugin&#x27; (sections_plugin.py) could not make')
    assert why in note
    assert page.rstrip().endswith("</html>")


def test_a_table_escapes_what_it_shows() -> None:
    table = ReportSection.of_table("Kinds", ("kind", "<after>"), [("<i>", "3 & 4")], "a note")
    assert table is not None
    for text in ("<th>&lt;i&gt;</th>", '<td data-label="&lt;after&gt;">3 &amp; 4</td>', '<p class="note">a note</p>'):
        assert text in table.html
    assert ReportSection.of_table("Kinds", ("kind",), []) is None
