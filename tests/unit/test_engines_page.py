"""The engine of the page on engines: it is short, and gets everything but the weights from the training loop."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rlfactory_core.errors import RunStopped, TrainingError
from rlfactory_core.reporting import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner import prepare, resume, run

pytest.importorskip("tokenizers", reason="needs rlfactory-core[local]")

PAGE = Path(__file__).parents[2] / "docs" / "hooks" / "engines.md"
CODE = PAGE.read_text(encoding="utf-8").split("<!-- file: unigram.py -->\n```python\n")[1].split("```")[0]


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    file = tmp_path / "unigram.py"
    file.write_text(CODE, encoding="utf-8")
    return str(file)


def trained(plugin: str, out: Path, **sections: Any) -> RunFolder:
    given = {"plugin": plugin, "out": str(out), "eval": {"sampled": True, "limit": 4}, **sections}
    return run(prepare(None, [given]), Progress())


def test_it_has_at_most_sixty_lines() -> None:
    (engine,) = re.findall(r"^class Unigram.*?(?=\n\n\n)", CODE, re.DOTALL | re.MULTILINE)
    assert len(engine.splitlines()) <= 60


@pytest.mark.slow
def test_it_learns_and_gets_record_evaluations_proof_and_report(plugin: str, tmp_path: Path) -> None:
    train = {"steps": 20, "until": {"sampled/loud": 0.6}}
    folder = trained(plugin, tmp_path / "run", train=train, eval={"every": 5, "limit": 4})
    summary, rows = folder.read_summary(), folder.read_metrics()
    assert summary["eval"]["after"]["sampled/loud"] > 0.6 > summary["eval"]["before"]["sampled/loud"]
    assert summary["ended"]["by"] == "until"
    assert summary["policy_moved"]["to_new"] < 1e-9 < summary["policy_moved"]["moved"]
    assert [row["step"] for row in rows] == [*range(1, summary["steps"] + 1)]
    assert folder.trajectory_steps() == [*range(1, summary["steps"] + 1)]
    assert folder.report.exists()


@pytest.mark.slow
def test_it_is_resumed_from_what_it_saved(plugin: str, tmp_path: Path) -> None:
    refill = {"refill": True, "prompts": "difficulty"}
    whole = trained(plugin, tmp_path / "whole", train={"steps": 4, **refill})
    cut = trained(plugin, tmp_path / "cut", train={"steps": 2, **refill})
    resume(str(cut.path), ["train.steps=4"], Progress())
    first, second = (
        [{k: v for k, v in row.items() if not k.endswith("_s") and not k.startswith("machine/")} for row in rows]
        for rows in (whole.read_metrics(), cut.read_metrics())
    )
    assert first == second


def test_a_stop_ends_it_after_a_step_that_is_saved(plugin: str, tmp_path: Path) -> None:
    prepared = prepare(None, [{"plugin": plugin, "train": {"steps": 5}}])
    folder = RunFolder.create("unigram", tmp_path / "run")

    class StopsAfterTwo(Progress):
        def advance(self, count: int = 1, **numbers: float) -> None:
            if len(folder.read_metrics()) == 2:
                engine_run.stop.request("enough")

    engine_run = prepared.at(folder, StopsAfterTwo())
    with pytest.raises(RunStopped, match=r"Stopped after step 2, which is saved\. enough"):
        prepared.engine.train(engine_run)
    assert (folder.checkpoints / "latest" / "logits.npy").exists()


def test_a_sampler_with_the_old_weights_is_noticed(plugin: str, tmp_path: Path) -> None:
    text = Path(plugin).read_text(encoding="utf-8")
    fresh, first = "logprobs, rng, said = self.logprobs()", "0 * self.logits - np.log(len(self.logits))"
    stale = text.replace(fresh, f"logprobs, rng, said = {first}")
    assert stale != text
    Path(plugin).write_text(stale, encoding="utf-8")
    with pytest.raises(TrainingError, match="The sampler does not have the trained weights"):
        trained(plugin, tmp_path / "run", train={"steps": 3})
