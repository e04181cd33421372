"""`rlfactory memory` and `rlfactory doctor`: what a run needs, and what there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import TINY_TASK, Cli

from rlfactory_core.settings import dump_yaml

SHAPE = {
    **{"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 500},
    **{"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32},
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    pytest.importorskip("transformers").Qwen3Config(**SHAPE).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_small_model_fits(cli: Cli, model: Path) -> None:
    given = ("memory", "--plugin", TINY_TASK, "--model", model, "--device", "cpu", "train.microbatch_tokens=2048")
    done = cli(*given, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["fits"] is True
    (phase,) = found["phases"]
    assert sum(part["bytes"] for part in phase["parts"]) == phase["bytes"]
    told = cli(*given).out
    assert "It should fit." in told
    assert f"{found['parameters']:,} parameters x 4 bytes" in told


def test_a_run_that_is_too_large_does_not_fit(cli: Cli, model: Path) -> None:
    many = ("train.microbatch_tokens=1_000_000_000", "train.prompts_per_step=1_000_000")
    done = cli("memory", "--plugin", TINY_TASK, "--model", model, "--device", "cpu", *many)
    assert done.code == 1
    assert "It does not fit: lower train.microbatch_tokens" in done.out


def test_keys_that_fit_a_gpu_that_is_not_here_are_proposed(cli: Cli, tmp_path: Path) -> None:
    qwen = {"hidden_size": 1024, "num_hidden_layers": 28, "intermediate_size": 3072, "vocab_size": 151936}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True}
    pytest.importorskip("transformers").Qwen3Config(**qwen, **heads).save_pretrained(tmp_path)
    keys = ("rollout.slots=128", "rollout.max_tokens=4096", "train.microbatch_tokens=16384", "--json")
    command = ("memory", "--plugin", TINY_TASK, "--model", tmp_path, *keys)
    gpu = ("--device", "cuda", "--memory", "24")
    done = cli(*command, *gpu)
    found = json.loads(done.out)
    assert (done.code, found["fits"]) == (1, False)
    proposed = found["proposed"]
    assert proposed["train.gradient_checkpointing"] is True
    assert found["steps_an_hour_h100"] > 0
    again = cli(*command, *gpu, *(f"{key}={str(value).lower()}" for key, value in proposed.items()))
    assert (again.code, json.loads(again.out)["fits"]) == (0, True)
    assert json.loads(again.out)["proposed"] == {}
    assert json.loads(cli(*command, *gpu[:3], "0.5").out)["proposed"] is None
    assert "--device cuda --memory 24" in cli.refusal(*command, "--memory", "24")
    verl = cli(*command, "--engine", "verl", "--memory", "80")
    assert max(phase["limit"] for phase in json.loads(verl.out)["phases"]) == 80 * 2**30, verl.err


def test_it_takes_the_words_of_run_and_covers_the_stage_that_needs_most(cli: Cli, model: Path, tmp_path: Path) -> None:
    words = ("--plugin", TINY_TASK, "--model", model, "--device", "cpu", "train.microbatch_tokens=512")
    rest = ("--out", tmp_path / "run", "--steps", "9", "--logger", "tensorboard", "--dry-run", "rollout.max_tokens=256")
    warm = ("--warm-start", "solve", "--where", "reward > 0", "warm_start.microbatch_tokens=2048")
    alone, both = (json.loads(cli("memory", *words, *rest, *more, "--json").out) for more in ((), warm))
    (alone_phase,), (phase,) = alone["phases"], both["phases"]
    assert (alone_phase["name"], phase["name"]) == ("sampling and training", "sampling and training of warm_start")
    assert phase["bytes"] > alone_phase["bytes"]
    assert "add --warm-start SOURCE" in cli.refusal("memory", *words, "--where", "reward > 0")
    assert "Add --engine" in cli.refusal("memory", *words, "--", "trainer.nnodes=1")
    assert not (tmp_path / "run").exists()
    (tmp_path / "old").mkdir()
    saved = {"plugin": TINY_TASK, "model": str(model), "device": "cpu", "warm_start": {"source": "solve"}}
    small = {"rollout": {"max_tokens": 256}, "train": {"microbatch_tokens": 256}}
    (tmp_path / "old" / "config.yaml").write_text(dump_yaml({**saved, **small}))
    resumed = ("memory", "--resume", tmp_path / "old")
    found = [json.loads(cli(*resumed, f"warm_start.microbatch_tokens={n}", "--json").out) for n in (512, 2048)]
    assert found[0]["phases"][0]["bytes"] < found[1]["phases"][0]["bytes"]
    assert "--model cannot be given with it" in cli.refusal(*resumed, "--model", model)


def test_what_cannot_be_estimated_is_said(cli: Cli, tmp_path: Path) -> None:
    assert "Name the model" in cli.refusal("memory", "--plugin", TINY_TASK)
    (tmp_path / "config.json").write_text("{")
    assert "cannot be loaded" in cli.refusal("memory", "--plugin", TINY_TASK, "--model", tmp_path)


def test_doctor_as_json(cli: Cli) -> None:
    done = cli("doctor", "--json")
    found = json.loads(done.out)
    assert {"Python", "machine", "device"} <= {check["what"] for check in found["checks"]}
    assert found["problems"] == sum(check["state"] == "problem" for check in found["checks"]) == done.code


PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "code", "said"),
    [
        (None, 0, {"chat format": "qwen3, by the model's chat template", "proof": "chat.thinking=false: ids appended"}),
        (PLAIN, 0, {"chat format": "hermes", "template": "it does not write tools; the first message describes them"}),
        (PLAIN.replace("<|im_end|>", "[{{ loop.index }}]<|im_end|>"), 1, {"proof": "chat.thinking=false: "}),
    ],
)
def test_doctor_of_a_model(cli: Cli, model: Path, template: str | None, code: int, said: dict[str, str]) -> None:
    from rlfactory_devkit.tokenizers import tiny_tokenizer

    tokenizer = tiny_tokenizer("qwen3")
    tokenizer.chat_template = template or tokenizer.chat_template
    tokenizer.save_pretrained(model)
    pytest.importorskip("transformers").Qwen3Config(**{**SHAPE, "vocab_size": len(tokenizer)}).save_pretrained(model)
    done = cli("doctor", "--model", model, "--json")
    found = {check["what"]: check["detail"] for check in json.loads(done.out)["checks"]}
    assert done.code == code, found
    assert {what: detail[: len(said[what])] for what, detail in found.items() if what in said} == said


def test_doctor_of_a_model_with_too_few_embeddings_or_none(cli: Cli, model: Path, tmp_path: Path) -> None:
    from rlfactory_devkit.tokenizers import tiny_tokenizer

    tiny_tokenizer("qwen3").save_pretrained(model)
    done = cli("doctor", "--model", model)
    assert done.code == 1
    assert "the model has 500" in done.out
    missing = cli("doctor", "--model", tmp_path / "nowhere")
    assert (missing.code, "There is no model folder" in missing.out) == (1, True)
    assert "two checks" in cli.refusal("doctor", "--model", model, "--engine", "verl")
