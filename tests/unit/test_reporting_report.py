"""report.html: whole, self-contained, safe with what models write, and useful for a run that was stopped early."""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from reporting_examples import SUMMARY, decode, finished_run, make_trajectory, with_images

from rlfactory_core.reporting import report
from rlfactory_core.reporting.charts import Chart, Line
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.report import ReportSection, write_report
from rlfactory_core.reporting.run_data import RunData, eval_rows, headline

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Outline(HTMLParser):
    """Checks that tags nest, and collects what would be requested."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.figures = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]
        self.figures += tag == "figure"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """SVG's self-closed elements."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(folder: RunFolder) -> tuple[str, Outline]:
    html = write_report(folder).read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(html)
    assert outline.open == []
    assert outline.links == []
    assert not re.search(r"url\(|@import|fetch\(|https?://", html)
    return html, outline


def test_the_whole_page(tmp_path: Path) -> None:
    html, outline = page(finished_run(tmp_path))
    assert "rose from 0.50 to 0.98 in 60 steps and 2:07 min" in html
    assert re.search(r"<title>Held-out \w[\w ]+ rose from 0.50 to 0.98 · ", html)
    titles = re.findall(r"<h2>(.*?)</h2>", html)
    assert titles == ["Results", "Learning", "Sample trajectories", "Behaviour", "Speed", "Update"]
    for text in ("two hop", "empty search", "pass@4", "41 wrong tool calls", "Throughput", "masked from the loss"):
        assert text in html
    assert outline.figures >= 12
    axes = re.findall(r'text-anchor="middle">([^<]*[a-z][^<]*)</text>', html)
    assert axes.count("step") == outline.figures == len(axes) / 2
    assert "tokens per second" in axes


def test_rows_and_why_they_begin_are_shown(tmp_path: Path) -> None:
    folder = finished_run(tmp_path)
    assert "edited history" not in page(folder)[0]
    played = make_trajectory(1.1, calls=2)
    *first, last = played.turns
    rewritten = replace(played, turns=(*first, replace(last, row=1, fork="edited_history")))
    folder.write_trajectories("eval-after", [rewritten], decode)
    folder.append_metrics(61, {"rows": 1.5, "forks/edited_history": 8.0})
    folder.append_metrics(62, {"rows": 1.7, "forks/edited_history": 9.0})
    html = page(folder)[0]
    assert "row 1: edited history" in html
    assert "sequences per trajectory" in html


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_a_run_that_stopped_early_has_a_page_too(tmp_path: Path, lines: int) -> None:
    folder = RunFolder.create("search", root=tmp_path)
    for step in range(1, lines + 1):
        folder.append_metrics(step, {"reward": 0.0, "exact_match": float("nan")})
    html, outline = page(folder)
    assert ("Nothing to show yet" in html) == (lines == 0)
    assert outline.figures == min(lines, 1)
    assert "has not ended" in html


CHANGE = {"before": 0.65, "after": 0.60}


def test_an_evaluation_alone_and_a_loss_are_said_as_such() -> None:
    assert headline({"eval": {"after": {"exact_match": 0.5}}}, 0) == "Held-out exact match (greedy) is 0.50."
    worse = {"steps": 2, "eval": {"before": {"exact_match": 0.5}, "after": {"exact_match": 0.25}}}
    assert headline(worse, 2) == "Held-out exact match (greedy) fell from 0.50 to 0.25 in 2 steps."
    few = {"steps": 2, "eval": {when: {"exact_match": value, "samples": 40} for when, value in CHANGE.items()}}
    assert headline(few, 2) == (
        "Held-out exact match (greedy) went from 0.65 to 0.60 in 2 steps: no change that 40 samples can show."
    )
    many = {"steps": 2, "eval": {when: {"exact_match": value, "samples": 4000} for when, value in CHANGE.items()}}
    assert "fell from 0.65 to 0.60 in 2 steps." in headline(many, 2)
    same = {"steps": 1, "eval": {"before": {"exact_match": 0.501}, "after": {"exact_match": 0.5}}}
    assert headline(same, 1) == "Held-out exact match (greedy) stayed at 0.50 in 1 step."
    masked = {"eval": {"after": {"samples": 4, "masked": 4}}, "steps": 2}
    assert headline(masked, 2).endswith(
        "after 2 steps, and every held-out attempt after training was masked: none has a score."
    )


def test_a_task_with_a_reward_of_its_own_is_reported_by_it(tmp_path: Path) -> None:
    results = {
        "before": {"solved": 0.25, "sampled/solved": 0.0},
        "after": {"solved": 0.75, "control/blind/solved": 0.0},
    }
    folder = RunFolder.create("puzzle", root=tmp_path)
    folder.write_summary({"steps": 3, "success": "solved", "eval": results})
    html, _ = page(folder)
    assert "Held-out solved (greedy) rose from 0.25 to 0.75 in 3 steps." in html
    assert "Solved, held out" in html
    assert "exact match" not in html.lower()


def test_what_a_model_writes_cannot_become_markup(tmp_path: Path) -> None:
    folder = RunFolder.create("search", root=tmp_path)
    attack = "</pre><script>alert(1)</script>"
    folder.write_trajectories("eval-after", [make_trajectory(answer=attack)], decode)
    html, _ = page(folder)
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_a_plugin_adds_a_section(tmp_path: Path) -> None:
    folder = finished_run(tmp_path)
    html = write_report(
        folder, [lambda run: ReportSection("Retrieval", "<p>recall 0.9</p>"), lambda run: None]
    ).read_text()
    assert "<h2>Retrieval</h2><p>recall 0.9</p>" in html


def test_held_out_series_take_their_ends_from_the_summary(tmp_path: Path) -> None:
    run = RunData.read(finished_run(tmp_path))
    points = run.series("eval/exact_match/two_hop")
    assert points[0] == (0.0, 0.0)
    assert [x for x, _ in points] == [0, 10, 20, 30, 40, 50, 60]
    assert [row.slice for row in eval_rows(SUMMARY)] == ["", "one_hop", "two_hop"]


def test_examples_prefer_the_samples_that_gained_most_one_of_each_slice(tmp_path: Path) -> None:
    folder = RunFolder.create("search", root=tmp_path)
    gains = {"a": ("one_hop", 0.0), "b": ("two_hop", 1.0), "c": ("two_hop", 0.9)}
    before = [make_trajectory(0.0, sample=name, hops=hops) for name, (hops, _) in gains.items()]
    after = [make_trajectory(gain, sample=name, hops=hops) for name, (hops, gain) in gains.items()]
    folder.write_trajectories("eval-before", before, decode)
    folder.write_trajectories("eval-after", after, decode)
    pairs = RunData.read(folder).pairs
    assert [pair.after.trajectory.sample.id for pair in pairs if pair.after] == ["b", "a", "c"]


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-3.0, 1e7], [1e-9, 2e-9], [-0.5, -0.25]])
def test_charts_stay_within_their_frame(values: list[float]) -> None:
    html = Chart("x", [Line("y", list(enumerate(values)), dots=True)], low=None).html()
    for x, y in re.findall(r'cx="([-\d.]+)" cy="([-\d.]+)"', html):
        assert 40 <= float(x) <= 560
        assert 5 <= float(y) <= 210
    assert "nan" not in html
    assert html.count("<text") < 25


def test_rewards_are_drawn_side_by_side(tmp_path: Path) -> None:
    """What a judge gives beside the truth, which may have no weight: a reward that is gamed shows."""
    folder = finished_run(tmp_path)
    assert "Rewards" not in page(folder)[0]  # one scorer alone is drawn as the success
    scored = make_trajectory()
    assert scored.score is not None
    both = replace(scored, score=replace(scored.score, latency_s={"judge": 0.4, "exact_match": 1e-6}))
    folder.write_trajectories("eval-before", [replace(scored, score=None), both], decode)
    for step in (61, 62):
        row = {"judge": 0.9, "judge.agreement": 0.5, "judge/two_hop": 0.8, "exact_match": 0.25}
        folder.append_metrics(step, {**row, "eval/judge": 0.8, "eval/exact_match": 0.25, "faults/verifier/judge": 3.0})
    html, _ = page(folder)
    for title in ("Rewards, held out", "Rewards in training"):
        (figure,) = re.findall(rf"<figcaption>{title}</figcaption>(.*?)</figure>", html, re.DOTALL)
        assert re.findall(r'class="key c.">(.*?)</span>', figure) == ["judge", "exact match"]
        assert ">1</text>" in figure  # the axis ends where a reward does
    assert "verifier/judge" not in html


def test_the_images_of_the_sample_trajectories_are_in_the_page_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pytest.importorskip("rlfactory_vision").Image
    pillow = pytest.importorskip("PIL.Image")
    asked, returned = (image.of(pillow.new("RGB", size, "teal")) for size in ((30, 20), (6, 8)))
    folder = RunFolder.create("search", tmp_path / "run")
    folder.write_config({"plugin": "search"})
    one = with_images(make_trajectory(0.0), str(asked), str(returned))
    for file in ("eval-before", "eval-after"):
        folder.write_trajectories(file, [one], decode)
    html = write_report(folder).read_text(encoding="utf-8")
    shown = re.findall(r'<img src="data:image/png;base64,([^"]+)" width="(\d+)"', html)
    assert [(b64decode(data), width) for data, width in shown] == [(asked.read(), "30"), (returned.read(), "6")] * 2
    assert "at most" not in html

    monkeypatch.setattr(report, "_MAX_IMAGE_BYTES", len(asked.read()))
    html = write_report(folder).read_text(encoding="utf-8")
    assert html.count("<img") == 1
    assert "of images; the others are in trajectories/images" in html
    assert str(returned) in html

    (folder.images / f"{asked.digest}.png").write_bytes(returned.read())  # not what the model has seen
    assert 'width="30"' not in write_report(folder).read_text(encoding="utf-8")


def test_stages_are_a_table_and_marked_in_the_charts(tmp_path: Path) -> None:
    folder = RunFolder.create("demo", tmp_path / "run")
    folder.write_config({"plugin": "demo", "stages": [{"method": "sft", "source": "solve"}, {"method": "grpo"}]})
    for step in range(1, 7):
        of_stage = {"stage": 1.0, "nll": 1.0 / step} if step < 4 else {"stage": 2.0, "reward": 0.2 * step}
        folder.append_metrics(step, {**of_stage, **({"eval/exact_match": 0.1 * step} if step in (3, 6) else {})})
    folder.write_summary({"success": "exact_match", "steps": 6})
    html, _ = page(folder)
    assert RunData.read(folder).stages == [(1.0, "sft"), (4.0, "grpo")]
    assert "1 to 3" in html
    assert "4 to 6" in html
    assert html.count('class="mark"') >= 2
    assert RunData.read(finished_run(tmp_path / "other")).stages == []
