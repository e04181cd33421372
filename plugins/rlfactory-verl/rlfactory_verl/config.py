"""The keys of a run's configuration that only this engine has."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlfactory_core.settings import EngineSection, Natural, Positive

Seconds = Annotated[float, Field(gt=0.0)]


class VerlConfig(EngineSection):
    """Machines, vLLM, and how training and sampling share the GPUs."""

    options = ("gpus", "nodes", "ray_address")
    after_dashes = "overrides"

    mode: Literal["sync", "colocate_async", "separate_async"] = "sync"
    """How training and sampling share the GPUs; see the documentation of the engine."""
    gpus: Natural = 0
    """GPUs of each machine; 0: as many as the driver's machine has."""
    nodes: Positive = 1
    """Machines."""
    rollout_gpus: Natural = 0
    """For separate_async: how many GPUs of each machine only sample; 0: half of them."""
    ray_address: str | None = None
    """Address of a running Ray cluster, or auto; none: a cluster is started for this run."""
    tensor_parallel: Positive = 1
    """GPUs that one vLLM server spans."""
    memory_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """Share of a GPU's memory that vLLM gets."""
    offload: bool = False
    """Weights and optimizer state wait in the machine's memory while the GPU samples."""
    agent_workers: Natural = 0
    """Processes that play trajectories; 0: one for each GPU, at most 8."""
    sample_deadline_s: Seconds = 600.0
    """For sampling one turn."""
    trajectory_deadline_s: Seconds = 3600.0
    """For a whole trajectory, with opening the task."""
    start_deadline_s: Seconds = 1800.0
    """From Ray's start to the first evaluation or step."""
    overrides: tuple[str, ...] = ()
    """Keys of verl's own configuration, such as actor_rollout_ref.actor.optim.lr=1e-6."""

    @property
    def only_this_machine(self) -> bool:
        """Whether the run starts a Ray of its own, on the driver's machine alone."""
        return not self.ray_address and self.nodes == 1
