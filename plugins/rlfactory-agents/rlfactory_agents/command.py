"""``rlfactory agents``: tries an agent of the user's own before it is trained."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from rlfactory_core.cli.options import REST, SETTINGS, needs_local, nested, run_options, task_options
from rlfactory_core.cli.output import echo
from rlfactory_core.errors import UsageError
from rlfactory_core.reporting import StoredTrajectory
from rlfactory_core.settings import load_yaml, merge

PLACES = {
    "data": ("data", "train"),
    "mcp": ("tools", "mcp"),
    "agent": ("agent", "command"),
    "agent_workers": ("agent", "workers"),
}


@click.group()
def agents() -> None:
    """Try an agent of your own before it is trained."""


@agents.command("try", context_settings=SETTINGS)
@click.option("--plugin", metavar="NAME|FILE.py", help="The task. Default: only --agent and --data.")
@click.option("--data", type=click.Path(path_type=Path), help="Data of your own: JSONL or parquet.")
@click.option("--api", metavar="URL", help="An OpenAI-compatible server that answers. Default: the task's `solve`.")
@click.option("--model", metavar="ID", help="Whose chat template is used; with --api, the served model's id.")
@click.option("-n", "count", type=click.IntRange(min=1), default=1, show_default=True, help="How many attempts.")
@click.option("--full", is_flag=True, help="Show long prompts and tool results whole.")
@run_options
@REST
@click.pass_context
def try_agent(
    ctx: click.Context,
    /,
    plugin: str | None,
    api: str | None,
    model: str | None,
    count: int,
    full: bool,
    file: Path | None,
    judge: str | None,
    recipe: str | None,
    rest: tuple[str, ...],
    **options: Any,
) -> None:
    """Play a few attempts and show each: its requests, rows, masks and forks, its faults, its answer and reward.

    Without --api the task's `solve` answers the agent's requests; for data of your own it says the accepted answer at
    once. So a right agent gets the full reward, before any model is there. With --model the requests are written with
    that model's chat template, which may refuse what an agent sends.
    """
    if judge or recipe:
        raise UsageError("`agents try` takes neither --judge nor --recipe.")
    given = merge(load_yaml(file) if file else {}, nested(options, PLACES))
    overrides: list[str | Mapping[str, Any]] = [given, *task_options(rest)]
    played = (
        _played_by_server(plugin, overrides, api, model, count)
        if api
        else _played_by_solve(plugin, overrides, model, count)
    )
    from rlfactory_core.cli.trace import show

    show(played, sys.stdout, where="this try", total=len(played), full=full)
    failed = sum(bool(item.trajectory.faults) for item in played)
    echo(f"{failed} of {len(played)} attempts had a fault." if failed else "No faults.")
    if lost := _lost(played):
        echo(lost)
    ctx.exit(1 if failed else 0)


def _played_by_solve(
    plugin: str | None, overrides: Sequence[str | Mapping[str, Any]], model: str | None, count: int
) -> list[StoredTrajectory]:
    from rlfactory_core.runner import TaskBench, make_chat, oracle
    from rlfactory_core.tasks import NAME

    given = TaskBench(plugin or NAME, overrides)
    if model:
        with needs_local():
            from rlfactory_core.engines import load_tokenizer
        given = given.again(make_chat(given.config.chat, given.registry)(load_tokenizer(model)))
    with given as bench:
        if bench.runtime.agents is None:
            raise UsageError("There is no agent to try: give --agent CMD, or --plugin of a task with an `agent`.")
        limit = bench.config.agent.deadline_s + 60.0
        played = bench.play(oracle(bench.task), bench.samples(limit=count), deadline_s=limit)
        return [StoredTrajectory.of(each, bench.chat.decode) for each in played]


def _lost(played: Sequence[StoredTrajectory]) -> str:
    """What the agent's requests asked for in vain, and why they began rows."""
    overridden, forks = Counter[str](), Counter[str]()
    for item in played:
        overridden.update(item.trajectory.info.get("overridden", {}))
        forks.update(turn.fork for turn in item.trajectory.turns if turn.fork)
    said = [("Without effect in the requests", overridden), ("Further rows", forks)]
    return " ".join(
        f"{what}: {', '.join(f'{name} ({number})' for name, number in sorted(counts.items()))}."
        for what, counts in said
        if counts
    )


def _played_by_server(
    plugin: str | None, overrides: Sequence[str | Mapping[str, Any]], api: str, model: str | None, count: int
) -> list[StoredTrajectory]:
    import tempfile

    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_core.runner import ModelChoice, evaluate_run

    with tempfile.TemporaryDirectory(prefix="rlfactory-try-") as folder, make_progress(sys.stderr) as progress:
        few: dict[str, Any] = {"eval": {"limit": count, "sampled": False}, "out": f"{folder}/try"}
        given = [_held_out(each) if isinstance(each, Mapping) else each for each in overrides]
        done = evaluate_run(ModelChoice(plugin, model, api), [*given, few], progress)
        return list(done.folder.read_trajectories("eval-after"))


def _held_out(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The user's data as that of an evaluation."""
    data = given.get("data") or {}
    return {**given, "data": {**data, "eval": data["train"]}} if "train" in data else given
