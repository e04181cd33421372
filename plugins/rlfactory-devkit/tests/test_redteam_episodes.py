"""The red team and the checks on tasks of several steps: what earlier steps earn, and what is earned repeatedly."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlfactory_devkit import TaskBench
from rlfactory_devkit.checks import run_check
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.redteam import RedTeamResult, run_redteam

PICKING = '''
from rlfactory_core import EnvStep, Message, Sample, StopReason, Task, ToolContext, ToolEnv, hookimpl, tool
from rlfactory_core.tiny import call

FRUIT = ("apple", "fig", "pear", "plum", "quince", "lemon")
{paid}


@tool
def pick(fruit: str, context: ToolContext) -> str:
    """Pick a fruit."""
    picked = context.state["picked"]
    picked.append(fruit)
    return f"{{fruit}} is in the basket"


@tool
def drop(fruit: str, context: ToolContext) -> str:
    """Put a fruit back."""
    context.state["picked"].append(f"no {{fruit}}")
    return f"{{fruit}} is back"


class Basket(ToolEnv):
    def __init__(self, sample, manager, context):
        super().__init__(sample, manager, context)
        self.wanted, self.state = sample.metadata["wanted"], context.state

    async def start(self):
        self.state.update(picked=[])
        return await super().start()

    async def step(self, message):
        step = await super().step(message)
        reward = paid(self.wanted, self.state["picked"], last=step.stop is not None)
        return EnvStep(step.messages, step.stop, reward, step.results)


class Picking(Task):
    tools = [pick, drop]
    rewards = {{"env_reward": 0.0}}
    reward_bounds = ({low}, 1.0)

    def samples(self, split):
        for number in range(6):
            wanted = [FRUIT[number], FRUIT[(number + 2) % 6]]
            asked = f"Pick {{wanted[0]}}, then {{wanted[1]}}."
            yield Sample(f"{{split}}-{{number}}", asked, None, {{"wanted": wanted}}, split)

    def make_env(self, sample, manager, context):
        return Basket(sample, manager, context)

    def solve(self, sample, messages):
        picked = sum(message.role == "tool" for message in messages)
        if picked == 2:
            return Message("assistant", "I am done.")
        return Message("assistant", "", tool_calls=(call("pick", fruit=sample.metadata["wanted"][picked]),))


@hookimpl
def rlfactory_tasks(register):
    register("picking", Picking)
'''
EACH = """
def paid(wanted, picked, last):
    return 0.5 if picked and not last and picked[-1] in wanted else 0.0
"""
ONCE = """
def paid(wanted, picked, last):
    new = picked and not last and picked[-1] in wanted and picked.count(picked[-1]) == 1
    return 0.5 if new else 0.0
"""
FIRST = """
def paid(wanted, picked, last):
    return 1.0 if not last and len(picked) == 1 else 0.0
"""
PENALTY = """
def paid(wanted, picked, last):
    right = picked == wanted
    return (1.0 if right else -1.0 if picked else 0.0) if last else 0.0
"""


DROPPED = """
def paid(wanted, picked, last):
    new = picked and not last and picked.count(picked[-1]) == picked.count(f"no {picked[-1]}") + 1
    return 0.5 if new and picked[-1] in wanted else 0.0
"""
AT_ONCE = """
def paid(wanted, picked, last):
    return 0.5 * sum(fruit in wanted for fruit in picked) if last else 0.0
"""
# The episode ends with a call instead of words.
FINISHING = (
    PICKING.replace('Message("assistant", "I am done.")', 'Message("assistant", "", tool_calls=(call("finish"),))')
    .replace("tools = [pick, drop]", "tools = [pick, drop, finish]")
    .replace(
        "        reward = paid(",
        """        if any(call.name == "finish" for call in message.tool_calls):
            step = EnvStep((), StopReason.ENV_DONE, 0.0, step.results)
        reward = paid(""",
    )
    .replace(
        "class Basket",
        '''@tool
def finish(context: ToolContext) -> str:
    """End the episode."""
    context.state["picked"].append("the end")
    return "bye"


class Basket''',
    )
)
ALL = """
def paid(wanted, picked, last):
    return float(picked == [*wanted, "the end"])
"""
ENDED = """
def paid(wanted, picked, last):
    return float(picked[-1:] == ["the end"])
"""


def plugin(folder: Path, paid: str, low: float = 0.0, task: str = PICKING) -> str:
    file = folder / "picking.py"
    file.write_text(task.format(paid=paid, low=low).lstrip(), encoding="utf-8")
    return str(file)


def attack(file: str) -> RedTeamResult:
    with TaskBench(file) as bench:
        return run_redteam(bench, samples=3)


def mistaken(result: RedTeamResult) -> set[str]:
    return {each.mutation.name for each in result.attempts if each.is_mistake}


def test_what_the_steps_have_earned_is_no_accepted_answer(tmp_path: Path) -> None:
    result = attack(plugin(tmp_path, ONCE))
    assert mistaken(result) == set()
    tried = {each.mutation.name for each in result.attempts}
    assert {"repeated", "all_calls", "early_end"} <= tried
    assert not tried & {"constant", "other_answer", "oracle"}  # nothing hangs on the last turn
    assert result.of_kind("wrong").tried > 10


def test_a_step_that_is_paid_each_time_is_farmed(tmp_path: Path) -> None:
    file = plugin(tmp_path, EACH)
    assert "repeated" in mistaken(attack(file))
    with CheckContext(file) as context:
        found = run_check("bounds", context)
    assert not found.passed
    assert "lie outside of 0 to 1" in found.evidence[0]


@pytest.mark.parametrize(("paid", "how"), [(DROPPED, "step 1 and drop in turn"), (AT_ONCE, "step 1, 12 times at once")])
def test_a_step_that_is_paid_again_once_undone_or_many_times_in_a_turn_is_farmed(
    tmp_path: Path, paid: str, how: str
) -> None:
    assert how in {each.variant for each in attack(plugin(tmp_path, paid)).attempts if each.is_mistake}


WALKING = PICKING.replace("FRUIT[(number + 2) % 6]]", "FRUIT[number]]")
WALKED = """
def paid(wanted, picked, last):
    return 0.5 if picked and not last and picked[-1] in wanted and len(picked) < 3 else 0.0
"""


def test_a_step_that_the_oracle_itself_takes_again_is_not_farmed(tmp_path: Path) -> None:
    assert "repeated" not in mistaken(attack(plugin(tmp_path, WALKED, task=WALKING)))


def test_a_reward_that_is_complete_before_the_last_steps_lets_the_policy_stop(tmp_path: Path) -> None:
    assert "early_end" in mistaken(attack(plugin(tmp_path, FIRST)))


@pytest.mark.parametrize(("paid", "low"), [(PENALTY, -1.0), (ONCE, -0.5)])
def test_silence_that_earns_nothing_is_below_the_floor_of_a_reward_with_penalties(
    tmp_path: Path, paid: str, low: float
) -> None:
    with CheckContext(plugin(tmp_path, paid, low)) as context:
        found = run_check("floor", context)
    assert found.passed, found.evidence


def test_a_task_whose_answer_is_what_was_done_is_attacked_by_its_episodes(tmp_path: Path) -> None:
    result = attack(plugin(tmp_path, ALL, task=FINISHING))
    assert (mistaken(result), result.left_out) == (set(), {})
    tried = {each.mutation.name for each in result.attempts}
    assert tried == {
        *("empty", "repeated", "all_calls", "early_end", "other_episode", "last_step", "claimed"),
        *("oracle", "prose", "thought"),
    }
    assert {"last_step", "other_episode"} <= mistaken(attack(plugin(tmp_path, ENDED, task=FINISHING)))
