"""The settings of a CPU run: complete, well formed, and made without heavy imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rlfactory_verl.cpu.environment import FILE_SYNC, cpu_environment, cpu_overrides


def test_the_environment_is_a_map_of_texts() -> None:
    environment = cpu_environment(threads=2, kv_cache_gib=0.3)
    assert all(isinstance(value, str) for value in environment.values())
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "1"  # whole GiB, and 0 would mean half of the memory


def test_each_key_is_overridden_once() -> None:
    keys = [key.lstrip("+") for key, _ in cpu_overrides("/dev/shm/run", num_cpus=16)]
    assert len(keys) == len(set(keys))


def test_the_arguments_are_in_the_result() -> None:
    overrides = dict(cpu_overrides("/dev/shm/run", num_cpus=12, num_gpus=2))
    assert overrides["ray_kwargs.ray_init.num_cpus"] == "12"
    assert overrides["+ray_kwargs.ray_init.num_gpus"] == "2"
    folder = f"+actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs.{FILE_SYNC}.folder"
    assert overrides[folder] == "/dev/shm/run"


def test_the_named_modules_exist() -> None:
    overrides = dict(cpu_overrides("/dev/shm/run", num_cpus=16))
    worker, _, _ = overrides["+actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls"].rpartition(".")
    named = [
        cpu_environment(2, 1)["VERL_USE_EXTERNAL_MODULES"],
        overrides["actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module"],
        worker,
    ]
    folder = Path(sys.modules[cpu_environment.__module__].__file__ or "").parent
    for module in named:
        package, _, name = module.rpartition(".")
        assert package == "rlfactory_verl.cpu"
        assert (folder / f"{name}.py").exists()


def test_verls_schema_has_the_keys() -> None:
    verl, hydra = pytest.importorskip("verl"), pytest.importorskip("hydra")
    overrides = cpu_overrides("/dev/shm/run", num_cpus=16)
    with hydra.initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        plain = [f"{key}={value}" for key, value in overrides if not key.startswith("+")]
        hydra.compose("ppo_trainer", overrides=plain)  # refuses keys that the schema lacks
        config = hydra.compose("ppo_trainer", overrides=[f"{key}={value}" for key, value in overrides])
    assert config.actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs[FILE_SYNC].folder == "/dev/shm/run"
    assert config.critic.model.override_config.attn_implementation == "sdpa"


def test_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, rlfactory_verl.cpu.environment;"
        "print({'torch', 'ray', 'verl', 'vllm', 'transformers'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
