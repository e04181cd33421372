"""`rlfactory samples`: the prompt that a sample becomes, and the score of an answer, without a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import Cli

PLUGIN = """
from rlfactory_core import Message, Sample, Task, Verdict, hookimpl
from rlfactory_core.tiny import answer_text


class Polite:
    async def verify(self, trajectory):
        said = trajectory.turns[-1].message.content
        return Verdict("please" in said, () if "please" in said else ("it does not say please",))


class Capitals(Task):
    rewards = {"exact_match": 1.0, "polite": 0.25}

    def samples(self, split):
        return [Sample("norway", "Capital of Norway?", "Oslo"), Sample("peru", "Capital of Peru?", "Lima")]

    def solve(self, sample, messages):
        print("solving")
        return Message("assistant", f"please: {answer_text(sample.answer)}")


@hookimpl
def rlfactory_tasks(register):
    register("capitals", Capitals)


@hookimpl
def rlfactory_verifiers(register):
    register("polite", Polite)
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "capitals.py"
    path.write_text(PLUGIN)
    return path


def test_an_answer_is_scored_by_each_reward(cli: Cli, task: Path) -> None:
    done = cli("samples", "score", "--plugin", task, "--sample", "peru", "--answer", "<answer>Lima</answer>", "--json")
    assert done.code == 0
    found = json.loads(done.out)
    assert found["reward"] == 1.0
    assert {item["name"]: (item["score"], item["weight"]) for item in found["rewards"]} == {
        "exact_match": (1.0, 1.0),
        "polite": (0.0, 0.25),
    }
    assert found["verdicts"]["polite"] == {"passed": False, "reasons": ["it does not say please"]}


def test_without_an_answer_the_tasks_solution_is_scored(cli: Cli, task: Path) -> None:
    done = cli("samples", "score", "--plugin", task, "--json")
    found = json.loads(done.out)  # what the task prints is not in it
    assert found["said"] == ["please: <answer> Oslo </answer>"]
    assert found["reward"] == 1.25
    other = cli("samples", "score", "--plugin", task, "--reward", "exact_match=2")
    assert other.out.splitlines()[-1].split() == ["reward", "2"]
    assert "polite" not in other.out


def test_your_own_data_is_scored_by_its_answers(cli: Cli, tmp_path: Path) -> None:
    row = {"prompt": "Capital of Peru?", "reward_model": {"ground_truth": {"target": ["Lima"]}}}
    data = tmp_path / "train.jsonl"
    data.write_text(json.dumps(row) + "\n")
    given = ("samples", "score", "--data", data, "--reward", "exact_match", "--json")
    assert json.loads(cli(*given).out)["reward"] == 1.0
    assert json.loads(cli(*given, "--answer", "<answer>Cusco</answer>").out)["reward"] == 0.0


def test_a_wrong_word_is_refused(cli: Cli, task: Path) -> None:
    refusal = cli.refusal("samples", "score", "--plugin", task, "--sample", "chile")
    assert "expected a number from 1 to 2, or an id such as norway" in refusal
    assert "train.steps" in cli.refusal("samples", "score", "--plugin", task, "train.steps=-1")


def test_a_sample_is_shown_as_the_model_gets_it(cli: Cli, task: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from rlfactory_devkit.tokenizers import tiny_tokenizer

    tiny_tokenizer("hermes").save_pretrained(tmp_path / "model")
    given = ("samples", "prompt", "--plugin", task, "--model", tmp_path / "model", "--sample", "2")
    found = json.loads(cli(*given, "--json").out)
    assert found["sample"] == "peru"
    assert "Capital of Peru?" in found["text"]
    assert "<|im_start|>assistant" in found["text"]
    assert found["tokens"] > 10
    short = cli(*given, "rollout.max_tokens=10")
    assert f"{found['tokens']} tokens, {found['format']} format, sample 'peru'" in short.err
    assert "leaves no room" in short.err
    assert "There is no model folder" in cli.refusal("samples", "prompt", "--plugin", task, "--model", "/no/model")


def test_the_prompts_of_an_agent_are_its_own(cli: Cli, task: Path) -> None:
    refusal = cli.refusal("samples", "prompt", "--plugin", task, "--agent", "python agent.py")
    assert "rlfactory agents try" in refusal


def test_the_first_rows_of_a_file(cli: Cli, tmp_path: Path) -> None:
    data = tmp_path / "train.jsonl"
    row = {"prompt": "x" * 5000, "extra": {"index": 1, "on": None}}
    data.write_text((json.dumps(row) + "\n") * 9)
    found = json.loads(cli("samples", "rows", data, "-n", "2", "--json").out)
    assert found["columns"] == ["prompt", "extra.index", "extra.on"]
    assert len(found["rows"]) == 2
    assert found["rows"][0]["prompt"] == "x" * 2000 + " …"
    assert found["rows"][0]["extra"] == {"index": 1, "on": None}
    assert "columns: prompt, extra.index, extra.on" in cli("samples", "rows", data).out
    assert "is not a file; give one .jsonl or .parquet file" in cli.refusal("samples", "rows", tmp_path)


def test_the_first_rows_of_a_parquet_file(cli: Cli, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    data = tmp_path / "train.parquet"
    parquet.write_table(pyarrow.table({"prompt": ["Who?"], "info": [{"answer": ["Ada"]}]}), data)
    found = json.loads(cli("samples", "rows", data, "--json").out)
    assert found == {"columns": ["prompt", "info.answer"], "rows": [{"prompt": "Who?", "info": {"answer": ["Ada"]}}]}
