"""What an author may get wrong in a task's class: told in words that say where it is and what to write."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rlfactory_devkit import TaskBench, constant
from rlfactory_devkit.checks.context import CheckContext

from rlfactory_core import Sample, Task
from rlfactory_core.cli.main import invoke
from rlfactory_core.errors import ConfigError, PluginError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.tasks import setup
from rlfactory_core.tasks.setup import own_samples

HOOK = """

@hookimpl
def rlfactory_tasks(register):
    register("wrong", Wrong)
"""
COUNTS = """
import itertools
from rlfactory_core import Sample, Task, hookimpl

class Wrong(Task):
    def samples(self, split):
        return (Sample(f"{split}-{n}", f"{n}?", str(n)) for n in itertools.count())
"""
PAYS = """
from rlfactory_core import Sample, Task, hookimpl
from rlfactory_core.protocols import EnvStart, EnvStep
from rlfactory_core.types import StopReason

class Pays:
    def __init__(self, sample):
        self.sample = sample

    async def start(self):
        return EnvStart(self.sample.messages)

    async def step(self, message):
        return EnvStep(stop=StopReason.ENV_DONE, reward=float("yes" in message.content))

    async def close(self):
        pass

class Wrong(Task):
    rewards = {}
    reward_bounds = (0.0, 1.0)

    def samples(self, split):
        yield Sample(split, "Is it so?")

    def make_env(self, sample, manager, context):
        return Pays(sample)
"""
OPTIONS = """
{imports}
from rlfactory_core import Section, Task, hookimpl

class Other:
    pass

class Wrong(Task):
    class Config(Section):
        {option}
"""


def plugin(folder: Path, text: str) -> str:
    file = folder / "wrong.py"
    file.write_text(text.lstrip() + HOOK, encoding="utf-8")
    return str(file)


class Odd(Task):
    given: Any = None

    def samples(self, split: str) -> Any:
        return self.given


def test_a_split_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "MOST_SAMPLES", 1000)
    with (
        pytest.raises(PluginError, match=r"Wrong\.samples\('train'\) goes on after 1,000 samples; .* --data"),
        CheckContext(plugin(tmp_path, COUNTS)) as context,
    ):
        context.open()


def test_a_split_may_be_as_large_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "MOST_SAMPLES", 3)
    task = Odd()
    task.given = itertools.islice(_forever(), 3)
    assert len(own_samples(task, "eval")) == 3


def _forever() -> Iterator[Sample]:
    return (Sample(str(number), "?") for number in itertools.count())


def test_a_split_that_is_none_is_refused() -> None:
    with pytest.raises(PluginError, match=r"Odd\.samples\('eval'\) gave None; expected Sample objects"):
        own_samples(Odd(), "eval")


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ("Sample(3, '?')", r"whose id is 3; expected a str, such as '3'"),
        ("Sample('a', [{'role': 'user'}])", r"whose prompt is \[\{'role'.*; expected a str, or Message"),
        ("Sample('a', '?', '!', None)", "whose metadata is None; expected a dict"),
    ],
)
def test_a_sample_of_wrong_types_is_refused(tmp_path: Path, sample: str, said: str) -> None:
    text = COUNTS[: COUNTS.index("        return")] + f"        yield {sample}\n"
    with pytest.raises(PluginError, match=said):
        TaskBench(plugin(tmp_path, text)).rows("train")


def test_a_split_that_exits_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = plugin(tmp_path, COUNTS[: COUNTS.index("        return")] + "        raise SystemExit(4)\n")
    assert invoke(["plugins", "check", file]) == 1
    assert "wrong.py, line 6 calls sys.exit(4)" in capsys.readouterr().err


def test_an_environment_that_pays_alone_is_told_how(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rewards = \{'env_reward': 0\.0\}"):
        TaskBench(plugin(tmp_path, PAYS))
    (tmp_path / "right").mkdir()
    right = PAYS.replace("rewards = {}", "rewards = {'format': 0.5, 'env_reward': 0.0}")
    with TaskBench(plugin(tmp_path / "right", right)) as bench:
        played = [*bench.play(constant("yes"), bench.samples()), *bench.play(constant("no"), bench.samples())]
        assert bench.runtime.success == "env_reward"
    assert [(each.reward, each.masked) for each in played] == [(1.0, False), (0.0, False)]
    assert [each.score and each.score.components["env_reward"] for each in played] == [1.0, 0.0]


def test_the_reward_of_an_environment_is_not_counted_twice(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a weight would count it twice\. Write the weight 0"):
        TaskBench(plugin(tmp_path, PAYS.replace("rewards = {}", "rewards = {'env_reward': 1.0}")))


@pytest.mark.parametrize(
    ("imports", "option", "said"),
    [
        ("", "size = 3", r"`size = 3` \(wrong\.py, line \d+\)\. Give the option a type, such as"),
        ("", "size: Other", r"Other'>.*\. The type of an option is plain data"),
        ("from __future__ import annotations", "place: Path = '.'", r"you should define `Path`.*at the top"),
    ],
)
def test_options_that_cannot_be_are_told_in_our_words(tmp_path: Path, imports: str, option: str, said: str) -> None:
    file = plugin(tmp_path, OPTIONS.format(imports=imports, option=option))
    with pytest.raises(PluginError, match=said) as caught:
        Registry().task(file).make({}, 0)
    assert "pydantic" not in str(caught.value)


def test_bounds_that_are_no_pair_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"has reward_bounds = 1\.0; expected two numbers, as in \(0\.0, 1\.0\)"):
        TaskBench(plugin(tmp_path, PAYS.replace("(0.0, 1.0)", "1.0")))


AGENT = """
from rlfactory_core import Message, Sample, Task, hookimpl

class Wrong(Task):
    rewards = {"exact_match": 1.0}

    def samples(self, split):
        yield Sample(f"{split}-1", "Who?", "him", split=split)

    def solve(self, sample, messages):
        return Message("assistant", "him")

    async def agent(self, sample, endpoint):
        raise LookupError("the agent has no such tool")
"""


def test_what_an_agent_raises_is_told_and_not_laid_to_solve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rlfactory_agents")
    assert invoke(["plugins", "check", plugin(tmp_path, AGENT), "--only", "oracle"]) == 1
    said = capsys.readouterr().out
    assert "the agent failed in 1 of 1 episode. The first: " in said
    assert "LookupError: the agent has no such tool" in said
    assert "Task.solve" not in said


REWARD = """
from rlfactory_core import Sample, Score, Task, hookimpl

class Needs:
    def __init__(self, count):
        self.count = count

    async def score(self, trajectory):
        return Score(1.0)

class Wrong(Task):
    rewards = {"needs": 1.0}

    def samples(self, split):
        yield Sample(f"{split}-1", "Who?", "him", split=split)

@hookimpl
def rlfactory_reward_scorers(register):
    register("needs", Needs)
"""


def test_a_reward_that_needs_an_option_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'needs' cannot be made without options: .*'count'.* have to be given"):
        TaskBench(plugin(tmp_path, REWARD))
