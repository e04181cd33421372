"""``rlfactory report``: a run's page of plots, at any time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from rlfactory_core.cli.output import echo

if TYPE_CHECKING:
    from rlfactory_core.reporting.report import ReportSection


@click.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Write no page; print the sections of the run's plugins as JSON.")
@click.option("--trajectory", metavar="FILE/NUMBER", help="Those of a trajectory, such as step-000010/0, as JSON.")
def report(run: str, as_json: bool, trajectory: str | None) -> None:
    """Write the report.html of RUN (a folder, or a name under runs/) anew.

    A run writes it when it ends. This shows one that goes on, or one that was killed.
    """
    from rlfactory_core.plugins.registry import Registry
    from rlfactory_core.reporting.folder import RunFolder
    from rlfactory_core.reporting.report import plugin_sections, trajectory_sections, write_report
    from rlfactory_core.reporting.run_data import RunData
    from rlfactory_core.runner.resolved import look_up
    from rlfactory_core.runner.resolving import saved_config

    folder, registry = RunFolder.open(run), Registry()
    data = folder.read_config()
    look_up(saved_config(data, registry), registry)
    makers = plugin_sections(registry.registered("report_section"))
    if trajectory is not None:
        file, _, number = trajectory.rpartition("/")
        if not number.isdecimal():
            raise click.BadParameter(f"expected FILE/NUMBER, such as step-000010/0, got '{trajectory}'.")
        stored = folder.read_trajectory(file, int(number))
        _print(trajectory_sections(registry.registered("trajectory_section"), stored.trajectory, data))
    elif as_json:
        _print(make(RunData.read(folder, pairs=0)) for make in makers)
    else:
        echo(str(write_report(folder, makers)))


def _print(sections: Iterable[ReportSection | None]) -> None:
    echo(json.dumps([{"title": each.title, "html": each.html} for each in sections if each is not None]))
