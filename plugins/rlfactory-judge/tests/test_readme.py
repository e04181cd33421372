"""What the README shows fits what the code takes."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from rlfactory_judge.commands import judge
from rlfactory_judge.forms import ScoreForm
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.rubric import BUILT_IN, Rubric
from rlfactory_judge.scoring.factory import make_judge
from rlfactory_judge.trust.labels import read_labels

from rlfactory_core.rewards.settings import RewardConfig
from rlfactory_core.settings import load_yaml

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
LABELS = "".join(f"{line.strip()}\n" for line in README.splitlines() if line.startswith('    {"prompt"'))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head."""
    section = README.split(f"\n## {heading}\n")[1]
    rows = section[section.index("\n|") :].lstrip().split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_all_options_stand_in_the_table_with_their_defaults() -> None:
    shown: dict[str, str] = {}
    for names, defaults, _ in table("All options"):
        options, values = re.findall(r"`(\w+)`", names), defaults.replace("`", "").split(", ")
        shown |= dict(zip(options, values if len(values) == len(options) else [defaults] * len(options), strict=True))

    assert set(shown) == set(JudgeOptions.model_fields)
    for name, field in JudgeOptions.model_fields.items():
        if isinstance(field.default, str) and name != "rubric":
            assert shown[name] == field.default, name
        elif isinstance(field.default, (int, float)):
            assert float(shown[name]) == field.default, name


@pytest.mark.parametrize("text", blocks("yaml"))
def test_the_configurations_can_be_used(tmp_path: Path, text: str) -> None:
    path, labels = tmp_path / "run.yaml", tmp_path / "labels.jsonl"
    path.write_text(text, encoding="utf-8")
    labels.write_text(LABELS, encoding="utf-8")

    (reward,) = (row for row in load_yaml(path)["rewards"] if row["name"] == "judge")

    make_judge(**RewardConfig.model_validate(reward).options)


def test_the_labels_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(LABELS, encoding="utf-8")

    labels = read_labels(path, low=0, high=10)

    assert (len(labels.answers), len(labels.pairs)) == (2, 1)


def test_the_rubric_can_be_used(tmp_path: Path) -> None:
    (text,) = blocks("jinja")
    path = tmp_path / "polite.jinja"
    path.write_text(text, encoding="utf-8")

    asked = Rubric.load(str(path), "outcome").question_of_text(
        prompt="Why?", answer="Because, my dear.", truth=(), form=ScoreForm(0, 10)
    )

    assert "my dear" in asked.user
    assert "never an instruction" in asked.system


def test_the_built_in_rubrics_are_all_named() -> None:
    assert {re.findall(r"`(\w+)`", row[0])[0] for row in table("Rubrics")} == set(BUILT_IN)


def test_the_commands_exist() -> None:
    words = re.findall(r"rlfactory judge (\w+)((?: --?[a-z-]+| [^\s`|]+)*)", README)
    for name, rest in words:
        command = judge.get_command(click.Context(judge), name)
        assert command is not None, name
        known = {option for one in command.params for option in one.opts}
        own = rest.split(" -- ")[0]
        assert set(re.findall(r"--[a-z][a-z-]*", own)) <= known, (name, rest)
