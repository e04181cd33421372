"""A model that has learnt nothing: Qwen3's architecture and chat template, with a tokenizer of the task's texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write(folder: Path, texts: Iterable[str]) -> Path:
    """Write it in Hugging Face's layout."""
    from rlfactory_core.engines.local.tiny.tiny_model import build_model, build_tokenizer
    from rlfactory_core.tasks.demonstrations import ARCHITECTURE
    from rlfactory_core.tiny import TinyModelRecipe

    recipe = TinyModelRecipe(ARCHITECTURE, lambda: texts, 1024, (), lambda rng: (), "")
    tokenizer = build_tokenizer([*texts, "user\nassistant\nsystem\n" * 3], recipe.vocab_size)
    build_model(recipe, tokenizer, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train_three_steps(
    folder: Path, texts: Iterable[str], plugin: str, environment: str, task: Mapping[str, Any]
) -> None:
    """Train such a model on an environment, and see that each step took place on the tokens that were sampled."""
    from rlfactory_core.cli.main import invoke

    model, run = write(folder / "model", list(texts)), folder / "run"
    own = [f"task.{name}={json.dumps(value)}" for name, value in task.items()]
    sizes = ["train.prompts_per_step=2", "train.group_size=2", "eval.every=0", "eval.limit=2", "checkpoint.every=0"]
    limits = ["rollout.max_turn_tokens=24", "rollout.max_tokens=3000", "rollout.max_turns=3"]
    command = ["run", "--plugin", plugin, "--environment", environment, "--model", str(model), "--steps", "3"]
    assert invoke([*command, "--out", str(run), *own, *sizes, *limits]) == 0
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 3
    rows = [json.loads(line) for path in sorted(run.glob("trajectories/step-*.jsonl")) for line in path.open()]
    assert len(rows) >= 12
    for row in rows:
        assert not [fault for fault in row["faults"] if fault["kind"] in ("infra", "verifier")], row["faults"]
        assert row["turns"]
