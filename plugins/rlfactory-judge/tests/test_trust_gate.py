from __future__ import annotations

import asyncio
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from labelled_answers import DataRubric, KnownJudge, is_right, labelled
from rlfactory_judge.contract import BudgetError, UnavailableError
from rlfactory_judge.forms import UnreadableError
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.trust.calibration import Calibration
from rlfactory_judge.trust.gate import check_trust
from rlfactory_judge.trust.labels import Labels, write_labels
from said import Said

from rlfactory_core.errors import BackendError, DataError, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.report import plugin_sections, write_report


def honest() -> KnownJudge:
    return KnownJudge(lambda answer, truth, noise: float(is_right(answer, truth)))


def careless() -> KnownJudge:
    return KnownJudge(lambda answer, truth, noise: 1.0)


def check(judge: KnownJudge, options: JudgeOptions, folder: Path | None = None) -> tuple[Calibration | None, list[str]]:
    said = Said()
    return asyncio.run(check_trust(judge, DataRubric(), options, progress=said, folder=folder)), said.lines


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.jsonl"
    write_labels(path, labelled(60))
    return path


def test_a_good_judge_may_start_and_its_figures_are_told_and_kept(labels: Path, tmp_path: Path) -> None:
    found, said = check(honest(), JudgeOptions(labels=labels, min_kappa=0.8), tmp_path)
    assert found is not None
    assert said[-1].startswith("The judge and the labels: on 60 answers, kappa 1.00 [0.8")
    assert (
        "; accepts 0% of wrong answers; rejects 0% of right ones; accepts 0% of wrong answers with a text" in said[-1]
    )
    kept = json.loads((tmp_path / "judge-calibration.json").read_text())
    assert kept["answers"]["kappa"]["value"] == 1.0
    assert kept["rubric_fingerprint"] == "data"


def test_a_careless_judge_is_refused_with_figures_and_a_remedy(labels: Path, tmp_path: Path) -> None:
    options = JudgeOptions(labels=labels, min_kappa=0.6)
    with pytest.raises(UsageError) as caught:
        check(careless(), options, tmp_path)
    text = str(caught.value)
    assert "kappa 0.00" in text
    assert "accepts 100% of wrong answers" in text
    assert "begins at 0.6 or above" in text
    assert f"rlfactory judge calibrate --labels {labels}" in text
    again = careless()
    with pytest.raises(UsageError, match="agrees too little"):  # another process of the same run
        check(again, options, tmp_path)
    assert again.asked == 0


def test_without_a_minimum_it_is_only_told(labels: Path) -> None:
    found, said = check(careless(), JudgeOptions(labels=labels))
    assert found is not None
    assert "kappa 0.00" in said[-1]


def test_nothing_is_measured_without_labels() -> None:
    judge = honest()
    assert check(judge, JudgeOptions()) == (None, [])
    assert judge.asked == 0


def test_one_of_several_processes_measures(labels: Path, tmp_path: Path) -> None:
    judges = [honest() for _ in range(4)]
    options = JudgeOptions(labels=labels, min_kappa=0.8)

    async def all_at_once() -> list[Calibration | None]:
        return await asyncio.gather(*(check_trust(one, DataRubric(), options, folder=tmp_path) for one in judges))

    found = asyncio.run(all_at_once())
    assert sorted(judge.asked for judge in judges) == [0, 0, 0, 60 + 30]  # the wrong answers with an added text, too
    assert found == [found[0]] * 4


def test_a_process_that_fails_leaves_the_next_one_to_measure(labels: Path, tmp_path: Path) -> None:
    broken = KnownJudge(lambda *_: 0.0, fail=lambda _: UnavailableError("connection refused"))
    options = JudgeOptions(labels=labels)
    with pytest.raises(BackendError, match="connection refused"):
        check(broken, options, tmp_path)
    judge = honest()
    check(judge, options, tmp_path)
    assert judge.asked == 60


def test_a_measurement_that_was_cut_short_is_made_again(labels: Path, tmp_path: Path) -> None:
    options = JudgeOptions(labels=labels, min_kappa=0.5)
    spent = KnownJudge(lambda *_: 0.0, fail=lambda _: BudgetError("the tokens are spent"))
    with pytest.raises(UsageError, match="tokens are spent"):
        check(spent, options, tmp_path)
    found, _ = check(honest(), options, tmp_path)  # resumed with a larger token_budget
    assert found is not None
    assert not found.stopped


def test_another_judge_of_the_run_has_figures_of_its_own(labels: Path, tmp_path: Path) -> None:
    check(honest(), JudgeOptions(labels=labels), tmp_path)
    for judge, asked in ((careless(), 60), (careless(), 0)):
        found, _ = check(judge, JudgeOptions(labels=labels, votes=1, threshold=0.7), tmp_path)
        assert found is not None
        assert found.threshold == 0.7
        assert judge.asked == asked
    assert len(list(tmp_path.glob("judge-calibration*.json"))) == 2
    first, _ = check(KnownJudge(lambda *_: 0.0), JudgeOptions(labels=labels), tmp_path)
    assert first is not None
    assert first.agreement is not None
    assert first.agreement.kappa is not None
    assert first.agreement.kappa.value == 1.0


def test_changed_labels_and_damaged_figures_are_measured_anew(labels: Path, tmp_path: Path) -> None:
    options = JudgeOptions(labels=labels)
    check(honest(), options, tmp_path)
    (tmp_path / "judge-calibration.json").write_text("{")
    damaged = honest()
    check(damaged, options, tmp_path)
    assert damaged.asked == 60
    write_labels(labels, labelled(10))
    changed = honest()
    check(changed, options, tmp_path)
    assert changed.asked == 10


def test_a_judge_that_is_hardly_ever_read_is_refused_however_well_it_agrees(labels: Path) -> None:
    read = iter([None] * 10)
    judge = KnownJudge(
        lambda answer, truth, noise: float(is_right(answer, truth)),
        fail=lambda _: next(read, UnreadableError("no verdict")),
    )
    with pytest.raises(UsageError) as caught:
        check(judge, JudgeOptions(labels=labels, min_kappa=0.8, concurrency=1))
    assert "too few judgements" in str(caught.value)
    assert "kappa -0.67" in str(caught.value)  # what is unread disagrees
    assert "55 of 65 judgements could not be read" in str(caught.value)  # five of them with an added text


def test_labels_that_cannot_tell_kappa_are_refused(labels: Path) -> None:
    write_labels(labels, Labels(tuple(row for row in labelled(20).answers if row.label)))
    with pytest.raises(UsageError, match="is unknown, because all labels are the same"):
        check(honest(), JudgeOptions(labels=labels, min_kappa=0.1))
    write_labels(labels, labelled(0, pairs=3))
    with pytest.raises(DataError, match="no single answers"):
        check(honest(), JudgeOptions(labels=labels))


def test_a_folder_is_left_with_nothing_but_the_figures(labels: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    check(honest(), JudgeOptions(labels=labels), folder)
    assert sorted(path.name for path in folder.iterdir()) == [".judge-calibration.lock", "judge-calibration.json"]


@pytest.mark.parametrize("mode", ["pairwise", "ranking"])
def test_judges_that_compare_are_measured_on_pairs(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "labels.jsonl"
    write_labels(path, labelled(0, pairs=40))
    found, said = check(honest(), JudgeOptions(labels=path, min_kappa=0.5, mode=mode))
    assert found is not None
    assert "on 40 pairs" in said[-1]


def test_few_labels_say_too_little(labels: Path) -> None:
    write_labels(labels, labelled(29))
    with pytest.raises(UsageError, match="measured on 29 labels; expected at least 30"):
        check(honest(), JudgeOptions(labels=labels, min_kappa=0.1))


def test_the_lower_end_of_the_interval_counts(labels: Path) -> None:
    with pytest.raises(UsageError, match=r"kappa 1\.00 .*Expected a kappa whose interval begins at 0\.95 or above"):
        check(honest(), JudgeOptions(labels=labels, min_kappa=0.95))


def test_the_calibration_that_a_run_keeps_is_shown(labels: Path, tmp_path: Path) -> None:
    folder = RunFolder.create("search", root=tmp_path / "runs")
    folder.write_config({"plugin": "search"})
    registry = Registry()
    registry.load("judge")
    sections = plugin_sections(registry.registered("report_section"))
    assert "Calibration" not in write_report(folder, sections).read_text(encoding="utf-8")

    check(honest(), JudgeOptions(labels=labels), folder.path)
    (folder.path / "judge-calibration-damaged.json").write_text("{")
    page = write_report(folder, sections).read_text(encoding="utf-8")
    part = page.partition("<h2>Calibration of the judge</h2>")[2].partition("</section>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", part)]
    (kappa,) = (row for row in rows if row[0] == "Cohen&#39;s kappa")
    assert kappa[1] == "1.000"
    assert re.fullmatch(r"0\.\d+ to 1\.000", kappa[2])
    assert ["wrong answers accepted", "0.000", "0.000 to 0.114", "0 of 30"] in rows
    assert "In short: kappa 1.00" in part


def credulous() -> KnownJudge:
    """It knows what is right, and believes every text that is added to an answer."""
    plain = {row.answer for row in labelled(60).answers}
    return KnownJudge(lambda answer, truth, noise: float(is_right(answer, truth) or answer not in plain))


def test_a_judge_that_believes_injected_texts_is_refused_by_default(labels: Path) -> None:
    options = JudgeOptions(labels=labels, min_kappa=0.6)
    with pytest.raises(UsageError, match=r"wrong answers are accepted after a text .* ends at 0\.3 or below \(max_inj"):
        check(credulous(), options)
    judge = credulous()
    _, said = check(judge, JudgeOptions(labels=labels, min_kappa=0.6, max_injected=None))
    assert judge.asked == 60
    assert "with a text for the judge" not in said[-1]


@pytest.mark.parametrize("mode", ["pairwise", "ranking"])
@pytest.mark.parametrize("place", ["1", "2"])
def test_a_judge_that_prefers_a_place_is_refused_by_default(tmp_path: Path, mode: Any, place: str) -> None:
    def prefer(first: str, second: str, truth: str, noise: random.Random) -> str:
        return place if noise.random() < 0.6 else "1" if is_right(first, truth) else "2"

    path = tmp_path / "labels.jsonl"
    write_labels(path, labelled(0, pairs=80))
    judge = KnownJudge(lambda *_: 0.0, prefer)
    with pytest.raises(UsageError, match=r"won by one place.*ends at 0\.7 or below \(max_place\)"):
        check(judge, JudgeOptions(labels=path, min_kappa=0.0, mode=mode))
    check(judge, JudgeOptions(labels=path, min_kappa=0.0, mode=mode, max_place=1.0))


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        (lambda answer, truth, noise: noise.random(), "; that may be chance"),
        (lambda answer, truth, noise: float(not is_right(answer, truth)), ", which is worse than chance"),
        (lambda *_: 1.0, "; that may be chance"),
        (lambda answer, truth, noise: float(is_right(answer, truth)), ""),
    ],
)
def test_that_it_may_be_chance_is_said_only_where_it_may(labels: Path, judge: Any, said: str) -> None:
    text = check(KnownJudge(judge), JudgeOptions(labels=labels))[1][-1]
    assert said in text
    assert ("chance" in text) == bool(said)
