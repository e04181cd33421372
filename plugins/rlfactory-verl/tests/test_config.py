"""Our configuration through verl's own: its hydra files, its schema and its validation, without starting anything."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from configs import made_config
from rlfactory_verl.compose import compose, explain
from rlfactory_verl.constraints import MISSING_INPUTS, check_rules
from rlfactory_verl.overrides import Override, Place, compile_overrides
from rlfactory_verl.pool import Pool
from runs import TINY_TASK, Cli

from rlfactory_core.config import RunConfig
from rlfactory_core.errors import ConfigError
from rlfactory_core.protocols import PoolRequest

pytest.importorskip("verl", reason="what is configured")
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
from verl.utils.config import omega_conf_to_dataclass

pytestmark = pytest.mark.slow

CPU = {"device": "cpu", "dtype": "float32", "verl": {"gpus": 1, "agent_workers": 1}}
GPUS = {"device": "cuda", "dtype": "bfloat16", "verl": {"gpus": 4, "agent_workers": 4}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """verl reads it to check a critic."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, Qwen3Config

    folder = str(tmp_path_factory.mktemp("models") / "it's a model")
    Qwen3Config(hidden_size=16, num_hidden_layers=1, architectures=["Qwen3ForCausalLM"]).save_pretrained(folder)
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1}, "a"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="b", pad_token="b").save_pretrained(folder)
    return folder


def compiled(
    *given: str,
    machine: dict[str, Any] = CPU,
    model: str = "/models/it's a model",
    judge: PoolRequest | None = None,
) -> list[Override]:
    config = made_config({"plugin": "search", "engine": "verl"}, machine, *given)
    check_rules(config)
    pool = Pool.of({"judge": judge} if judge else {}, config)
    return compile_overrides(config, Place(model, Path("/runs/a, b=c"), "/dev/shm/x"), held_out=8, pool=pool)


def composed(*given: str, **options: Any) -> Any:
    return compose(compiled(*given, **options))


@cache
def default() -> Any:
    return composed()


def refusal(*given: str) -> str:
    with pytest.raises(ConfigError) as raised:
        composed(*given)
    assert "Traceback" not in str(raised.value)
    return str(raised.value)


def test_the_defaults_are_verls_own_configuration_with_ours_in_it() -> None:
    config, ours = default(), RunConfig(plugin="search")
    actor = config.actor_rollout_ref.actor
    assert config.data.train_batch_size == ours.train.prompts_per_step
    assert config.actor_rollout_ref.rollout.n == ours.train.group_size
    assert actor.optim.lr == ours.train.lr
    assert (actor.clip_ratio_low, actor.clip_ratio_high) == (ours.train.clip_low, ours.train.clip_high)
    assert config.actor_rollout_ref.rollout.max_model_len == ours.rollout.max_tokens
    assert config.trainer.total_training_steps == ours.train.steps
    assert config.algorithm.adv_estimator == "grpo"
    assert config.trainer.v1.trainer_mode == "sync"
    assert config.trainer.device == "cpu"
    assert config.actor_rollout_ref.model.path == "/models/it's a model"
    assert config.trainer.default_local_dir == "/runs/a, b=c/checkpoints/verl"


@pytest.mark.parametrize("machine", [CPU, GPUS], ids=["cpu", "gpus"])
@pytest.mark.parametrize("advantage", ["grpo", "gae"])
def test_verls_own_classes_accept_it(advantage: str, machine: dict[str, Any], model: str) -> None:
    """hydra's schema is loose; the classes that verl's workers make of it are not."""
    config = composed(f"train.advantage={advantage}", "train.kl=0.01", machine=machine, model=model)
    omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    omega_conf_to_dataclass(config.algorithm)
    if advantage == "gae":
        critic: Any = omega_conf_to_dataclass(config.critic)
        assert critic.optim.lr == 1e-5


@pytest.mark.parametrize("machine", [CPU, GPUS], ids=["cpu", "gpus"])
def test_a_rewards_model_has_verls_reward_pool(machine: dict[str, Any], model: str) -> None:
    asked = PoolRequest(model, gpus=2, tensor_parallel=1)
    overrides = compiled(machine=machine, model=model, judge=asked)
    config = compose(overrides)
    pool = config.reward.reward_model
    assert (pool.enable, pool.enable_resource_pool, pool.n_gpus_per_node, pool.nnodes) == (True, True, 2, 1)
    assert pool.model_path == model
    served: Any = omega_conf_to_dataclass(pool.rollout)
    assert (served.name, served.free_cache_engine, served.enable_sleep_mode) == ("vllm", False, False)
    assert config.trainer.n_gpus_per_node == machine["verl"]["gpus"]
    assert "rewards.judge" in explain(config, overrides)


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_every_mode(mode: str) -> None:
    gpus = ["verl.gpus=2", "verl.rollout_gpus=1"] if mode == "separate_async" else []
    config = composed(f"verl.mode={mode}", "train.truncate_weight=2", *gpus)
    assert config.trainer.v1.trainer_mode == mode
    assert config.actor_rollout_ref.hybrid_engine is (mode != "separate_async")
    correction = OmegaConf.to_container(config.algorithm.rollout_correction)
    assert isinstance(correction, dict)
    assert (correction["rollout_is"] == "token") is (mode != "sync")


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_a_staleness_is_the_limit_of_an_asynchronous_mode(mode: str) -> None:
    gpus = ["verl.gpus=2", "verl.rollout_gpus=1"] if mode == "separate_async" else []
    v1 = composed(f"verl.mode={mode}", "train.staleness=3", *gpus).trainer.v1
    assert v1[mode].num_warmup_batches == 3
    assert (v1.sampler.max_off_policy_threshold, v1.sampler.max_off_policy_strategy) == (4, "wait")


def test_ppo_has_a_critic(model: str) -> None:
    config = composed("train.advantage=gae", "train.gamma=0.99", "train.lam=0.9", "train.critic_lr=3e-4", model=model)
    assert (config.algorithm.gamma, config.algorithm.lam, config.critic.optim.lr) == (0.99, 0.9, 3e-4)
    assert config.critic.model.path == model


def test_a_critics_unreadable_model_is_an_error_but_not_in_an_explanation() -> None:
    assert "/models/it's a model" in refusal("train.advantage=gae")
    assert compose(compiled("train.advantage=gae"), with_model=False).critic.model.path == "/models/it's a model"


@pytest.mark.parametrize("name", [*sorted(map(str, ADV_ESTIMATOR_REGISTRY)), "dr_grpo"])
def test_every_estimator_of_verls_is_taken_or_refused_in_plain_words(name: str, model: str) -> None:
    if name in MISSING_INPUTS:
        assert f"train.advantage={name} needs {MISSING_INPUTS[name]}" in refusal(f"train.advantage={name}")
    else:
        expected = "grpo" if name == "dr_grpo" else name
        assert composed(f"train.advantage={name}", model=model).algorithm.adv_estimator == expected


def test_only_verls_own_names_are_refused() -> None:
    assert set(MISSING_INPUTS) <= set(map(str, ADV_ESTIMATOR_REGISTRY))


def test_an_unknown_estimator_names_the_known_ones() -> None:
    text = refusal("train.advantage=grpoo")
    assert "train.advantage is 'grpoo', which verl does not have" in text
    for name in ("grpo", "dr_grpo", "gae", "rloo"):
        assert name in text


def test_the_users_own_overrides_win_also_over_the_cpus() -> None:
    given = ["actor_rollout_ref.actor.optim.lr=3e-4", "trainer.device=cuda", "+trainer.note=hello"]
    config = composed("train.lr=1e-6", f"verl.overrides={given}")
    assert config.actor_rollout_ref.actor.optim.lr == 3e-4
    assert config.trainer.device == "cuda"
    assert config.trainer.note == "hello"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("actor_rollout_ref.actor.optim.learning_rate=1", ["learning_rate"]),
        ("nosuch.key=1", ["nosuch"]),
        ("actor_rollout_ref.actor.optim.lr=[1,", ["actor_rollout_ref.actor.optim.lr"]),
        ("actor_rollout_ref.actor.use_dynamic_bsz=false", ["micro_batch_size"]),
        ("actor_rollout_ref.actor.loss_agg_mode=nosuch", ["nosuch"]),
    ],
)
def test_what_verl_does_not_take_is_refused_by_name(given: str, words: list[str]) -> None:
    text = refusal(f"verl.overrides=['{given}']")
    for word in [*words, given, "Given after `--`"]:
        assert word in text


def test_an_explanation_gives_our_key_for_each_changed_value() -> None:
    overrides = compiled("train.lr=3e-5", "verl.overrides=[data.seed=5]")
    text = explain(compose(overrides), overrides)
    body, table = text.split("# from our key")
    assert OmegaConf.create(body).actor_rollout_ref.actor.optim.lr == 3e-5
    rows = [row.removeprefix("# ").split(maxsplit=2) for row in table.splitlines()[1:-1]]
    found = {key: (source, value) for source, key, value in rows}
    assert found["actor_rollout_ref.actor.optim.lr"] == ("train.lr", "3e-05")
    assert found["actor_rollout_ref.rollout.n"] == ("train.group_size", "8")
    assert found["data.seed"] == ("verl.overrides", "5")
    assert found["data.shuffle"] == ("(engine)", "false")
    assert found["trainer.device"] == ("device=cpu", "cpu")
    assert len(found) == len({override.key.lstrip("+") for override in overrides})


def test_a_dry_run_shows_it_all_and_starts_nothing(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="the engine looks whether it is there")
    out = tmp_path / "run"
    given = ["--plugin", TINY_TASK, "--engine", "verl", "--device", "cpu", "--dry-run", "--out", out, "train.lr=2e-4"]
    outcome = cli("run", *given, "--", "trainer.balance_batch=False")
    assert outcome.code == 0, outcome.err
    assert "engine: verl" in outcome.out
    assert "# train.lr " in outcome.out
    assert "lr: 0.0002" in outcome.out
    assert "balance_batch: false" in outcome.out
    assert not out.exists()
    assert "no_such_key" in cli.refusal("run", *given, "--", "trainer.no_such_key=1")
    assert cli("run", *given, "train.advantage=gae").code == 0  # though its model is not built yet
    both = cli.refusal("run", *given, "train.muon_lr=0.1", "rollout.deterministic=true")
    assert "train.muon_lr=0.1" in both
    assert "rollout.deterministic=true" in both
