"""Configuration from files, overrides and defaults, and what a person is told who got it wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from configs import made_config
from hypothesis import given, settings
from hypothesis import strategies as st

from rlfactory_core.config import RunConfig
from rlfactory_core.errors import ConfigError
from rlfactory_core.settings import Section, dump_yaml, load_yaml, merge, parse_override, validate_section


def resolve(*overrides: str | dict[str, Any]) -> RunConfig:
    return made_config({"plugin": "search"}, *overrides)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        ("7", 7),
        ("-7", -7),
        (".5", 0.5),
        ("true", True),
        ("null", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("010", "010"),
        ("2026-11-01", "2026-11-01"),
        ("a: b # c", "a: b # c"),
        ("x=y", "x=y"),
        ("'3'", "3"),
        ("[wandb, 3e-4]", ["wandb", 3e-4]),
        ("{a: 1, b: no}", {"a": 1, "b": "no"}),
        ("/data/[1].jsonl", "/data/[1].jsonl"),
    ],
)
def test_an_override_reads_scalars_as_people_mean_them(text: str, value: Any) -> None:
    assert parse_override(f"train.x={text}") == {"train": {"x": value}}


@pytest.mark.parametrize("text", ["train.lr", "=3", "train..lr=3", "train.lr=[1", "a='b"])
def test_a_malformed_override_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_override(text)
    assert text.partition("=")[0] in str(error.value)


def test_later_sources_win_and_sections_merge(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("seed: 3\ntrain:\n  lr: 1e-3\n  steps: 7\n")
    defaults = {"plugin": "search", "train": {"lr": 1e-5, "group_size": 4}, "rewards": {"f1": 0.5}}
    config = made_config(defaults, load_yaml(file), "train.lr=2e-3", {"seed": 9})
    assert (config.train.lr, config.train.steps, config.train.group_size, config.seed) == (2e-3, 7, 4, 9)
    assert config.rewards is not None
    assert [(reward.name, reward.weight) for reward in config.rewards] == [("f1", 0.5)]


@pytest.mark.parametrize("none", ["", "{}"])
def test_what_was_removed_stays_removed_when_keys_follow(none: str) -> None:
    defaults = {"plugin": "search", "train": {"until": {"f1": 0.5, "reward": 1.0}, "lr": 1e-3}}
    overrides = merge(*map(parse_override, [f"train.until={none}", "train.until.f1=0.9", "train.until.judge.tone=0.5"]))
    config = validate_section(RunConfig, merge(defaults, overrides))  # a task's defaults are merged last
    assert config.train.until == {"f1": 0.9, "judge.tone": 0.5}
    assert config.train.lr == 1e-3
    assert yaml.safe_load(dump_yaml(overrides)) == {"train": {"until": {"f1": 0.9, "judge": {"tone": 0.5}}}}
    again = merge(defaults, overrides, parse_override("train.until={}"), parse_override("train.until.f1=0.7"))
    assert again["train"]["until"] == {"f1": 0.7}


def test_merge_leaves_its_sources_alone() -> None:
    first = {"a": {"b": 1}}
    assert merge(first, {"a": {"c": 2}}, {"a": {"b": [3]}}) == {"a": {"b": [3], "c": 2}}
    assert first == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lrr=1", "Unknown key 'train.lrr'. Did you mean 'train.lr'?"),
        ("group_size=4", "Unknown key 'group_size'. Did you mean 'train.group_size'?"),
        ("temperature=1", "Unknown key 'temperature'. Did you mean 'rollout.temperature'?"),
        ("train.every=5", "Unknown key 'train.every'. Did you mean 'eval.every' or 'checkpoint.every'?"),
        ("train.lora.rnk=3", "Unknown key 'train.lora.rnk'. Did you mean 'train.lora.rank'?"),
        ("checkpoint.qqq=1", "Unknown key 'checkpoint.qqq'. Known there: checkpoint.every, checkpoint.keep."),
        ("train.lr=fast", "train.lr: got 'fast', expected a valid number."),
        ("train.lr=-1", "train.lr: got -1, expected greater than 0."),
        ("train=3", "train: got 3, expected a section of keys and values."),
        ("train.schedule=step", "train.schedule: got 'step', expected 'constant', 'cosine' or 'linear'."),
        ("loggers=wandb", "loggers: got 'wandb', expected a list, such as [a, b]."),
        ("rewards=[{weight: 1}]", "The key 'rewards.0.name' has to be given."),
        (
            "rewards=[{name: f1}, {name: f1}]",
            (
                "rewards: two of them are called 'f1'. Give one a label, as in {name: f1, label: other}. "
                "Got [{'name': 'f1'}, {'name': 'f1'}]."
            ),
        ),
    ],
)
def test_a_wrong_key_or_value_is_explained(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve(override)
    assert str(error.value) == message
    assert error.value.exit_code == 2


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        resolve("seed=x", "train.lrr=1", "eval.limit=-1")
    assert len(str(error.value).splitlines()) == 3
    assert "pydantic" not in str(error.value)


def test_a_plugins_own_section_is_named_by_its_place() -> None:
    class Config(Section):
        top_k: int = 3

    assert validate_section(Config, {"top_k": 5}, "task").top_k == 5
    with pytest.raises(ConfigError, match=r"Unknown key 'task.topk'\. Did you mean 'task.top_k'"):
        validate_section(Config, {"topk": 5}, "task")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("- a\n- b\n", "holds a list"),
        ("a: [1\n", "is not YAML"),
        ("seed: 1\nseed: 2\n", "'seed' is given twice"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=message) as error:
        load_yaml(file)
    assert str(file) in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: No such file"):
        load_yaml(tmp_path / "nowhere.yaml")


def test_an_empty_file_is_an_empty_configuration(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    assert load_yaml(tmp_path / "empty.yaml") == {}


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
tricky = st.sampled_from(["3e-4", "no", "0o7", "010", "1:30", "2026-11-01", ".inf", "~", "null", "=", "<<", "1_000"])


@settings(max_examples=25, deadline=None)
@given(task=st.dictionaries(st.text(max_size=6), plain | tricky, max_size=4))
def test_what_is_dumped_loads_as_it_was(task: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    config = resolve({"task": task}, "train.lora={}", "data.train=a.parquet", {"rewards": {"f1": 0.5}}, "train.lr=3e-7")
    file = tmp_path_factory.mktemp("dumped") / "config.yaml"
    file.write_text(dump_yaml(config.model_dump(mode="json")), encoding="utf-8")
    assert made_config(load_yaml(file)) == config
