"""The keys of verl that each of our keys sets, and that their values stay unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from configs import made_config
from rlfactory_verl.config import VerlConfig
from rlfactory_verl.overrides import (
    CPU,
    ENGINE,
    PASSED_ON,
    Place,
    as_hydra,
    changed_by,
    compile_overrides,
)

from rlfactory_core.config import RunConfig

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
PLACE = Place("/models/tiny", Path("/runs/one"))


def compiled(*overrides: str, device: str = "cuda", held_out: int = 10, **options: Any) -> dict[str, str]:
    """verl's keys and values, as hydra gets them."""
    data = {"plugin": "search", "engine": "verl", "device": device, "dtype": "bfloat16", "verl": {"gpus": 2}}
    config = made_config(data, *overrides)
    found = changed_by(compile_overrides(config, PLACE, held_out=held_out, **options))
    return {key: override.value for key, override in found.items()}


LANDS: list[tuple[list[str], dict[str, str]]] = [
    (["seed=7"], {"data.seed": "7", f"{ROLLOUT}.seed": "7", f"{ACTOR}.data_loader_seed": "7"}),
    (["train.steps=30"], {"trainer.total_training_steps": "30"}),
    (["train.prompts_per_step=12"], {"data.train_batch_size": "12"}),
    (["train.prompts_per_step=12", "train.updates_per_step=3"], {f"{ACTOR}.ppo_mini_batch_size": "4"}),
    (["train.group_size=5"], {f"{ROLLOUT}.n": "5"}),
    (["train.lr=3e-5"], {f"{ACTOR}.optim.lr": "3e-05"}),
    (["train.weight_decay=0.1"], {f"{ACTOR}.optim.weight_decay": "0.1"}),
    (["train.warmup_steps=9"], {f"{ACTOR}.optim.lr_warmup_steps": "9"}),
    (["train.schedule=cosine"], {f"{ACTOR}.optim.lr_scheduler_type": "'cosine'"}),
    (["train.max_grad_norm=0.5"], {f"{ACTOR}.optim.clip_grad": "0.5", f"{ACTOR}.grad_clip": "0.5"}),
    (
        ["train.clip_low=0.1", "train.clip_high=0.3"],
        {f"{ACTOR}.clip_ratio_low": "0.1", f"{ACTOR}.clip_ratio_high": "0.3"},
    ),
    (["train.kl=0"], {f"{ACTOR}.use_kl_loss": "false", "algorithm.use_kl_in_reward": "false"}),
    (["train.kl=0.01"], {f"{ACTOR}.use_kl_loss": "true", f"{ACTOR}.kl_loss_coef": "0.01"}),
    (
        ["train.microbatch_tokens=9000"],
        {f"{ACTOR}.ppo_max_token_len_per_gpu": "9000", f"{ACTOR}.use_dynamic_bsz": "true"},
    ),
    (
        ["train.lora={rank: 8, alpha: 24, targets: 'q_proj, v_proj'}"],
        {
            "actor_rollout_ref.model.lora_rank": "8",
            "actor_rollout_ref.model.lora_alpha": "24",
            "actor_rollout_ref.model.target_modules": "['q_proj','v_proj']",
            "actor_rollout_ref.model.lora.merge": "true",
        },
    ),
    (["train.lora.rank=4"], {"actor_rollout_ref.model.target_modules": "'all-linear'"}),
    (["train.gradient_checkpointing=true"], {"actor_rollout_ref.model.enable_gradient_checkpointing": "true"}),
    (
        ["train.refill=true"],
        {"algorithm.filter_groups.enable": "true", "algorithm.filter_groups.metric": "'reward'"},
    ),
    (["train.advantage=grpo"], {"algorithm.adv_estimator": "'grpo'", "algorithm.norm_adv_by_std_in_grpo": "true"}),
    (["train.advantage=dr_grpo"], {"algorithm.adv_estimator": "'grpo'", "algorithm.norm_adv_by_std_in_grpo": "false"}),
    (["train.advantage=rloo"], {"algorithm.adv_estimator": "'rloo'"}),
    (
        ["train.advantage=gae", "train.gamma=0.9", "train.lam=0.8", "train.critic_lr=1e-4"],
        {
            "algorithm.adv_estimator": "'gae'",
            "algorithm.gamma": "0.9",
            "algorithm.lam": "0.8",
            "critic.optim.lr": "0.0001",
            "critic.model.path": "'/models/tiny'",
        },
    ),
    (
        ["rollout.max_tokens=2048"],
        {
            "data.max_prompt_length": "2048",
            "data.max_response_length": "2048",
            f"{ROLLOUT}.max_model_len": "2048",
            f"{ROLLOUT}.max_num_batched_tokens": "8192",
        },
    ),
    (["rollout.max_tokens=16000"], {f"{ROLLOUT}.max_num_batched_tokens": "16000"}),
    (["rollout.temperature=0.7", "rollout.top_p=0.9"], {f"{ROLLOUT}.temperature": "0.7", f"{ROLLOUT}.top_p": "0.9"}),
    (["rollout.slots=64"], {f"{ROLLOUT}.max_num_seqs": "64"}),
    (["eval.every=7"], {"trainer.test_freq": "7", "trainer.val_before_train": "true"}),
    (["eval.every=0", "train.steps=30"], {"trainer.test_freq": "30"}),
    (["checkpoint.every=4"], {"trainer.save_freq": "4"}),
    (["checkpoint.every=0", "train.steps=30"], {"trainer.save_freq": "30"}),
    (["verl.gpus=4", "verl.nodes=3"], {"trainer.n_gpus_per_node": "4", "trainer.nnodes": "3"}),
    (["train.loss=gspo"], {f"{ACTOR}.policy_loss.loss_mode": "'gspo'"}),
    (["train.loss=ppo"], {f"{ACTOR}.policy_loss.loss_mode": "'vanilla'"}),
    (["verl.mode=colocate_async"], {"trainer.v1.trainer_mode": "'colocate_async'"}),
    (
        ["verl.mode=separate_async", "verl.gpus=8", "verl.rollout_gpus=3", "verl.nodes=2"],
        {
            "actor_rollout_ref.hybrid_engine": "false",
            "trainer.n_gpus_per_node": "5",
            "trainer.nnodes": "2",
            f"{ROLLOUT}.n_gpus_per_node": "3",
            f"{ROLLOUT}.nnodes": "2",
            f"{ROLLOUT}.checkpoint_engine.backend": "'nccl'",
        },
    ),
    (
        ["verl.mode=separate_async", "verl.gpus=2", "verl.rollout_gpus=1", "train.staleness=4"],
        {
            "trainer.v1.separate_async.num_warmup_batches": "4",
            "trainer.v1.sampler.max_off_policy_threshold": "5",
            "trainer.v1.sampler.max_off_policy_strategy": "'wait'",
        },
    ),
    (
        ["verl.mode=colocate_async", "train.truncate_weight=3"],
        {
            "algorithm.rollout_correction.rollout_is": "'token'",
            "algorithm.rollout_correction.rollout_is_threshold": "3.0",
        },
    ),
    (
        ["verl.tensor_parallel=2", "verl.memory_share=0.4"],
        {f"{ROLLOUT}.tensor_model_parallel_size": "2", f"{ROLLOUT}.gpu_memory_utilization": "0.4"},
    ),
    (
        ["verl.offload=true"],
        {f"{ACTOR}.fsdp_config.param_offload": "true", f"{ACTOR}.fsdp_config.optimizer_offload": "true"},
    ),
    (["verl.agent_workers=6"], {f"{ROLLOUT}.agent.num_workers": "6"}),
    (["dtype=float32"], {f"{ROLLOUT}.dtype": "'float32'"}),
    (["dtype=bfloat16"], {f"{ROLLOUT}.dtype": "'bfloat16'"}),
]


@pytest.mark.parametrize(("given", "expected"), LANDS, ids=[" ".join(given) for given, _ in LANDS])
def test_our_key_sets_verls_keys(given: list[str], expected: dict[str, str]) -> None:
    found = compiled(*given)
    assert {key: found.get(key) for key in expected} == expected


def test_the_policy_starts_from_the_model_and_the_run_has_its_folder() -> None:
    found = compiled()
    assert found["actor_rollout_ref.model.path"] == "'/models/tiny'"
    assert found["trainer.default_local_dir"] == "'/runs/one/checkpoints/verl'"
    assert found["trainer.experiment_name"] == "'one'"
    assert found["trainer.resume_mode"] == "'disable'"
    assert compiled(resume=True)["trainer.resume_mode"] == "'auto'"


def test_a_run_without_held_out_samples_is_not_evaluated() -> None:
    found = compiled(held_out=0)
    assert (found["trainer.test_freq"], found["trainer.val_before_train"]) == ("-1", "false")
    assert found["data.val_batch_size"] == "1"  # verl would take 0 and fail


def test_vllm_loads_the_files_of_a_model_that_sees_images(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("rlfactory_vision", reason="without it no tool returns an image")
    facts = {"model_type": "qwen3_vl", "vision_config": {"depth": 2}, "image_token_id": 7}
    (tmp_path / "config.json").write_text(json.dumps(facts))
    load = f"{ROLLOUT}.load_format"
    assert compiled(f"model={tmp_path}")[load] == "'auto'"
    assert load not in compiled(f"model={tmp_path}", "chat.format=hermes")


def test_a_resumed_run_is_not_evaluated_before() -> None:
    assert compiled(resume=True)["trainer.val_before_train"] == "false"


def test_eval_only_evaluates() -> None:
    assert compiled()["trainer.val_only"] == "false"
    assert compiled(only_evaluate=True)["trainer.val_only"] == "true"


def test_only_ppo_has_a_critic_and_only_async_modes_correct_for_old_weights() -> None:
    found = compiled("train.advantage=grpo")
    assert not {"critic.model.path", "critic.optim.lr", "algorithm.rollout_correction.rollout_is"} & set(found)


def test_an_async_mode_has_no_weights_by_default() -> None:
    found = compiled("verl.mode=colocate_async")
    assert not any(key.startswith("algorithm.rollout_correction") for key in found)


def test_training_needs_no_flash_attention_on_a_gpu() -> None:
    padding, attention = (
        f"actor_rollout_ref.model.{key}" for key in ("use_remove_padding", "override_config.attn_implementation")
    )
    without, with_it = compiled(), compiled(flash=True)
    assert (without[padding], without[attention]) == ("false", "'sdpa'")
    assert not {padding, attention} & set(with_it)


def test_nothing_of_a_gpu_is_set_on_a_cpu_and_the_other_way_round() -> None:
    gpu, cpu = compiled(), compiled(device="cpu")
    assert cpu["trainer.device"] == "cpu"
    assert "trainer.device" not in gpu
    assert f"{ROLLOUT}.gpu_memory_utilization" not in cpu
    separate = compiled("verl.mode=separate_async", "verl.rollout_gpus=1", device="cpu")
    assert separate[f"{ROLLOUT}.checkpoint_engine.backend"] == "'rlfactory_file'"


def test_the_users_own_override_wins_and_may_hold_an_equals_sign() -> None:
    lr = f"{ACTOR}.optim.lr"
    found = compiled("train.lr=3e-5", f"verl.overrides=['{lr}=1e-6', '+trainer.note=\"a=b\"']")
    assert found[lr] == "1e-6"
    assert found["trainer.note"] == '"a=b"'


def test_every_value_has_its_source() -> None:
    own = {"gpus": 1, "overrides": ["data.seed=1"]}
    config = made_config({"plugin": "x", "engine": "verl", "device": "cpu", "dtype": "float32", "verl": own})
    overrides = compile_overrides(config, PLACE, held_out=1)
    keys = set(RunConfig.model_fields) | {ENGINE, CPU, PASSED_ON}
    assert {override.source.partition(".")[0] for override in overrides} <= keys | {"verl"}
    for override in overrides:
        section, _, name = override.source.partition(".")
        if name:
            cls = VerlConfig if section == "verl" else type(getattr(config, section))
            assert name in cls.model_fields, override.source
    assert changed_by(overrides)["data.seed"].source == PASSED_ON


TEXTS = [
    "/data/a folder/model",
    "it's",
    'say "x"',
    "a=b,c",
    "[a, b]",
    "{a: b}",
    "$HOME/model",
    "/odd/${name}/model",
    "a\\b",
    "ends with \\",
    "a \\' b",
    "null",
    "1e-6",
    "true",
    "",
    "ключ/模型",
    "# no comment",
    "a: b",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_reaches_verl_unchanged(text: str) -> None:
    pytest.importorskip("hydra", reason="verl brings it")
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    for value in (text, [text, "x"], Path(text)):
        parsed = OverridesParser.create().parse_override(f"key={as_hydra(value)}").value()
        config = OmegaConf.create({"key": parsed if isinstance(parsed, list) else str(parsed)})
        expected = value if isinstance(value, list) else str(value)
        assert OmegaConf.to_container(config, resolve=True) == {"key": expected}


@pytest.mark.parametrize("value", [0, 7, 1e-6, 0.1, 1e6, float("inf"), True, False, None, [], [1, 2.5], ["a", None]])
def test_a_number_reaches_verl_unchanged(value: Any) -> None:
    pytest.importorskip("hydra", reason="verl brings it")
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_override(f"key={as_hydra(value)}").value()
    assert (parsed if not isinstance(parsed, list) else [getattr(item, "text", item) for item in parsed]) == value
    assert type(parsed) is type(value)
