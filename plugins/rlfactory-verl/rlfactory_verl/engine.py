"""The verl engine: completes and checks a configuration, trains, evaluates and explains."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

from rlfactory_core.config import RunConfig
from rlfactory_core.engines import EngineRun, EngineSettings, MemoryPhase, ModelSize
from rlfactory_core.errors import MissingExtraError, ModelError, UsageError
from rlfactory_core.plugins import is_file
from rlfactory_core.tasks import Tasks
from rlfactory_core.utils.cpu import compute_threads
from rlfactory_verl.checkpoints import newest_whole
from rlfactory_verl.compose import compose, explain
from rlfactory_verl.config import VerlConfig
from rlfactory_verl.constraints import ESTIMATORS, check_rules
from rlfactory_verl.cpu.environment import HEAD_SIZES, cpu_environment
from rlfactory_verl.overrides import Place, compile_overrides
from rlfactory_verl.pool import Pool, check_gpus
from rlfactory_verl.rollout_request import FIELD
from rlfactory_verl.run_payload import Payload
from rlfactory_verl.vision import check_images

KV_CACHE_GIB = 1.0  # for each vLLM server on the CPU
MOST_AGENT_WORKERS = 8
Method = TypeVar("Method", bound=Callable[..., Any])


def _quietly(method: Method) -> Method:
    """verl's import warns of every backend that is not installed; hide that."""

    @wraps(method)
    def quiet(*args: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return method(*args, **options)

    return cast(Method, quiet)


class VerlEngine:
    """Trains with verl and vLLM on Ray."""

    serves_pools = True
    refuses_changed_plugins = True  # on a resume: not all machines of a cluster can be checked for changes at once

    def prepare(self, config: RunConfig) -> RunConfig:
        device = _device(config.device)
        _check_installed(device)
        verl = VerlConfig.of(config)
        # Only the asynchronous modes sample with older weights.
        mode = "colocate_async" if verl.mode == "sync" and config.train.staleness else verl.mode
        separate = mode == "separate_async"
        # On the CPU a GPU is a process: one that trains and one that samples.
        gpus = verl.gpus or (2 if device == "cpu" and separate else _count_gpus(device))
        completed_verl = {
            **verl.model_dump(mode="json"),
            "mode": mode,
            "gpus": gpus,
            "rollout_gpus": verl.rollout_gpus or (gpus // 2 if separate else 0),
            "agent_workers": verl.agent_workers or min(gpus * verl.nodes, MOST_AGENT_WORKERS),
        }
        tiny = config.model is None and config.dtype == "auto"
        dtype = "float32" if device == "cpu" or tiny else "bfloat16"
        update: dict[str, Any] = {"device": device}
        update["plugins"] = {**config.plugins, config.engine_name: completed_verl}
        update["dtype"] = dtype if config.dtype == "auto" else config.dtype
        if config.model is not None and Path(config.model).expanduser().is_dir():
            update["model"] = str(Path(config.model).expanduser().resolve())
        completed = config.model_copy(update=update)
        for plugin in filter(is_file, config.task_plugins):
            completed = completed.with_plugin(plugin, str(Path(plugin).expanduser().resolve()))
        check_rules(completed)
        return completed

    def train(self, run: EngineRun) -> dict[str, Any]:
        resume_step = newest_whole(run.folder.checkpoints, run.progress.say) if run.resume else None
        if resume_step is not None and resume_step > run.config.train.steps:
            raise UsageError(
                f"The run has done {resume_step} steps, more than train.steps={run.config.train.steps}. "
                f"Give more, for example: --steps {2 * resume_step}"
            )
        return self._run(run, resume_step)

    def evaluate(self, run: EngineRun) -> dict[str, Any]:
        summary = self._run(run, None, only_evaluate=True)
        return dict(summary["eval"]["after"])

    def memory(self, config: RunConfig, size: ModelSize, limit: int | None) -> Sequence[MemoryPhase]:
        """Of each GPU; see `verl.memory`."""
        from rlfactory_verl.memory import memory

        return memory(config, size, limit)

    @_quietly
    def explain(self, config: RunConfig, tasks: Tasks) -> str:
        """verl's whole configuration, and our key for each changed value; starts nothing."""
        os.environ.update(self._environment(config))
        model = config.model or "the plugin's own tiny model"
        place = Place(model, config.out or Path("runs/TIME-PLUGIN"), "SYNC")
        held_out = len(tasks.held_out(required=False))
        pool = Pool.of(tasks.pools, config)
        overrides = compile_overrides(config, place, held_out=held_out, pool=pool, flash=_has_flash())
        return explain(compose(overrides, with_model=False), overrides)

    @_quietly
    def _run(self, run: EngineRun, resume_step: int | None, *, only_evaluate: bool = False) -> dict[str, Any]:
        from omegaconf import open_dict

        config, tasks = run.config, run.tasks
        environment = self._environment(config)
        os.environ.update(environment)  # before verl is imported
        _check_scorers(tasks)
        _check_estimator(config.train.advantage, tasks)
        pool = Pool.of(tasks.pools, config)
        _check_machine(config, pool)
        train = [] if only_evaluate else tasks.samples("train")
        held_out = tasks.held_out(required=only_evaluate)
        from rlfactory_core.engines import prebuilt_model
        from rlfactory_verl.cluster.launch import Job, run_job
        from rlfactory_verl.prompts import checked_prompts

        model = config.model or str(prebuilt_model(run))
        check_images(config.chat, model, run.make_chat)
        if config.device == "cpu":
            for each in (model, pool.model) if pool else (model,):
                _check_head_size(Path(each))
        prompts = checked_prompts(run, model, train, held_out)
        sync = _sync_folder(config.device)
        place = Place(model, run.folder.path, str(sync or ""))
        overrides = compile_overrides(
            config,
            place,
            held_out=len(prompts.held_out),
            pool=pool,
            flash=_has_flash(),
            resume=resume_step is not None,
            only_evaluate=only_evaluate,
        )
        composed = compose(overrides)
        payload = Payload.make(_whole(run), run.fingerprints, run.folder.path, prompts.left_out)
        with open_dict(composed):
            composed.data[FIELD] = payload.to_text()
        return run_job(Job(composed, payload, environment, resume_step, (sync,) if sync else (), pool), run)

    def _environment(self, config: EngineSettings) -> dict[str, str]:
        common = {"VERL_LOGGING_LEVEL": "WARN"}  # also avoids a logging bug of verl 0.9.1 in separate_async
        if config.device != "cpu":
            return common
        return {**common, **cpu_environment(compute_threads(), KV_CACHE_GIB)}


def _device(name: str) -> str:
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device {name}: verl takes cpu, cuda or auto; which GPUs it uses follows from verl.gpus.")
    if name != "auto":
        return name
    return "cuda" if shutil.which("nvidia-smi") else "cpu"


def _count_gpus(device: str) -> int:
    if device == "cpu":
        return 1
    import torch

    found = torch.cuda.device_count()
    if not found:
        raise UsageError("--device cuda, but torch sees no GPU here. Look closer: rlfactory doctor --engine verl")
    return int(found)


def _check_installed(device: str) -> None:
    missing = [name for name in ("verl", "ray", "transfer_queue", "vllm", "torch") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"--engine verl needs {', '.join(missing)}, which cannot be imported here. "
            f"Install all that it needs: rlfactory doctor --engine verl --device {device} --install"
        )


def _check_head_size(model: Path) -> None:
    """Refuse a head size with which vLLM's engine would fail at the first prompt."""
    if not (model / "config.json").is_file():  # a hub id: not downloaded yet
        return
    shape = json.loads((model / "config.json").read_text(encoding="utf-8"))
    shape = shape.get("text_config", shape)  # of a model that sees images
    heads = shape.get("num_attention_heads") or 1
    size = shape.get("head_dim") or shape.get("hidden_size", 0) // heads
    if size and size not in HEAD_SIZES:
        raise ModelError(
            f"The attention heads of {model} have {size} dimensions; vLLM's CPU build has kernels for "
            f"{', '.join(map(str, HEAD_SIZES))}. Use another model, a GPU, or --engine local."
        )


def _has_flash() -> bool:
    return find_spec("flash_attn") is not None


def _whole(run: EngineRun) -> RunConfig:
    """The whole configuration, from which other processes make the run again."""
    assert isinstance(run.config, RunConfig)
    return run.config


def _check_scorers(tasks: Tasks) -> None:
    for name in tasks.scorers.layer.group_scorers:
        raise UsageError(
            f"The reward {name!r} compares the attempts of a group, and verl scores each attempt when it ends. "
            "Leave it out of rewards, or train with --engine local."
        )


def _check_estimator(advantage: str, tasks: Tasks) -> None:
    """Refuse several rows with an estimator that would count each row of a trajectory as an attempt."""
    cause = next(filter(None, (each.makes_rows for each in tasks.by_name.values())), "")
    if cause and ESTIMATORS.get(advantage, advantage) != "grpo":
        raise UsageError(
            f"train.advantage={advantage}: with {cause} an attempt has several sequences. verl gives them one "
            "advantage with grpo and dr_grpo only."
        )


def _check_machine(config: EngineSettings, pool: Pool | None) -> None:
    """Check this machine's GPUs; on a cluster `check_nodes` does so."""
    if config.device != "cpu" and VerlConfig.of(config).only_this_machine:
        check_gpus(config, pool, _count_gpus(config.device), "This machine")


def _sync_folder(device: str) -> Path | None:
    """A folder for weight transfers, CPU only: in memory if the machine has such a file system. The run removes it."""
    if device != "cpu":
        return None
    memory = Path("/dev/shm")  # noqa: S108 - Linux's own
    return Path(tempfile.mkdtemp(prefix="rlf-sync-", dir=memory if memory.is_dir() else None))
