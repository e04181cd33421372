"""Translates a run's configuration into overrides of verl's configuration.

Written for verl 0.9. This module does not import verl; `compose` has verl's own schema check the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.engines import EngineSettings
from rlfactory_verl.checkpoints import FOLDER
from rlfactory_verl.config import VerlConfig
from rlfactory_verl.constraints import ESTIMATORS, GAE, LOSSES
from rlfactory_verl.cpu.environment import FILE_SYNC, cpu_overrides
from rlfactory_verl.pool import Pool
from rlfactory_verl.vision import shows_images

ENGINE = "(engine)"  # the source of values that make verl do what the local engine does
CPU = "device=cpu"
NO_FLASH = "(no flash-attn)"
PASSED_ON = "verl.overrides"
RAY_CPUS_A_DEVICE, RAY_CPUS_BESIDE = 3, 10  # verl's processes, each of which reserves one of Ray's CPUs

Item = tuple[str, Any, str]  # verl's key, its value, our key


@dataclass(frozen=True, slots=True)
class Override:
    """One changed value of verl's configuration."""

    key: str  # dotted; with a leading + if verl's schema lacks it
    value: str  # in hydra's override syntax
    source: str  # our key, or the reason

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


@dataclass(frozen=True, slots=True)
class Place:
    """The places of a run's files.

    Args:
        model: the folder or hub id of the model to train.
        run: the run's folder.
        sync: a folder of this run alone through which weights are transferred; CPU only.
    """

    model: str
    run: Path
    sync: str = ""


def compile_overrides(
    config: EngineSettings,
    place: Place,
    *,
    held_out: int,
    pool: Pool | None = None,
    flash: bool = False,
    resume: bool = False,
    only_evaluate: bool = False,
) -> list[Override]:
    """All overrides in order. The last one for a key wins, so the user's own come last.

    Args:
        config: completed by the engine's ``prepare``, with this run's device, GPUs and nodes.
        held_out: the number of samples to evaluate on.
        pool: the model that is served for rewards.
        flash: whether flash-attn is installed (CUDA only).
    """
    items: list[Item] = []
    verl = VerlConfig.of(config)
    if config.device == "cpu":
        gpus = (verl.gpus + (pool.gpus if pool else 0)) * verl.nodes
        cpu = cpu_overrides(place.sync, RAY_CPUS_A_DEVICE * gpus + RAY_CPUS_BESIDE, gpus)
        found = [Override(key, value, CPU) for key, value in cpu]
    else:
        found = []
        items += _kernels(flash)
    items += _model(config, place)
    items += _data(config)
    items += _actor(config)
    items += _algorithm(config)
    items += _rollout(config)
    items += _machines(config)
    items += pool.overrides(config) if pool else ()
    items += _trainer(config, place, held_out, resume, only_evaluate)
    found += [Override(key, as_hydra(value), source) for key, value, source in items]
    for text in verl.overrides:
        key, _, value = text.partition("=")
        found.append(Override(key, value, PASSED_ON))
    return found


def as_hydra(value: Any) -> str:
    """A value in hydra's override grammar; texts are always quoted.

    A backslash is an escape only before a quote, and in OmegaConf before an interpolation.
    """
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(as_hydra, value))}]"
    if isinstance(value, (str, Path)):
        text = re.sub(r"(\\*)\$\{", r"\1\1\\${", str(value))
        text = re.sub(r"(\\+)(?='|\Z)", r"\1\1", text).replace("'", "\\'")
        return f"'{text}'"
    return repr(value) if isinstance(value, float) else json.dumps(value)


def _kernels(flash: bool) -> Iterator[Item]:
    """Without flash-attn, an extra package that has to be compiled, training uses padded batches and is slower."""
    if not flash:
        for part in ("actor_rollout_ref", "critic"):
            yield f"+{part}.model.override_config.attn_implementation", "sdpa", NO_FLASH
            yield f"{part}.model.use_remove_padding", False, NO_FLASH


def _model(config: EngineSettings, place: Place) -> Iterator[Item]:
    source, offload = "model", VerlConfig.of(config).offload
    yield "actor_rollout_ref.model.path", place.model, source
    if shows_images(config.chat, config.model):
        yield "actor_rollout_ref.model.external_lib", "rlfactory_verl.positions", ENGINE
        # vLLM fills a model without weights with random numbers, also the mean and deviation of pixels (vLLM 0.28),
        # which are no weights, so the trainer never sends them.
        yield "actor_rollout_ref.rollout.load_format", "auto", ENGINE
    yield (
        "actor_rollout_ref.model.enable_gradient_checkpointing",
        config.train.gradient_checkpointing,
        ("train.gradient_checkpointing"),
    )
    if config.train.lora is not None:
        lora = config.train.lora
        targets = [name.strip() for name in lora.targets.split(",")]
        yield "actor_rollout_ref.model.lora_rank", lora.rank, "train.lora.rank"
        yield "actor_rollout_ref.model.lora_alpha", lora.alpha, "train.lora.alpha"
        yield (
            "actor_rollout_ref.model.target_modules",
            targets[0] if targets == ["all-linear"] else targets,
            "train.lora.targets",
        )
        # vLLM gets the merged weights, as without adapters, and needs no kernels for them.
        yield "actor_rollout_ref.model.lora.merge", True, ENGINE
    yield "actor_rollout_ref.rollout.dtype", "float32" if config.dtype == "float32" else "bfloat16", "dtype"
    yield from _fsdp("actor_rollout_ref.actor.fsdp_config", config)
    yield from _fsdp("actor_rollout_ref.ref.fsdp_config", config)
    yield "actor_rollout_ref.actor.fsdp_config.optimizer_offload", offload, "verl.offload"
    if config.train.advantage == GAE:
        yield "critic.model.path", place.model, source
        yield (
            "critic.model.enable_gradient_checkpointing",
            config.train.gradient_checkpointing,
            ("train.gradient_checkpointing"),
        )
        yield from _fsdp("critic.fsdp", config)
        yield "critic.fsdp.optimizer_offload", offload, "verl.offload"


def _fsdp(place: str, config: EngineSettings) -> Iterator[Item]:
    """Weights are stored in 32 bits (verl's default); ``dtype`` is the type of the computation."""
    if config.dtype == "float32":
        for part in ("param", "reduce", "buffer"):
            yield f"+{place}.mixed_precision.{part}_dtype", "fp32", "dtype"
    yield f"{place}.param_offload", VerlConfig.of(config).offload, "verl.offload"


def _data(config: EngineSettings) -> Iterator[Item]:
    yield "data.custom_cls.path", "pkg://rlfactory_verl.dataset", ENGINE
    yield "data.custom_cls.name", "TaskDataset", ENGINE
    yield "data.train_files", "train", "data.train"
    yield "data.val_files", "eval", "data.eval"
    yield "data.train_batch_size", config.train.prompts_per_step, "train.prompts_per_step"
    # Our limit applies to prompt and response together; verl cuts neither of them before it.
    yield "data.max_prompt_length", config.rollout.max_tokens, "rollout.max_tokens"
    yield "data.max_response_length", config.rollout.max_tokens, "rollout.max_tokens"
    yield "data.shuffle", False, ENGINE  # the data set already has the run's order
    yield "data.seed", config.seed, "seed"
    yield "data.dataloader_num_workers", 0, ENGINE  # samples are made in memory, not read from disk


def _actor(config: EngineSettings) -> Iterator[Item]:
    train, actor = config.train, "actor_rollout_ref.actor"
    yield f"{actor}.ppo_mini_batch_size", train.prompts_per_step // train.updates_per_step, "train.updates_per_step"
    yield f"{actor}.use_dynamic_bsz", True, "train.microbatch_tokens"
    yield f"{actor}.ppo_max_token_len_per_gpu", train.microbatch_tokens, "train.microbatch_tokens"
    yield f"{actor}.optim.lr", train.lr, "train.lr"
    yield f"{actor}.optim.weight_decay", train.weight_decay, "train.weight_decay"
    yield f"{actor}.optim.lr_warmup_steps", train.warmup_steps, "train.warmup_steps"
    yield f"{actor}.optim.lr_scheduler_type", train.schedule, "train.schedule"
    yield f"{actor}.optim.clip_grad", train.max_grad_norm, "train.max_grad_norm"
    yield f"{actor}.grad_clip", train.max_grad_norm, "train.max_grad_norm"
    yield f"{actor}.clip_ratio", train.clip_low, "train.clip_low"
    yield f"{actor}.clip_ratio_low", train.clip_low, "train.clip_low"
    yield f"{actor}.clip_ratio_high", train.clip_high, "train.clip_high"
    yield f"{actor}.clip_ratio_c", 1e6, ENGINE  # no second clip of negative advantages
    yield f"{actor}.policy_loss.loss_mode", LOSSES.get(train.loss, train.loss), "train.loss"
    yield f"{actor}.use_kl_loss", train.kl > 0, "train.kl"
    yield f"{actor}.kl_loss_coef", train.kl, "train.kl"
    yield f"{actor}.data_loader_seed", config.seed, "seed"
    yield f"{actor}.shuffle", True, ENGINE  # sequences are distributed over a step's updates at random
    yield f"{actor}.fsdp_config.seed", config.seed, "seed"
    # Also as a Hugging Face folder: `checkpoints/step-N` links to it.
    yield f"{actor}.checkpoint.save_contents", ["model", "optimizer", "extra", "hf_model"], ENGINE


def _algorithm(config: EngineSettings) -> Iterator[Item]:
    train = config.train
    yield "algorithm.adv_estimator", ESTIMATORS.get(train.advantage, train.advantage), "train.advantage"
    yield "algorithm.norm_adv_by_std_in_grpo", train.advantage != "dr_grpo", "train.advantage"
    yield "algorithm.use_kl_in_reward", False, ENGINE
    if train.refill:
        yield "algorithm.filter_groups.enable", True, "train.refill"
        yield "algorithm.filter_groups.metric", "reward", "train.refill"
    if VerlConfig.of(config).mode != "sync" and train.truncate_weight is not None:
        yield "algorithm.rollout_correction.rollout_is", "token", "train.truncate_weight"
        yield "algorithm.rollout_correction.rollout_is_threshold", train.truncate_weight, "train.truncate_weight"
    if train.advantage == GAE:
        yield "algorithm.gamma", train.gamma, "train.gamma"
        yield "algorithm.lam", train.lam, "train.lam"
        yield "critic.optim.lr", train.critic_lr, "train.critic_lr"
        yield "critic.optim.clip_grad", train.max_grad_norm, "train.max_grad_norm"
        yield "critic.ppo_max_token_len_per_gpu", train.microbatch_tokens, "train.microbatch_tokens"
        yield "critic.data_loader_seed", config.seed, "seed"


def _rollout(config: EngineSettings) -> Iterator[Item]:
    limits, rollout = config.rollout, "actor_rollout_ref.rollout"
    yield f"{rollout}.name", "vllm", ENGINE
    yield f"{rollout}.n", config.train.group_size, "train.group_size"
    yield f"{rollout}.temperature", limits.temperature, "rollout.temperature"
    yield f"{rollout}.top_p", limits.top_p, "rollout.top_p"
    yield f"{rollout}.seed", config.seed, "seed"
    yield f"{rollout}.max_model_len", limits.max_tokens, "rollout.max_tokens"
    yield f"{rollout}.max_num_batched_tokens", max(8192, limits.max_tokens), "rollout.max_tokens"
    yield f"{rollout}.max_num_seqs", limits.slots, "rollout.slots"
    yield f"{rollout}.calculate_log_probs", True, ENGINE
    yield f"{rollout}.agent.default_agent_loop", "rlfactory", ENGINE
    yield f"{rollout}.agent.agent_loop_config_path", str(Path(__file__).with_name("agent_loop.yaml")), ENGINE
    yield f"{rollout}.agent.num_workers", VerlConfig.of(config).agent_workers, "verl.agent_workers"


def _machines(config: EngineSettings) -> Iterator[Item]:
    verl, rollout = VerlConfig.of(config), "actor_rollout_ref.rollout"
    separate = verl.mode == "separate_async"
    training = verl.gpus - verl.rollout_gpus if separate else verl.gpus
    yield "trainer.n_gpus_per_node", training, "verl.gpus"
    yield "trainer.nnodes", verl.nodes, "verl.nodes"
    yield "trainer.v1.trainer_mode", verl.mode, "verl.mode"
    if staleness := config.train.staleness:
        sampler = "trainer.v1.sampler"
        yield f"trainer.v1.{verl.mode}.num_warmup_batches", staleness, "train.staleness"
        yield f"{sampler}.max_off_policy_threshold", staleness + 1, "train.staleness"  # versions that a prompt spans
        yield f"{sampler}.max_off_policy_strategy", "wait", "train.staleness"
    if separate:
        yield "actor_rollout_ref.hybrid_engine", False, "verl.mode"  # the training GPUs do not sample
        yield f"{rollout}.n_gpus_per_node", verl.rollout_gpus, "verl.rollout_gpus"
        yield f"{rollout}.nnodes", verl.nodes, "verl.nodes"
        yield "trainer.v1.separate_async.parameter_sync_step", config.train.updates_per_step, "train.updates_per_step"
        backend = FILE_SYNC if config.device == "cpu" else "nccl"
        yield f"{rollout}.checkpoint_engine.backend", backend, "verl.mode"
    if config.device != "cpu":
        yield f"{rollout}.tensor_model_parallel_size", verl.tensor_parallel, "verl.tensor_parallel"
        yield f"{rollout}.gpu_memory_utilization", verl.memory_share, "verl.memory_share"


def _trainer(config: EngineSettings, place: Place, held_out: int, resume: bool, only_evaluate: bool) -> Iterator[Item]:
    steps = config.train.steps
    yield "trainer.total_training_steps", steps, "train.steps"
    yield "trainer.total_epochs", 1_000_000, ENGINE  # only the number of steps ends a run
    yield "trainer.project_name", "rlfactory", ENGINE
    yield "trainer.experiment_name", place.run.name, "out"
    yield "trainer.logger", ["console"], ENGINE  # the run's own loggers get the metrics too
    yield "trainer.default_local_dir", str(place.run.resolve() / "checkpoints" / FOLDER), "out"
    yield "trainer.save_freq", config.checkpoint.every or steps, "checkpoint.every"
    yield "trainer.test_freq", (config.eval.every or steps) if held_out else -1, "eval.every"
    if not held_out:
        yield "data.val_batch_size", 1, ENGINE  # by default it is the number of samples, and 0 is refused
    yield "trainer.val_before_train", bool(held_out) and not resume, ENGINE
    yield "trainer.val_only", only_evaluate, ENGINE
    yield "trainer.resume_mode", "auto" if resume else "disable", ENGINE


def changed_by(overrides: Sequence[Override]) -> dict[str, Override]:
    """The deciding override for each of verl's keys."""
    return {override.key.lstrip("+"): override for override in overrides}
