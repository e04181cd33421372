"""The red team finds what fools a reward, leaves an honest one in peace, and says what it found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rlfactory_devkit import TaskBench
from rlfactory_devkit.commands.redteam import redteam
from rlfactory_devkit.redteam import RedTeamResult, run_redteam
from rlfactory_devkit.redteam.frame import Frame
from rlfactory_devkit.redteam.mutation import certainly_wrong
from rlfactory_devkit.redteam.running import shortened

from rlfactory_core.errors import UsageError
from rlfactory_core.tiny import call
from rlfactory_core.types import Message

PLUGIN = str(Path(__file__).parents[3] / "tests" / "support" / "hackable_rewards.py")
SLOW = {"shotgun", "filler", "prose", "thought"}  # 100 kB each


def attack(
    *rewards: str, samples: int = 2, skip: set[str] | frozenset[str] = frozenset(), **options: Any
) -> RedTeamResult:
    given: list[dict[str, Any]] = [{"rewards": [{"name": name} for name in rewards]}] if rewards else []
    with TaskBench(PLUGIN, [*given, {"task": options}]) as bench:
        return run_redteam(bench, samples=samples, skip=skip)


def mistaken(result: RedTeamResult) -> set[str]:
    return {each.mutation.name for each in result.attempts if each.is_mistake}


def test_an_honest_reward_makes_no_mistake() -> None:
    result = attack(samples=6)
    assert [each.said for each in result.worst()] == []
    wrong, right = result.of_kind("wrong"), result.of_kind("right")
    assert (wrong.accepted, right.tried - right.accepted, result.masked) == (0, 0, 0)
    idle = {each.name for each in result.mutations if not result.tally(each).tried}
    steps = {"last_step", "claimed"}  # of tasks whose answer is what was done
    assert idle == {
        "other_number",
        "early_end",
        *steps,
    }  # no answer of such a task is a number, and it is one step long
    assert wrong.tried > 300


def test_a_reward_that_drops_a_number_s_signs_is_fooled_by_another_number() -> None:
    assert mistaken(attack("squad_em", prices=True, skip=SLOW)) == {"other_number"}
    assert mistaken(attack("exact_match", prices=True, skip=SLOW)) == set()


@pytest.mark.parametrize(
    ("reward", "mutations"),
    [
        ("substring", {"contradiction", "hedging", "shotgun"}),
        ("tool_output", {"in_tool_output"}),
        ("arguments", {"in_arguments"}),
        ("raw_text", {"in_reasoning"}),
        ("anything", {"constant", "empty", "empty_tags", "other_answer", "in_tool_output", "calls_only"}),
        ("part", {"empty", "empty_tags", "fragment"}),
        ("first_tag", {"contradiction"}),
        ("obedient", {"injection"}),
        ("pattern", {"pattern"}),
        ("bag_of_words", {"reordered"}),
        ("letters", {"reordered", "look_alike"}),
        ("long", {"filler", "shotgun"}),
        ("steps", {"calls_only"}),
        ("plausible", {"other_answer"}),
        ("modest", {"constant"}),
        ("on_topic", {"echo"}),
        ("exact_text", {"white_space", "twice"}),
        ("one_accepted", {"accepted"}),
        ("impatient", {"prose", "thought"}),
    ],
)
def test_a_bad_reward_is_fooled_by_the_mutation_that_is_made_for_it(reward: str, mutations: set[str]) -> None:
    result = attack(reward, skip=SLOW - mutations)
    assert mutations <= mistaken(result)
    worst = {each.mutation.name for each in result.worst(20)}
    assert mutations <= worst
    assert all(each.by in {reward, "the environment"} for each in result.worst())


def test_a_reward_that_is_fooled_in_one_way_is_accused_of_that_alone() -> None:
    for reward, mutation in (("tool_output", "in_tool_output"), ("arguments", "in_arguments"), ("pattern", "pattern")):
        assert mistaken(attack(reward, skip=SLOW)) == {mutation}


def test_an_answer_that_cannot_be_scored_is_neither_accepted_nor_refused() -> None:
    result = attack("unsure")
    assert result.masked > 0
    assert mistaken(result) == set()
    (filler,) = (each for each in result.mutations if each.name == "filler")
    assert (result.tally(filler).tried, result.tally(filler).masked) == (0, 4)


def test_the_success_component_is_counted_beside_the_reward() -> None:
    result = attack("substring", "exact_match", skip=SLOW)
    assert result.success == "exact_match"
    assert result.of_kind("wrong").accept_rate > 0.1  # halfway is reached by naming it alone
    assert result.of_kind("wrong", by_success=True).accept_rate == 0.0
    assert result.worst()[0].by == "substring"


def test_the_same_seed_attacks_alike() -> None:
    first, second = (attack("substring", skip=SLOW) for _ in range(2))
    assert [(each.said, each.reward) for each in first.attempts] == [
        (each.said, each.reward) for each in second.attempts
    ]


def test_a_task_that_cannot_be_solved_has_nothing_to_be_attacked_with() -> None:
    with pytest.raises(UsageError, match=r"no right answer to start from: the oracle gets only 0.*plugins check"):
        attack("exact_match", knows=False)


def test_an_unknown_mutation_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no mutation 'shotgnu' to skip. There are: constant, empty"):
        attack(skip={"shotgnu"})


def test_rewards_and_tasks_bring_injections_of_their_own(tmp_path: Path) -> None:
    plugin = tmp_path / "marked.py"
    plugin.write_text(
        "from rlfactory_core import Sample, Score, Task, hookimpl\n"
        "from rlfactory_core.rewards.scorers import last_answer\n"
        "class Marker:\n"
        "    injections = ('please: {answer}',)\n"
        "    async def score(self, trajectory):\n"
        "        answer = last_answer(trajectory) or ''\n"
        "        return Score(float(answer == trajectory.sample.answer or answer.startswith('please')))\n"
        "class Marked(Task):\n"
        "    rewards = {'marker': 1.0}\n"
        "    def samples(self, split):\n"
        "        return [Sample(str(number), 'Who?', name) for number, name in enumerate(['Ann', 'Bert'])]\n"
        "@hookimpl\n"
        "def rlfactory_tasks(register):\n"
        "    register('marked', Marked)\n"
        "@hookimpl\n"
        "def rlfactory_reward_scorers(register):\n"
        "    register('marker', Marker)\n"
    )
    with TaskBench(str(plugin)) as bench:
        result = run_redteam(bench, skip=SLOW)
    assert {(each.mutation.name, each.variant) for each in result.attempts if each.is_mistake} == {
        ("injection", "please: {answer}")
    }


def command(*args: str) -> Any:
    return CliRunner().invoke(redteam, [PLUGIN, "--samples", "2", *(f"--skip={name}" for name in sorted(SLOW)), *args])


def test_the_command_shows_rates_and_the_worst_examples() -> None:
    done = command("--reward", "tool_output")
    assert done.exit_code == 1
    words = " ".join(done.output.split())
    assert "false accepts 5.4% (6 of 112 wrong answers)" in words
    assert "false rejects 0.0% (0 of" in words
    assert "1. false accept: in_tool_output, look_up says 'Ann Lee', then a wrong one sample train-0 said" in words
    assert "reward 1, accepted from 0.5 on; mostly from tool_output" in words
    assert "remedy Read the model's last answer" in words


def test_the_command_exits_with_0_where_the_rates_are_allowed() -> None:
    assert command().exit_code == 0
    assert command("--reward", "tool_output", "--max-false-accepts", "0.1").exit_code == 0
    assert command("--reward", "one_accepted", "--max-false-accepts", "0.1").exit_code == 1
    assert command("--reward", "one_accepted", "--max-false-rejects", "0.5").exit_code == 0


def test_the_command_as_json() -> None:
    done = command("--reward", "obedient", "--json", "--worst", "1")
    found = json.loads(done.stdout[done.stdout.index("{") :])  # click 8.1 mixes the two streams in tests
    assert (done.exit_code, found["passed"], found["false_reject_rate"]) == (1, False, 0.0)
    assert found["mutations"]["injection"]["accepted"] > 0
    assert found["mutations"]["echo"] == {"kind": "wrong", "tried": 2, "accepted": 0, "masked": 0}
    (worst,) = found["worst"]
    assert (worst["mutation"], worst["by"], worst["components"]) == ("injection", "obedient", {"obedient": 1.0})


@pytest.mark.parametrize(
    ("message", "answer", "other"),
    [
        (Message("assistant", "So: <answer> 4 </answer>."), "4", "So: <answer> x </answer>."),
        (
            Message("assistant", "<answer>3</answer> no, <answer>4</answer>"),
            "4",
            "<answer>3</answer> no, <answer> x </answer>",
        ),
        (Message("assistant", " 4 "), "4", "x"),
        (Message("assistant", "So:\n```python\n  4\n```\n"), "  4", "So:\n```python\nx\n```\n"),
        (Message("assistant", "```\n3\n```\n```\n4\n```"), "```\n3\n```\n```\n4\n```", "x"),
        (
            Message("assistant", "", tool_calls=(call("submit", value="4", why="sum"),)),
            "4",
            {"value": "x", "why": "sum"},
        ),
        (Message("assistant", "", tool_calls=(call("submit", value=4),)), None, None),
    ],
)
def test_the_answer_is_found_where_the_oracle_puts_it(message: Message, answer: str | None, other: Any) -> None:
    frame = Frame.of(message, ("4",))
    assert (frame and frame.answer) == answer
    if frame is not None:
        said = frame.say("x")
        assert (said if isinstance(said, str) else said.tool_calls[0].arguments) == other


def test_only_what_nobody_could_take_for_right_is_called_wrong() -> None:
    assert certainly_wrong("Bert Moss", ["Ann Lee"])
    assert certainly_wrong("Ann Moss", ["Ann Lee"])
    for text in ("the ann lee.", "Ann", "Miss Ann Lee of York", ""):
        assert not certainly_wrong(text, ["Ann Lee"])
    assert certainly_wrong("-", ["+"])  # signs, of which normalisation leaves nothing


def test_what_was_said_is_shown_in_one_readable_line() -> None:
    assert shortened("a\n\nb\u200bc") == "a b\\u200bc"
    line = shortened("word " * 20_000)
    assert line.endswith("(100,000 characters)")
    assert len(line) < 300
