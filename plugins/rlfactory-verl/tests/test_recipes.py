"""The recipes as verl's own configuration, composed and validated by verl; no GPU is needed for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlfactory_core.config import RunConfig
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.runner import read, resolve
from rlfactory_core.runner.resolving import load_recipe

pytest.importorskip("verl")
pytest.importorskip("rlfactory_search")

from rlfactory_verl.compose import compose, explain
from rlfactory_verl.config import VerlConfig
from rlfactory_verl.overrides import Place, compile_overrides

from rlfactory_core.errors import ConfigError

pytestmark = pytest.mark.slow

RECIPES = [item.name for item in Registry().load("search").registrations if item.kind == "recipe"]
PLACE = Place("Qwen/Qwen3-4B", Path("runs/recipe"))
IN_SEQUENCES = (
    "actor_rollout_ref.actor.use_dynamic_bsz=false",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
)


def overrides(*keys: str) -> str:
    """As the command line takes them after ``--``."""
    return f"verl.overrides=[{','.join(keys)}]"


def resolved(recipe: str, *given: str) -> RunConfig:
    """As `rlfactory run --recipe` has it."""
    registry = Registry()
    return resolve(registry, read(None, given, load_recipe(recipe, registry))).config


def composed(recipe: str, *given: str) -> tuple[Any, str]:
    """verl's configuration, and its explanation, as on a machine that has the recipe's GPUs."""
    config = resolved(recipe, *given)
    verl = VerlConfig.of(config)
    own = {**config.plugins["verl"], "agent_workers": min(verl.gpus * verl.nodes, 8)}
    completed = config.model_copy(update={"device": "cuda", "dtype": "bfloat16", "plugins": {"verl": own}})
    compiled = compile_overrides(completed, PLACE, held_out=500, flash=True)
    found = compose(compiled)
    return found, explain(found, compiled)


@pytest.mark.parametrize("recipe", RECIPES)
def test_verl_accepts_the_recipe(recipe: str) -> None:
    verl, text = composed(recipe)
    ours = resolved(recipe)
    sequences = verl.actor_rollout_ref.actor.ppo_mini_batch_size * verl.actor_rollout_ref.rollout.n
    assert sequences % verl.trainer.n_gpus_per_node == 0
    assert verl.data.train_batch_size == ours.train.prompts_per_step
    assert verl.actor_rollout_ref.actor.kl_loss_type == "low_var_kl"
    assert verl.actor_rollout_ref.rollout.free_cache_engine, "vLLM has to sleep in the update"
    assert "train.group_size" in text


@pytest.mark.parametrize("recipe", RECIPES)
def test_its_batches_fit_verls_rules(recipe: str) -> None:
    """verl checks batch sizes only where micro-batches are counted in sequences; ours are counted in tokens."""
    composed(recipe, overrides(*IN_SEQUENCES))
    with pytest.raises(ConfigError, match="verl refuses"):
        composed(recipe, overrides(*IN_SEQUENCES, "actor_rollout_ref.actor.ppo_mini_batch_size=1024"))


def test_adamw_can_stay_in_the_machines_memory() -> None:
    """What the recipe for one GPU advises when its memory runs out."""
    keys = ["actor_rollout_ref.actor.strategy=fsdp2", "actor_rollout_ref.actor.fsdp_config.offload_policy=true"]
    verl, _ = composed("search-qwen3-4b-1gpu", overrides(*keys))
    assert verl.actor_rollout_ref.actor.fsdp_config.offload_policy
