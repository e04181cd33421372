"""``rlfactory report``: a run's page of plots, at any time."""

from __future__ import annotations

import json
from pathlib import Path

from reporting_examples import finished_run, write_run
from runs import TINY_TASK, Cli

from rlfactory_core.reporting.folder import RunFolder


def killed_run(root: Path) -> RunFolder:
    folder = RunFolder.create("tiny", root / "killed")
    folder.write_config({"plugin": str(TINY_TASK), "engine": "local", "seed": 0})
    write_run(folder, steps=9)
    folder.summary.unlink()
    return folder


def test_a_killed_run_gets_its_page(cli: Cli, tmp_path: Path) -> None:
    folder = killed_run(tmp_path)
    outcome = cli("report", folder.path)
    assert (outcome.code, outcome.out.strip()) == (0, str(folder.report))
    assert "The run has not ended; so far it took 9 steps" in folder.report.read_text()


def test_its_plugins_sections_as_json(cli: Cli, tmp_path: Path) -> None:
    folder = killed_run(tmp_path)
    outcome = cli("report", folder.path, "--json")
    assert json.loads(outcome.out) == []
    assert not folder.report.exists()


def test_what_is_no_run_is_refused(cli: Cli, tmp_path: Path) -> None:
    finished_run(tmp_path)
    assert "no run at" in cli.refusal("report", tmp_path / "nothing")
