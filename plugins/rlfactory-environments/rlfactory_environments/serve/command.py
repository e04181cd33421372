"""``rlfactory serve``: offer a task to other training libraries."""

from __future__ import annotations

from pathlib import Path

import click

from rlfactory_core.cli.options import REST, SETTINGS, task_options
from rlfactory_core.cli.output import echo
from rlfactory_core.errors import UsageError

_FOR_EVER_S = 10.0**9


@click.command(context_settings=SETTINGS)
@click.option("--plugin", required=True, metavar="NAME|FILE.py", help="The task.")
@click.option(
    "--as", "protocol", type=click.Choice(["openenv"]), default="openenv", show_default=True, help="The protocol."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--data", type=click.Path(path_type=Path), help="Training data of your own: JSONL or parquet.")
@click.option("--eval-data", type=click.Path(path_type=Path), help="Held-out data of your own.")
@click.option("--sessions", type=click.IntRange(min=1), default=64, show_default=True, help="At once, at most.")
@click.option(
    "--idle-s", type=click.FloatRange(min=1.0), default=600.0, show_default=True, help="When an unused session may end."
)
@REST
def serve(
    plugin: str,
    protocol: str,
    host: str,
    port: int,
    data: Path | None,
    eval_data: Path | None,
    sessions: int,
    idle_s: float,
    rest: tuple[str, ...],
) -> None:
    """Serve a task as an OpenEnv environment, until Ctrl-C: its prompts, its tools and its rewards.

    Any other --NAME VALUE is an option of the task, and KEY=VALUE sets any key of the configuration. There is no access
    control: on an address that other machines reach, anybody can call the task's tools.
    """
    from rlfactory_core.runner import TaskBench
    from rlfactory_core.serving import listener
    from rlfactory_environments.serve.app import run_server
    from rlfactory_environments.serve.sessions import Sessions

    given = {"train": data and str(data), "eval": eval_data and str(eval_data)}
    own = {"data": {split: path for split, path in given.items() if path}}
    listening = listener(host, port)
    with TaskBench(plugin, [own, *task_options(rest)]) as bench:
        if bench.runtime.agents is not None:
            raise UsageError(
                f"The task {plugin} has a loop of its own (Task.agent), so nobody else can play its turns."
            )
        for split in own["data"]:
            bench.rows(split)  # a file that cannot be read is an error here, and not at each reset
        table = Sessions(bench.runtime, bench.rows, most=sessions, idle_s=idle_s)
        address = f"http://{host}:{listening.getsockname()[1]}"
        echo(f"{plugin} is an OpenEnv environment at {address} ({sessions} sessions at most). Ctrl-C ends it.")
        try:
            bench.run(run_server(table, listening, plugin), _FOR_EVER_S, "serving")
        except KeyboardInterrupt:
            echo("Stopped.")
