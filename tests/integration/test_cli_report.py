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


SHOWN = """
from rlfactory_core import Task, hookimpl
from rlfactory_core.reporting import ReportSection


class Nothing(Task):
    def samples(self, split):
        return []


def told(trajectory, config):
    return ReportSection.of_table("Told", ("sample", "seed"), [(trajectory.sample.id + "<b>", str(config["seed"]))])


def broken(trajectory, config):
    raise ValueError("<b>no</b>")


def silent(trajectory, config):
    return None


@hookimpl
def rlfactory_tasks(register):
    register("shown", Nothing)


@hookimpl
def rlfactory_trajectory_sections(register):
    register("told", told)
    register("broken", broken)
    register("silent", silent)
"""


def test_its_plugins_sections_of_a_trajectory(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(SHOWN)
    folder = RunFolder.create("shown", tmp_path / "run")
    folder.write_config({"plugin": str(tmp_path / "shown.py"), "engine": "local", "seed": 7})
    write_run(folder, steps=9)
    told, broken = json.loads(cli("report", folder.path, "--trajectory", "step-000010/2").out)
    assert told["title"] == "Told"
    assert "q1&lt;b&gt;" in told["html"]
    assert ">7<" in told["html"]
    assert "could not make this section: ValueError: &lt;b&gt;no&lt;/b&gt;" in broken["html"]
    assert "has 4 trajectories" in cli.refusal("report", folder.path, "--trajectory", "step-000010/4")
    assert "no trajectories called '../config'" in cli.refusal("report", folder.path, "--trajectory", "../config/0")
    assert "expected FILE/NUMBER" in cli.refusal("report", folder.path, "--trajectory", "step-000010")


def test_what_is_no_run_is_refused(cli: Cli, tmp_path: Path) -> None:
    finished_run(tmp_path)
    assert "no run at" in cli.refusal("report", tmp_path / "nothing")
