"""On-policy distillation as whole runs: a policy that mostly guesses becomes like one that looks things up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_openai import Answer, Reply, error, serve
from runs import TINY_TASK, Cli, metrics, repeatable, summary

from rlfactory_core.training import stopping

pytestmark = pytest.mark.slow

RUN = ("run", "--plugin", TINY_TASK, "train.prompts_per_step=8", "train.group_size=8", "train.schedule=constant")
ALONE = ("train.workers=1", "rollout.deterministic=true", "eval.limit=2")


@pytest.fixture(scope="module")
def teacher(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt to look."""
    pytest.importorskip("torch", reason="the embedded engine needs rlfactory-core[local]")
    from rlfactory_core.cli.main import invoke

    out = tmp_path_factory.mktemp("teacher") / "run"
    assert invoke([*RUN, "--steps", "12", "train.workers=1", "--out", str(out)]) == 0
    return out


def distil(cli: Cli, out: Path, teacher: object, *options: object) -> None:
    outcome = cli(*RUN, "train.method=opd", f"train.teacher={teacher}", "--out", out, *options)
    assert outcome.code == 0, outcome.err


def test_the_policy_becomes_like_its_teacher_in_two_processes_and_with_older_samples(
    cli: Cli, teacher: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    distil(cli, out, teacher, "--steps", 12, "train.workers=2", "train.staleness=1")
    rows, found = metrics(out), summary(out)["eval"]
    assert rows[-1]["teacher_kl"] < 0.5 * rows[0]["teacher_kl"]
    assert rows[-1]["tool_calls"] > rows[0]["tool_calls"] + 0.2
    assert found["after"]["exact_match"] > found["before"]["exact_match"] + 0.2
    assert rows[0]["teacher_kl_top"] > 0.3  # whether it looks is decided by few tokens
    report = (out / "report.html").read_text(encoding="utf-8")
    assert "KL to the teacher" in report


def test_a_run_that_is_stopped_goes_on_to_the_same_weights(cli: Cli, teacher: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    distil(cli, whole, teacher, "--steps", 4, *ALONE)
    distil(cli, parts, teacher, "--steps", 2, *ALONE)
    assert cli("run", "--resume", parts, "--steps", 4).code == 0
    assert repeatable(parts) == repeatable(whole)
    weights = [(run / "checkpoints" / "latest" / "model.safetensors").read_bytes() for run in (whole, parts)]
    assert weights[0] == weights[1]


def serving(teacher: Path) -> Answer:
    """As vLLM answers, with the weights of a run."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = teacher / "checkpoints" / "latest"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

    def answer(body: Mapping[str, Any]) -> Reply:
        ids = torch.tensor([body["prompt"]])
        with torch.no_grad():
            logprobs = model(ids).logits[0, :-1].log_softmax(-1)
        rows = [
            {
                str(each): {"logprob": float(row[each]), "rank": 1, "decoded_token": tokenizer.decode([each])}
                for each in (token, *row.topk(body["prompt_logprobs"]).indices.tolist())
            }
            for token, row in zip(body["prompt"][1:], logprobs, strict=True)
        ]
        return Reply(body={"choices": [{"index": 0, "text": "", "prompt_logprobs": [None, *rows]}]})

    return answer


@pytest.mark.parametrize("top", [0, 20])
def test_a_server_teaches_as_the_model_in_the_process_does(cli: Cli, teacher: Path, tmp_path: Path, top: int) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    distil(cli, here, teacher, "--steps", 1, *ALONE, f"train.teacher_top={top}")
    with serve(serving(teacher)) as server:
        distil(cli, there, server.url, "--steps", 1, *ALONE, f"train.teacher_top={top}")
    (row,), (same,) = metrics(here), metrics(there)
    assert same["trained_tokens"] == row["trained_tokens"] > 0
    for name in ("teacher_kl", "teacher_kl/calls", "teacher_kl_top", "loss", "grad_norm"):
        assert same[name] == pytest.approx(row[name], rel=1e-3, abs=1e-5), name


def test_a_teacher_that_is_gone_stops_the_run_and_loses_nothing(
    cli: Cli, teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlfactory_core.clients import openai

    monkeypatch.setattr(stopping, "PAUSE_S", 0.0)
    monkeypatch.setattr(openai.RequestLimits.__init__, "__defaults__", (64, 600.0, 0, (0.0, 0.0), openai.MAX_BYTES))
    answer, left = serving(teacher), [66]  # the first question, one step, and a part of the next

    def breaking(body: Mapping[str, Any]) -> Reply:
        left[0] -= 1
        return answer(body) if left[0] >= 0 else error(500, "out of memory")

    out = tmp_path / "run"
    with serve(breaking) as server:
        outcome = cli(
            *RUN, "train.method=opd", f"train.teacher={server.url}", "--out", out, *ALONE, "train.max_skipped=2"
        )
    assert outcome.code == 1
    assert "Step 2 was played 2 times" in outcome.err
    assert "out of memory" in outcome.err
    assert "Step 1 is saved" in outcome.err
    assert [row["step"] for row in metrics(out)] == [1]


def test_what_cannot_be_distilled_is_refused_before_the_training(cli: Cli, tiny_model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in tiny_model.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    tokenizer = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    first, second = list(vocabulary)[300:302]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    out = tmp_path / "run"
    refusal = cli.refusal(*RUN, "train.method=opd", f"train.teacher={other}", "--model", tiny_model, "--out", out)
    assert "its tokenizer is another one than that of the model" in refusal
    assert "2 have other ids" in refusal
    refusal = cli.refusal(*RUN, "train.method=opd", "train.teacher=http://127.0.0.1:9/v1", "--out", out)
    assert "cannot be reached" in refusal
    assert metrics(out) == []
