"""Starts Ray or joins a cluster, runs verl's trainer there, and removes everything afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.engines import EngineRun
from rlfactory_core.errors import RlfactoryError, RunStopped, TrainingError, UsageError
from rlfactory_core.reporting.progress import Progress
from rlfactory_verl.cluster.janitor import Janitor
from rlfactory_verl.config import VerlConfig
from rlfactory_verl.events import EVENTS, EventReader, StopFile
from rlfactory_verl.nodes import check_nodes
from rlfactory_verl.pool import Pool
from rlfactory_verl.run_payload import Payload

POLL_S = 0.3
STARTS = 3  # attempts: Ray's raylet gives its agent 15 s (ray-project/ray#65983), too few on a busy machine
LAST_LINES = 30  # of a traceback in the error message


@dataclass(frozen=True, slots=True)
class Job:
    """A run of verl.

    Args:
        config: verl's composed configuration, which contains the payload.
        environment: variables of every process of the run.
        resume_step: the checkpoint's step; None for a new run.
        folders: belong to this run alone and are removed at its end.
        pool: the model that is served for rewards.
    """

    config: Any
    payload: Payload
    environment: Mapping[str, str]
    resume_step: int | None = None
    folders: tuple[Path, ...] = ()
    pool: Pool | None = None


def run_job(job: Job, run: EngineRun) -> dict[str, Any]:
    """Returns ``summary.json``.

    Raises:
        RunStopped: the user, or a part of the run, requested it.
        TrainingError: verl, vLLM or Ray failed; the logs of all processes are in the run's ``logs/``.
    """
    import ray

    events, stop = run.folder.path / EVENTS, StopFile(run.folder.path)
    events.unlink(missing_ok=True)
    stop.clear()
    with _ray(job, run) as logs:
        try:
            if not VerlConfig.of(run.config).only_this_machine:  # this one was checked with the prompts
                check_nodes(job.payload, run.progress, job.pool)
            return _follow(job, run, EventReader(events), stop)
        except ray.exceptions.RayError as error:  # also our own errors, if raised in another process
            cause = getattr(error, "cause", None)
            if isinstance(cause, (RunStopped, UsageError)):
                raise cause from None
            raise _explained(error, cause, _keep_logs(logs, run.folder.logs)) from error
        except TrainingError:  # raised by `_follow`
            _keep_logs(logs, run.folder.logs)
            raise
        finally:
            events.unlink(missing_ok=True)
            stop.clear()


def _follow(job: Job, run: EngineRun, reader: EventReader, stop: StopFile) -> dict[str, Any]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from rlfactory_verl.task_runner import TaskRunner

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    runner: Any = ray.remote(num_cpus=1)(TaskRunner).options(scheduling_strategy=here).remote()
    result = runner.run.remote(job.config, job.resume_step)
    started = time.monotonic()
    while True:
        done, _ = ray.wait([result], timeout=POLL_S)
        reader.replay(run.progress)
        if done:
            return dict(ray.get(result))
        run.stop.armed = "train" in reader.stages
        if run.stop.requested and not stop.requested:
            stop.ask(run.stop.reason)
        limit = VerlConfig.of(run.config).start_deadline_s
        if len(reader.stages) < 2 and time.monotonic() - started > limit:
            raise TrainingError(
                f"verl has not begun within verl.start_deadline_s={limit:g} seconds. Look at the processes' logs in "
                f"{run.folder.logs}; a large model on slow disks may need a longer deadline."
            )


@contextmanager
def _ray(job: Job, run: EngineRun) -> Iterator[Path | None]:
    """A new Ray cluster with its files in a temporary folder, or the user's cluster."""
    import ray
    from omegaconf import OmegaConf
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    asked = OmegaConf.to_container(job.config.ray_kwargs.ray_init, resolve=True)
    assert isinstance(asked, dict)
    own_env = dict(asked.pop("runtime_env", None) or {})
    runtime_env = {**get_ppo_ray_runtime_env(job.config), **{k: v for k, v in own_env.items() if v is not None}}
    variables = {**runtime_env.get("env_vars", {}), **job.environment, "TRANSFER_QUEUE_ENABLE": "1"}
    runtime_env["env_vars"] = {name: value for name, value in variables.items() if value is not None}
    options = {str(key): value for key, value in asked.items() if value is not None}
    debug = os.environ.get("RLFACTORY_DEBUG", "0") not in ("", "0")
    options |= {"runtime_env": runtime_env, "log_to_driver": debug, "logging_level": "ERROR"}
    address = VerlConfig.of(run.config).ray_address
    folder = None if address else Path(tempfile.mkdtemp(prefix="rlf-ray-"))  # short: sockets' paths are limited
    if folder is not None:  # vLLM and ZeroMQ leave sockets wherever temporary files go
        runtime_env["env_vars"] |= {"TMPDIR": str(folder), "VLLM_RPC_BASE_PATH": str(folder)}
    if folder is None:
        options = {k: v for k, v in options.items() if k in ("runtime_env", "log_to_driver", "logging_level")}
        options["address"] = address
    else:
        options |= {"address": "local", "_temp_dir": str(folder)}
    janitor = Janitor([folder, *job.folders]) if folder else None
    try:
        run.progress.stage("start Ray" if folder else f"join the Ray cluster at {address}")
        if janitor is None:
            _join(options)
        else:
            _start(options, janitor, run.progress)
        yield folder
    finally:
        with suppress(Exception):  # the processes are ended below in any case
            ray.shutdown()
        if janitor is not None:
            janitor.finish()
        for left in job.folders:
            shutil.rmtree(left, ignore_errors=True)


def _join(options: Mapping[str, Any]) -> None:
    import ray

    try:
        ray.init(**options)
    except ConnectionError as error:
        raise UsageError(
            f"No Ray cluster answers at verl.ray_address={options['address']} ({error}). Start one with "
            "`ray start --head`, or leave the address out: then the run starts a Ray of its own."
        ) from error


def _start(options: Mapping[str, Any], janitor: Janitor, progress: Progress) -> None:
    import ray

    for number in range(1, STARTS + 1):
        try:
            ray.init(**options)
            return
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            if number == STARTS:
                raise TrainingError(
                    f"Ray did not start, {STARTS} times over: its own processes took longer than the seconds that it "
                    "gives them. Is the machine busy with something else, or its disk slow? Try again when it is not."
                ) from error
        progress.say(f"Ray took too long to start; trying again ({number} of {STARTS - 1})")
        janitor.end_processes()


def _keep_logs(session: Path | None, target: Path) -> Path | None:
    """Copy the output of the processes before Ray's folder is deleted."""
    if session is None:
        return None
    logs = [path for path in session.glob("session_2*/logs/worker-*") if path.stat().st_size]
    target.mkdir(exist_ok=True)
    for path in logs:
        shutil.copy(path, target / path.name)
    return target


def _explained(error: BaseException, cause: object, logs: Path | None) -> RlfactoryError:
    """Our own errors keep their message; other errors get the end of their traceback."""
    where = f" The processes' logs are in {logs}." if logs else ""
    if isinstance(cause, RlfactoryError):
        return TrainingError(f"{cause}{where}")
    text = "\n".join(str(error).strip().splitlines()[-LAST_LINES:])
    return TrainingError(f"verl failed.{where} The last whole checkpoint, if any, is kept.\n{text}")
