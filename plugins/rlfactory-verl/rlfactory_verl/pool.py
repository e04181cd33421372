"""A reward's model in verl's own reward-model pool: vLLM servers on GPUs that the policy does not use.

verl starts the servers and takes their GPUs from Ray. rlfactory does the scoring, so verl's reward function is never
called. Scorers call the servers directly: verl's router in front of them answers every failure with a plain 500, which
hides what a client needs to know (a refused request, a busy server, which replica is gone).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.engines import EngineSettings
from rlfactory_core.errors import ConfigError
from rlfactory_core.protocols import PoolRequest
from rlfactory_core.tasks import ServedModel
from rlfactory_verl.config import VerlConfig

POOL_FIELD = "rlfactory_pool"  # of verl's ``data`` section: the servers' addresses, once they run
MEMORY_SHARE = 0.9  # of a GPU's memory, which the servers have to themselves
MOST_REPLY_TOKENS = 1_000_000  # in effect none: each request has its own limit


@dataclass(frozen=True, slots=True)
class Pool:
    """The model that verl serves for the rewards of a run.

    Args:
        rewards: the names of the rewards that use it.
        model: a folder's absolute path, or a hub id.
        gpus: on each machine.
        tensor_parallel: GPUs that one server spans.
    """

    rewards: tuple[str, ...]
    model: str
    gpus: int
    tensor_parallel: int = 1

    @classmethod
    def of(cls, wanted: Mapping[str, PoolRequest], config: EngineSettings) -> Pool | None:
        """The one pool of all rewards that request one; None if none does.

        Raises:
            ConfigError: they request different pools, or an impossible one.
        """
        if not wanted:
            return None
        requests = list(dict.fromkeys(wanted.values()))
        if len(requests) > 1:
            requested = "; ".join(
                f"rewards.{name}: model={item.model}, gpus={item.gpus}, tensor_parallel={item.tensor_parallel}"
                for name, item in wanted.items()
            )
            raise ConfigError(
                f"verl has one pool for the models of rewards, and they ask for {len(requests)} different ones "
                f"({requested}). Give them all the same model, gpus and tensor_parallel, or put all but one of them "
                "behind an endpoint (placement=endpoint)."
            )
        (request,) = requests
        pool = cls(tuple(wanted), _model(request.model), request.gpus, request.tensor_parallel)
        problems = list(pool._problems(config))
        if problems:
            raise ConfigError("\n".join(problems))
        return pool

    @property
    def source(self) -> str:
        """The keys of our configuration that request it."""
        return ", ".join(f"rewards.{name}" for name in self.rewards)

    def _problems(self, config: EngineSettings) -> Iterator[str]:
        gpus, span, nodes = self.gpus, self.tensor_parallel, VerlConfig.of(config).nodes
        if config.device == "cpu" and span > 1:
            yield f"{self.source}: tensor_parallel={span}, but on the CPU a server is one process. Use 1."
        elif gpus % span and (span % gpus or gpus * nodes % span):
            yield (
                f"{self.source}: gpus={gpus} on each of {nodes} machines cannot be cut into servers of "
                f"tensor_parallel={span} GPUs. Choose gpus as a multiple of tensor_parallel."
            )
        path = Path(self.model)
        if path.is_absolute() and not (path / "config.json").is_file():
            yield f"{self.source}: {path} is no model's folder (it has no config.json). Give a folder, or a hub id."

    def overrides(self, config: EngineSettings) -> Iterator[tuple[str, Any, str]]:
        """verl's keys, their values, and our key."""
        place, source = "reward.reward_model", self.source
        yield f"{place}.enable", True, source
        yield f"{place}.enable_resource_pool", True, source
        yield f"{place}.model_path", self.model, source
        yield f"{place}.n_gpus_per_node", self.gpus, source
        yield f"{place}.nnodes", VerlConfig.of(config).nodes, "verl.nodes"
        rollout = f"{place}.rollout"
        yield f"{rollout}.name", "vllm", source
        yield f"{rollout}.dtype", "auto", source  # the model's own type; it may be quantised
        yield f"{rollout}.tensor_model_parallel_size", self.tensor_parallel, source
        yield f"{rollout}.response_length", MOST_REPLY_TOKENS, source
        # Always awake: verl's pool would sleep until its own reward function is called.
        yield f"{rollout}.free_cache_engine", False, source
        yield f"+{rollout}.enable_sleep_mode", False, source
        if config.device != "cpu":
            yield f"{rollout}.gpu_memory_utilization", MEMORY_SHARE, source


@dataclass(frozen=True, slots=True)
class Served(ServedModel):
    """A running pool."""

    @classmethod
    def by(cls, trainer: Any) -> Served | None:
        """The pool of verl's started trainer; None if it has none."""
        manager = trainer.reward_loop_manager.reward_model_manager
        if manager is None:
            return None
        urls = tuple(f"http://{address}/v1" for address in manager.server_addresses)
        return cls(urls, str(manager.config.model_path))

    def to_text(self) -> str:
        return json.dumps({"urls": self.urls, "model": self.model})

    @classmethod
    def from_text(cls, text: str) -> Served:
        """The inverse of `to_text`."""
        data = json.loads(text)
        return cls(tuple(data["urls"]), data["model"])


def check_gpus(config: EngineSettings, pool: Pool | None, found: int, where: str) -> None:
    """Refuse a run that needs more GPUs than there are.

    Args:
        found: the number of GPUs on all machines.
        where: the machine or cluster that has them, for the message.

    Raises:
        ConfigError: the message has the numbers.
    """
    verl = VerlConfig.of(config)
    policy = verl.gpus * verl.nodes
    theirs = pool.gpus * verl.nodes if pool else 0
    if policy + theirs <= found:
        return
    parts = [f"{policy} for the policy (verl.gpus={verl.gpus} x verl.nodes={verl.nodes})"]
    remedy = "Lower verl.gpus."
    if pool is not None:
        parts.append(f"{theirs} for {pool.source} (gpus={pool.gpus} x verl.nodes={verl.nodes})")
        left = (found - theirs) // verl.nodes
        lower = f"verl.gpus={left}" if left > 0 else "fewer gpus for the reward"
        remedy = f"The two share no GPU. Use {lower}, or an endpoint on another machine (placement=endpoint)."
    raise ConfigError(f"The run needs {policy + theirs} GPUs: {', '.join(parts)}. {where} has {found}. {remedy}")


def _model(name: str) -> str:
    """A folder's path as every process finds it; anything else is a hub id."""
    path = Path(name).expanduser()
    return str(path.resolve()) if path.is_dir() or name.startswith(("/", ".", "~")) else name
