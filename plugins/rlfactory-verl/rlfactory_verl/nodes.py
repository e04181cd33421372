"""Checks every machine of a cluster before anything heavy starts there, and reports each by its name.

A run with a Ray of its own has only the driver's machine, where the driver opens the task without Ray's help.
"""

from __future__ import annotations

import asyncio
import platform
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rlfactory_core.errors import DataError, RlfactoryError, UsageError
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.tasks import OpenTasks, ServedModel
from rlfactory_verl.config import VerlConfig
from rlfactory_verl.pool import Pool, check_gpus
from rlfactory_verl.run_payload import Payload

COMPARED = ("verl", "ray", "torch", "transformers", "vllm", "TransferQueue", "rlfactory-core")
DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The result of one machine's check."""

    name: str
    versions: dict[str, str]
    problems: tuple[str, ...] = ()


def check_nodes(payload: Payload, progress: Progress, pool: Pool | None = None) -> None:
    """Check each machine of the Ray cluster: package versions, the plugins' files, and what the task has to reach.

    Raises:
        UsageError: names each machine with a problem, and the problem.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    wanted = VerlConfig.of(payload.config).nodes
    if len(nodes) < wanted:
        raise UsageError(
            f"verl.nodes={wanted}, but the Ray cluster has {len(nodes)}. Start Ray on the others "
            "(ray start --address HEAD:6379), or lower verl.nodes."
        )
    gpus = int(sum(node["Resources"].get("GPU", 0) for node in nodes))
    check_gpus(payload.config, pool, gpus, "The Ray cluster")
    progress.stage("check the machines", len(nodes), "machine")
    ask = ray.remote(num_cpus=0)(report)
    shared = Path(payload.folder) / ".shared"
    shared.touch()
    try:
        several = len(nodes) > 1
        answers = [
            ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
                payload, str(shared) if several else ""
            )
            for node in nodes
        ]
        reports: list[NodeReport] = []
        for answer in answers:
            reports.append(ray.get(answer, timeout=DEADLINE_S))
            progress.advance(1)
    finally:
        shared.unlink(missing_ok=True)
    problems = [f"{item.name}: {problem}" for item in reports for problem in item.problems]
    problems += _different(reports)
    if problems:
        raise UsageError("\n".join(["The run cannot start on every machine.", *problems]))
    if several:
        for item in reports:
            progress.say(f"{item.name}: ready")


def report(payload: Payload, shared_file: str) -> NodeReport:
    """Runs on the machine that it checks."""
    problems = []
    if shared_file and not Path(shared_file).exists():
        problems.append(
            f"the run's folder {payload.folder} is not the driver's. Checkpoints need a file system that all machines "
            "share: choose one with --out."
        )
    try:
        asyncio.run(open_and_close(OpenTasks(payload.run().tasks, payload.folder)))
    except Exception as error:  # noqa: BLE001 - any error of a task's own resources belongs into the report
        problems.append(f"{error}" if isinstance(error, RlfactoryError) else f"{type(error).__name__}: {error}")
    return NodeReport(platform.node(), {name: _version(name) for name in COMPARED}, tuple(problems))


async def open_and_close(tasks: OpenTasks, progress: Progress | None = None, served: ServedModel | None = None) -> None:
    """Open the tasks, check the samples and close the tasks again; raises what a task or its scorers raise."""
    try:
        await tasks.open(progress, served=served, pools_later=True)
        samples = tasks.tasks.held_out(required=False)
        with suppress(DataError):  # an evaluation needs no training samples; before a training they are loaded already
            samples += tasks.tasks.samples("train")
        tasks.check(samples)
    finally:
        await tasks.close()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _different(reports: list[NodeReport]) -> list[str]:
    first = reports[0]
    return [
        f"{other.name}: {name} {other.versions[name]}, but {first.name} has {first.versions[name]}. Install the same."
        for other in reports[1:]
        for name in COMPARED
        if other.versions[name] != first.versions[name]
    ]
