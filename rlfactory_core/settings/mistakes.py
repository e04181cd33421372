"""What a user reads about a mistake in a section, in plain words; pydantic's own message never reaches the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

from rlfactory_core.utils.display import shortened

Key = tuple[str, ...]
UNKNOWN = "extra_forbidden"  # pydantic's type of an error for a key that the section does not have


def key_of(start: Key, error: Mapping[str, Any]) -> str:
    """The key in the whole configuration that an error of pydantic is about."""
    return ".".join(start + _place(error))


def _place(error: Mapping[str, Any]) -> Key:
    return tuple(str(part) for part in error["loc"])


def explain(model_cls: type[BaseModel], start: Key, error: Mapping[str, Any]) -> str:
    """One error of pydantic; ``start`` is the key of the section in the whole configuration."""
    place, key = _place(error), key_of(start, error) or "the configuration"
    kind, message, found = error["type"], str(error["msg"]), shortened(repr(error["input"]), 80)
    if kind == UNKNOWN:
        return f"Unknown key '{key}'. {_suggest(model_cls, start, place)}"
    if kind == "missing":
        return f"The key '{key}' has to be given."
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        message = "a section of keys and values"
    elif kind in ("tuple_type", "list_type"):
        message = "a list, such as [a, b]"
    elif kind == "value_error":
        return f"{key}: {message.removeprefix('Value error, ')} Got {found}."
    expected = message.removeprefix("Input should be ").split(", unable")[0]
    return f"{key}: got {found}, expected {expected}."


_ELSEWHERE = {  # names of other programs and libraries -> our keys
    key: ours
    for ours, theirs in {
        "train.lr": "learning_rate actor_lr policy_lr",
        "train.steps": "max_steps total_steps num_steps total_training_steps iterations "
        "epoch epochs num_epochs num_train_epochs total_epochs max_epochs",
        "train.prompts_per_step": "batch_size train_batch_size per_device_train_batch_size global_batch_size "
        "rollout_batch_size mini_batch_size",
        "train.group_size": "num_generations num_rollouts rollouts_per_example n_samples num_samples_per_prompt",
        "train.kl": "beta kl_coef kl_coeff kl_loss_coef kl_beta kl_penalty",
        "train.clip_low": "epsilon clip_range clip_ratio clip_eps", "train.clip_high": "epsilon_high",
        "train.max_grad_norm": "grad_clip gradient_clip clip_grad clip_grad_norm",
        "train.lora.rank": "lora_rank lora_r peft use_lora use_peft", "train.lora.alpha": "lora_alpha",
        "train.lora.base_bits": "qlora load_in_4bit quantization quantization_config bnb_4bit bnb_4bit_quant_type",
        "train.microbatch_tokens": "gradient_accumulation_steps micro_batch_size ppo_max_token_len_per_gpu",
        "train.loss": "algorithm algo loss_type", "train.advantage": "adv_estimator", "train.workers": "num_workers",
        "rollout.max_turn_tokens": "max_new_tokens",
        "rollout.max_tokens": "max_completion_length max_prompt_length max_response_length max_length max_seq_len "
        "max_seq_length max_model_len context_length",
        "rollout.max_turns": "max_tool_calling_iterations max_assistant_turns",
        "rollout.max_tool_calls": "max_calls", "rollout.top_p": "nucleus",
        "checkpoint.every": "save_steps save_every save_freq save_interval", "checkpoint.keep": "save_total_limit",
        "eval.every": "eval_steps eval_every eval_freq test_freq eval_interval",
        "model": "model_name model_path model_name_or_path model_id base_model pretrained checkpoint",
        "data.train": "dataset datasets dataset_name dataset_path train_data train_file train_files train_dataset",
        "data.eval": "eval_dataset eval_file val_data val_file val_files test_data test_file",
        "out": "output output_dir output_folder run_dir save_dir save_path log_dir logging_dir default_local_dir",
        "loggers": "report_to tracker wandb tensorboard", "seed": "random_seed",
        "dtype": "bf16 fp16 torch_dtype precision", "engine": "backend", "rewards": "reward_function reward_funcs",
    }.items()
    for key in theirs.split()
}  # fmt: skip
_TRAIN = (
    "lr", "kl", "group_size", "prompts_per_step", "prompts", "loss", "advantage", "patience", "until", "warmup_steps",
    "weight_decay", "schedule", "clip_low", "clip_high", "max_grad_norm", "microbatch_tokens", "gradient_checkpointing",
)  # fmt: skip
_ROLLOUT = ("temperature", "top_p", "max_tokens", "max_turns", "max_turn_tokens", "max_tool_calls", "slots")
_AS_AN_OPTION = {  # an option that no task has -> a key of the run
    **{name: f"train.{name}" for name in _TRAIN},
    **{name: f"rollout.{name}" for name in _ROLLOUT},
    "dtype": "dtype",
    "lora": "train.lora.rank",
    **_ELSEWHERE,
}


def _suggest(model_cls: type[BaseModel], start: Key, place: Key) -> str:
    """The same name in another section, then similar names in the same section, then in any other."""
    if start == ("task",) and (key := _AS_AN_OPTION.get(place[-1])):
        return f"The task has no such option; the run's key is {key}, so write {key}=VALUE."
    keys = list(_keys(model_cls, ()))
    ours = tuple(_ELSEWHERE.get(place[-1], "").split("."))
    if meant := [key for key in keys if key == ours] or [key for key in keys if key[-1] == ours[-1]]:
        return f"Here it is called {_either(start, meant)}."
    siblings = [key for key in keys if key[:-1] == place[:-1]]
    same = [key for key in keys if key[-1] == place[-1]]
    for candidates in (same, siblings, keys):
        if close := get_close_matches(place[-1], {key[-1] for key in candidates}, n=3, cutoff=0.6):
            found = sorted((key for key in candidates if key[-1] in close), key=lambda key: close.index(key[-1]))
            return f"Did you mean {_either(start, found)}?"
    known = ", ".join(".".join(start + key) for key in siblings)
    return f"Known there: {known}." if known else "Nothing can be set there."


def _either(start: Key, keys: Sequence[Key]) -> str:
    return " or ".join(f"'{'.'.join(start + key)}'" for key in keys[:3])


def _keys(model_cls: type[BaseModel], at: Key) -> Iterator[Key]:
    """Every key of a model, including those of its sections."""
    for name, field in model_cls.model_fields.items():
        yield (*at, name)
        for option in (field.annotation, *get_args(field.annotation)):
            if isinstance(option, type) and issubclass(option, BaseModel):
                yield from _keys(option, (*at, name))
