"""Reads configurations from YAML and overrides, merges and checks them, and writes them as YAML.

Every mistake of a user is a `ConfigError` in plain words; a pydantic message never reaches the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from rlfactory_core.errors import ConfigError
from rlfactory_core.utils.display import shortened

__all__ = ["merge", "parse_override", "validate_section"]

Model = TypeVar("Model", bound=BaseModel)
Key = tuple[str, ...]

_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?$|[-+]?[0-9]+[eE][-+]?[0-9]+$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
)
_BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
_FLOAT_TAG = "tag:yaml.org,2002:float"


class _Loader(yaml.SafeLoader):
    """Reads the scalars of YAML 1.2. PyYAML's own 1.1 reads ``3e-4`` as text, ``no`` as false, ``1:30`` as 90.

    `ruamel.yaml` 0.19 was tried instead and not taken: its import takes 180 ms against 32 ms, ``2024-01-01`` becomes a
    date and ``1_000`` a number, and it refuses the text ``=``.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver(_FLOAT_TAG, _FLOAT, list("-+.0123456789"))


class _Dumper(yaml.SafeDumper):
    """Quotes a string that YAML 1.1 *or* 1.2 would read as something else, so that any reader gets it back."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Unicode's line breaks come back as plain ones unless they are escaped."""
        escaped = '"' if any(mark in data for mark in "\x85\u2028\u2029") else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=escaped)


_Dumper.add_representer(str, _Dumper.represent_str)
_Dumper.add_implicit_resolver(_FLOAT_TAG, _FLOAT, list("-+.0123456789"))


def validate_section(model_cls: type[Model], data: Mapping[str, Any], prefix: str = "") -> Model:
    """Make a section from plain data; ``prefix`` is its dotted key in the whole configuration, for the messages.

    Raises:
        ConfigError: all problems at once, each with its full key, what was found and what is expected.
    """
    try:
        return model_cls.model_validate(dict(data))
    except ValidationError as error:
        start: Key = tuple(prefix.split(".")) if prefix else ()
        lines = [_explain(model_cls, start, item) for item in error.errors(include_url=False)]
        raise ConfigError("\n".join(lines)) from None


class Replacement(dict[str, Any]):
    """A mapping that `merge` puts in the place of an earlier one, instead of adding its keys."""


_Dumper.add_representer(Replacement, _Dumper.represent_dict)


def parse_override(text: str) -> dict[str, Any]:
    """``train.lr=3e-4`` as nested data, ``{"train": {"lr": 0.0003}}``.

    The value is a YAML scalar, or a list or mapping in YAML's flow style (``[a, b]``, ``{a: 1}``); nothing is null. An
    empty mapping removes all keys that were given before.

    Raises:
        ConfigError: no ``=``, an empty part in the key, or a list or mapping that is not closed.
    """
    key, equals, value = text.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"{text!r} is not an override. Expected KEY=VALUE with a dotted key, such as train.lr=3e-4.")
    nested: Any = _parse_value(key, value.strip())
    nested = Replacement() if nested == {} else nested
    for part in reversed(parts):
        nested = {part: nested}
    return dict(nested)


def load_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; an empty file is an empty mapping.

    Raises:
        ConfigError: a file that is missing, not YAML or not a mapping; the message has the line.
    """
    try:
        data = _parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read the configuration {path}: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds a {type(data).__name__}; expected keys and values, such as 'seed: 1'.")
    return data


def merge(*sources: Mapping[str, Any]) -> dict[str, Any]:
    """One nested mapping; later values win, mappings are merged key by key, everything else is replaced whole.

    ``merge(merge(a, b), c)`` equals ``merge(a, merge(b, c))``: where a mapping follows a null, a list or another value,
    it replaces the mapping of an earlier source.
    """
    merged: dict[str, Any] = {}
    for source in sources:
        for key, value in source.items():
            if not isinstance(value, Mapping):
                merged[key] = value
                continue
            before = merged.get(key)
            if isinstance(before, Mapping) and not isinstance(value, Replacement):
                whole, replaces = merge(before, value), isinstance(before, Replacement)
            else:
                whole, replaces = merge(value), key in merged or isinstance(value, Replacement)
            merged[key] = Replacement(whole) if replaces else whole
    return merged


def dump_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as YAML that `load_yaml` turns into equal data, and any other reader too."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def _parse(text: str) -> Any:
    return _Loader(text).get_single_data()


def _parse_value(key: str, text: str) -> Any:
    """Flow style is parsed; anything else is one scalar, so that ``#`` and ``: `` in a text mean nothing."""
    if text[:1] in ("[", "{", '"', "'"):
        try:
            return _parse(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"{key}: {text!r} is not a YAML value: {' '.join(str(error).split())}.") from error
    loader: Any = _Loader("")
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))
    return loader.construct_object(yaml.ScalarNode(tag, text))


def _explain(model_cls: type[BaseModel], start: Key, error: Mapping[str, Any]) -> str:
    place: Key = tuple(str(part) for part in error["loc"])
    key = ".".join(start + place) or "the configuration"
    kind, message, found = error["type"], str(error["msg"]), shortened(repr(error["input"]), 80)
    if kind == "extra_forbidden":
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
        "train.lora.rank": "lora_rank lora_r peft use_lora use_peft qlora", "train.lora.alpha": "lora_alpha",
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
        "tools.mcp": "mcp_config mcp_servers",
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
    meant = [key for key in keys if key == ours] or [key for key in keys if key[-1] == ours[-1]]
    if meant:
        names = " or ".join(f"'{'.'.join(start + key)}'" for key in meant[:3])
        return f"Here it is called {names}."
    siblings = [key for key in keys if key[:-1] == place[:-1]]
    same = [key for key in keys if key[-1] == place[-1]]
    for candidates in (same, siblings, keys):
        close = get_close_matches(place[-1], {key[-1] for key in candidates}, n=3, cutoff=0.6)
        if close:
            found = sorted((key for key in candidates if key[-1] in close), key=lambda key: close.index(key[-1]))[:3]
            return "Did you mean " + " or ".join(f"'{'.'.join(start + key)}'" for key in found) + "?"
    known = ", ".join(".".join(start + key) for key in siblings)
    return f"Known there: {known}." if known else "Nothing can be set there."


def _keys(model_cls: type[BaseModel], at: Key) -> Iterator[Key]:
    """Every key of a model, including those of its sections."""
    for name, field in model_cls.model_fields.items():
        yield (*at, name)
        for option in (field.annotation, *get_args(field.annotation)):
            if isinstance(option, type) and issubclass(option, BaseModel):
                yield from _keys(option, (*at, name))
