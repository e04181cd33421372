"""``rlfactory report``: a run's page of plots, at any time."""

from __future__ import annotations

import json

import click

from rlfactory_core.cli.output import echo


@click.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Write no page; print the sections of the run's plugins as JSON.")
def report(run: str, as_json: bool) -> None:
    """Write the report.html of RUN (a folder, or a name under runs/) anew.

    A run writes it when it ends. This shows one that goes on, or one that was killed.
    """
    from rlfactory_core.plugins.registry import Registry
    from rlfactory_core.reporting.folder import RunFolder
    from rlfactory_core.reporting.report import plugin_sections, write_report
    from rlfactory_core.reporting.run_data import RunData
    from rlfactory_core.runner.resolving import find_parts, run_config

    folder, registry = RunFolder.open(run), Registry()
    data = folder.read_config()
    registry.task(data["plugin"])  # it may bring the engine
    find_parts(registry, run_config(data, registry))
    makers = plugin_sections(registry)
    if not as_json:
        echo(str(write_report(folder, makers)))
        return
    found = (make(RunData.read(folder, pairs=0)) for make in makers)
    echo(json.dumps([{"title": each.title, "html": each.html} for each in found if each is not None]))
