"""A run fits into the memory that is free: what is chosen, what stays, what is refused."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
import transformers
from runs import TINY_TASK

from rlfactory_core.config import RunConfig
from rlfactory_core.engines.local import memory
from rlfactory_core.errors import ConfigError
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner import fitting, prepare
from rlfactory_core.runner.fitting import fitted
from rlfactory_core.utils.memory import free_memory

GIB = 2**30
SHAPE = {
    **{"hidden_size": 256, "num_hidden_layers": 8, "intermediate_size": 1024, "vocab_size": 8192},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": True},
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    transformers.Qwen3Config(**SHAPE).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


class Chosen:
    """The keys of a run on a machine with so many GiB free, and what is said of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
        self._patch, self._model = monkeypatch, model
        self.lines: list[str] = []
        monkeypatch.setattr(Progress, "say", lambda progress, line: self.lines.append(line))

    def __call__(self, free: float, *keys: str, less: float = 0, training: bool = True) -> RunConfig:
        """``less``: GiB that other programs take between two looks."""
        looks = count()
        self._patch.setattr(memory, "free_memory", lambda: int((free - less * next(looks)) * GIB))
        self.lines.clear()
        given = {"plugin": TINY_TASK, "model": str(self._model), "device": "cpu", "dtype": "float32"}
        longest = ("rollout.max_tokens=4096", "train.prompts_per_step=16", "train.group_size=8")
        return fitted(prepare(None, [given, *longest, *keys]), Progress(), training=training).config


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch, model: Path) -> Chosen:
    return Chosen(monkeypatch, model)


def test_what_nobody_sets_is_chosen_to_fit(chosen: Chosen) -> None:
    config = chosen(64)
    assert (config.train.microbatch_tokens, config.rollout.slots) == (16384, 128)
    assert chosen.lines == []
    config = chosen(4)
    assert config.train.microbatch_tokens < 16384
    assert config.rollout.slots < 128
    (line,) = chosen.lines
    assert f"train.microbatch_tokens={config.train.microbatch_tokens}" in line
    assert f"rollout.slots={config.rollout.slots}" in line


def test_memory_that_others_take_meanwhile_does_not_change_the_answer(chosen: Chosen) -> None:
    steady, lines = chosen(4), list(chosen.lines)
    assert chosen(4, less=0.5) == steady
    assert chosen.lines == lines


def test_what_is_set_stays(chosen: Chosen) -> None:
    config = chosen(4, "train.microbatch_tokens=16384")
    assert config.train.microbatch_tokens == 16384
    assert config.rollout.slots < 128
    config = chosen(8, "rollout.slots=128", "train.gradient_checkpointing=false")
    assert (config.rollout.slots, config.train.gradient_checkpointing) == (128, False)


def test_what_cannot_fit_is_refused_with_the_keys_that_do(chosen: Chosen) -> None:
    with pytest.raises(ConfigError, match=r"keys and values 4\.0.*With these keys it needs .* rollout\.slots="):
        chosen(3, "rollout.slots=128")
    with pytest.raises(ConfigError, match="No keys of ours make it fit: take a smaller model"):
        chosen(0.2)


def test_an_evaluation_gets_as_many_slots_as_fit_and_is_not_refused(chosen: Chosen) -> None:
    config = chosen(8, training=False)
    assert (config.rollout.slots, chosen.lines) == (128, [])
    config = chosen(4, training=False)
    assert config.rollout.slots == 64
    assert config.train.microbatch_tokens == 16384
    (line,) = chosen.lines
    assert line.endswith("rollout.slots=64")
    assert chosen(3, "rollout.slots=128", training=False).rollout.slots == 128
    (line,) = chosen.lines
    assert line.startswith("warning: this evaluation may need about 4.8 GiB")
    assert "rollout.slots=" in line


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    member = tmp_path / "cgroup"
    member.write_text("0::/user/run\n")
    inner, outer = tmp_path / "groups" / "user" / "run", tmp_path / "groups" / "user"
    inner.mkdir(parents=True)
    for folder, limit in ((inner, "max"), (outer, str(3 * 2**20))):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{2 * 2**20}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {2**20}\n")
    unlimited = free_memory(tmp_path / "none", member)
    assert 0 < free_memory(tmp_path / "groups", member) < unlimited
    old = tmp_path / "groups" / "memory" / "job"
    old.mkdir(parents=True)
    for name, value in (("limit", 2**21), ("usage", 2**21)):
        (old / f"memory.{name}_in_bytes").write_text(str(value))
    (old / "memory.stat").write_text("total_inactive_file 0\n")
    member.write_text("9:memory:/job\n")
    assert free_memory(tmp_path / "groups", member) < unlimited


def test_a_larger_model_gets_a_process_for_each_core_where_memory_allows(
    chosen: Chosen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fitting, "usable_cores", lambda: 2)
    assert chosen(64).train.workers == 1  # a small model
    transformers.Qwen3Config(**{**SHAPE, "hidden_size": 512, "vocab_size": 32768}).save_pretrained(tmp_path / "larger")
    larger = f"model={tmp_path / 'larger'}"
    assert chosen(64, larger).train.workers == 2
    assert "train.workers=2" in chosen.lines[0]
    assert chosen(4, larger).train.workers == 1
    assert chosen(64, larger, "train.workers=1").train.workers == 1
    assert chosen(64, larger, "train.prompts_per_step=1").train.workers == 1
    stages = 'stages=[{"method": "sft", "prompts_per_step": 1}, {"method": "grpo"}]'
    assert chosen(64, larger, stages).train.workers == 1
