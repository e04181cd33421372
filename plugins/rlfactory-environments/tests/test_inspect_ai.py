"""A task of rlfactory that inspect_ai evaluates: its rewards, its tools, its faults and limits, its end."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_openai import Reply, said, serve

from rlfactory_core import ToolSpec
from rlfactory_core.runner import TaskBench, oracle

inspect_ai = pytest.importorskip("inspect_ai", reason="nox -s environments installs it")

from inspect_ai._util.error import PrerequisiteError  # noqa: E402
from inspect_ai.log import EvalLog, EvalSample  # noqa: E402
from inspect_ai.model import ChatMessage, ModelOutput, ModelUsage, get_model  # noqa: E402
from rlfactory_environments.inspect_ai.task import _tool_info, rlfactory_task  # noqa: E402

VAULTS = '''
"""Vaults with a code each, which open with the right buttons; what happens is written to a file."""
import asyncio
from pathlib import Path
from rlfactory_core import EnvStep, Message, Sample, StopReason, Task, ToolEnv, ToolContext, hookimpl, tool
from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.tiny import call

LOG = Path(__file__).with_name("log")

def note(line):
    with LOG.open("a") as file:
        print(line, file=file)

@tool
async def press(button: int, context: ToolContext, hard: bool = False) -> str:
    """Press a button."""
    if button == 13:
        raise ToolUnavailableError("the vault is not here")
    if button == 14:
        await asyncio.sleep(600)
    await asyncio.sleep(0)
    pressed = context.state.setdefault("pressed", [])
    pressed.append(button)
    return f"pressed {pressed}"

class Vault(ToolEnv):
    def __init__(self, sample, manager, context):
        super().__init__(sample, manager, context)
        self.code, self.state = sample.metadata["code"], context.state
    async def step(self, message):
        step = await super().step(message)
        is_open = self.state.get("pressed", []) == self.code
        stop = StopReason.ENV_DONE if is_open else step.stop
        return EnvStep(step.messages, stop, float(is_open), step.results)
    async def close(self):
        await asyncio.sleep(0.01)
        await super().close()
        note("an episode ends")

class Vaults(Task):
    tools = [press]
    rewards = {"env_reward": 0.0}
    reward_bounds = (0.0, 1.0)
    def samples(self, split):
        for number in range(32 if split == "eval" else 0):
            code = [number % 10, number // 10]
            yield Sample(f"v{number}", f"Press {code[0]}, then {code[1]}.", metadata={"code": code}, split=split)
    def make_env(self, sample, manager, context):
        return Vault(sample, manager, context)
    def solve(self, sample, messages):
        turn = sum(each.role == "assistant" for each in messages)
        return Message("assistant", "", tool_calls=(call("press", button=sample.metadata["code"][said]),))
    async def open(self):
        note("opened")
    async def close(self):
        note("closed")

@hookimpl
def rlfactory_tasks(register):
    register("vaults", Vaults)
'''
USAGE = ModelUsage(input_tokens=20, output_tokens=5, total_tokens=25)  # else it would be counted by what is downloaded
SHOP = str(Path(__file__).parents[3] / "examples" / "shop.py")
Says = Callable[[list[ChatMessage]], "ModelOutput | str"]


@pytest.fixture
def vaults(tmp_path: Path) -> str:
    file = tmp_path / "vaults.py"
    file.write_text(f"{VAULTS}\n# {tmp_path}", encoding="utf-8")  # a file of the same content would be the same module
    return str(file)


def evaluated(plugin: str, says: Says, folder: Path, config: Mapping[str, Any] = {}, **options: Any) -> EvalLog:
    async def output(messages: list[ChatMessage], *_: Any) -> ModelOutput:
        await asyncio.sleep(0)  # so that samples take turns
        answer = says(messages)
        made = ModelOutput.from_content("mock", answer) if isinstance(answer, str) else answer
        return made.model_copy(update={"usage": USAGE})

    model = get_model("mockllm/model", custom_outputs=output, memoize=False)
    task = rlfactory_task(plugin, **config)
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(folder / "logs"), display="none", **options)
    return log


def pressing(*buttons: int) -> Says:
    """A policy of the vaults: these buttons, or those that the prompt names."""

    def says(messages: list[ChatMessage]) -> ModelOutput:
        wanted = buttons or [int(word.strip(".,")) for word in messages[0].text.split() if word.strip(".,").isdigit()]
        turn = sum(each.role == "assistant" for each in messages)
        return ModelOutput.for_tool_call("mock", "press", {"button": wanted[min(turn, len(wanted) - 1)]})

    return says


def shopping(messages: list[ChatMessage]) -> ModelOutput | str:
    """The right way in the shop."""
    if messages[-1].role == "tool":
        return f"<answer>{messages[-1].text}</answer>"
    return ModelOutput.for_tool_call("mock", "count", {"item": messages[0].text.split()[2]})


def scores(log: EvalLog) -> list[dict[str, float]]:
    assert log.status == "success", log.error
    return [each.scores["rlfactory_rewards"].value for each in samples(log)]  # type: ignore[index, misc]


def samples(log: EvalLog) -> list[EvalSample]:
    assert log.samples
    return log.samples


def test_a_solution_scores_as_in_a_run_and_a_wrong_answer_does_not(tmp_path: Path) -> None:
    right = evaluated(SHOP, shopping, tmp_path, limit=6)
    with TaskBench(SHOP) as bench:
        ours = bench.play(oracle(bench.task), bench.rows("eval")[:6])
    assert scores(right) == [{"reward": each.reward, **each.score.components} for each in ours if each.score]
    assert [each.target for each in samples(right)] == [[each.sample.answer] for each in ours]
    assert {metric.name for score in right.results.scores for metric in score.metrics.values()} == {"mean", "stderr"}  # type: ignore[union-attr]
    wrong = evaluated(SHOP, lambda _: "There are 7.", tmp_path, limit=3)
    assert [each["reward"] for each in scores(wrong)] == [0.0, 0.0, 0.0]


def test_calls_go_through_the_tasks_tools_and_a_wrong_one_is_answered_in_words(tmp_path: Path) -> None:
    def says(messages: list[ChatMessage]) -> ModelOutput | str:
        if len(messages) == 1:
            return ModelOutput.for_tool_call("mock", "count", {"thing": "figs"})
        return shopping(messages[:1] if len(messages) == 3 else messages)

    (sample,) = samples(evaluated(SHOP, says, tmp_path, limit=1))
    first, second = (each for each in sample.messages if each.role == "tool")
    assert "item" in first.text
    with TaskBench(SHOP) as bench:
        (ours,) = bench.play(oracle(bench.task), bench.rows("eval")[:1])
    assert second.text == ours.turns[0].results[0].content
    assert [each.role for each in sample.messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


def test_samples_at_once_share_no_state_and_the_task_is_opened_once(vaults: str, tmp_path: Path) -> None:
    log = evaluated(vaults, pressing(), tmp_path, epochs=2, max_samples=64)
    assert scores(log) == [{"reward": 1.0, "env_reward": 1.0}] * 64
    assert {len(each.messages) for each in samples(log)} == {4}  # the last press ends the episode
    happened = (tmp_path / "log").read_text().splitlines()
    assert [happened[0], happened[-1], len(happened)] == ["opened", "closed", 66]


def test_a_fault_is_an_error_and_no_wrong_answer(vaults: str, tmp_path: Path) -> None:
    def says(messages: list[ChatMessage]) -> ModelOutput:
        return (pressing(13) if "Press 3, then 0" in messages[0].text else pressing())(messages)

    log = evaluated(vaults, says, tmp_path, limit=5, fail_on_error=False)
    failed = [each for each in samples(log) if each.error]
    assert [each.id for each in failed] == ["v3"]
    assert "press: " in failed[0].error.message  # type: ignore[union-attr]
    assert not failed[0].scores
    assert log.results is not None
    assert log.results.completed_samples == 4
    assert log.results.scores[0].metrics["mean"].value == 1.0


@pytest.mark.parametrize(
    ("limit", "kind"), [({"message_limit": 4}, "message"), ({"turn_limit": 2}, "turn"), ({"token_limit": 40}, "token")]
)
def test_a_limit_of_inspect_ai_ends_an_attempt_which_is_scored(
    vaults: str, tmp_path: Path, limit: dict[str, int], kind: str
) -> None:
    (sample,) = samples(evaluated(vaults, pressing(7), tmp_path, limit=1, **limit))
    assert sample.limit is not None
    assert sample.limit.type == kind
    assert sample.scores["rlfactory_rewards"].value == {"reward": 0.0, "env_reward": 0.0}  # type: ignore[index]


def test_a_time_limit_closes_the_environment_and_leaves_no_score(vaults: str, tmp_path: Path) -> None:
    log = evaluated(vaults, pressing(14), tmp_path, limit=1, time_limit=1)
    (sample,) = samples(log)
    assert log.status == "success"
    assert math.isnan(sample.scores["rlfactory_rewards"].value)  # type: ignore[index, arg-type]
    assert sample.limit is not None
    assert sample.limit.type == "time"
    assert (tmp_path / "log").read_text().splitlines() == ["opened", "an episode ends", "closed"]


def test_a_schema_that_inspect_ai_cannot_say_stands_in_the_description() -> None:
    plain = {"type": "object", "properties": {"title": {"type": "string", "title": "T"}}, "required": ["title"]}
    assert _tool_info(ToolSpec("find", "Find it.", plain)).description == "Find it."
    rich = {**plain, "properties": {"title": {"type": "string", "not": {"const": "x"}}}}
    assert '"not": {"const": "x"}' in _tool_info(ToolSpec("find", "Find it.", rich)).description


def test_the_command_finds_the_task(vaults: str, tmp_path: Path) -> None:
    press = said(None, ("press", '{"button": 0}'))
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    press = Reply(body={**press.body, "id": "0", "model": "toy", "created": 0, "usage": usage})
    command = [sys.executable, "-m", "inspect_ai", "eval", "rlfactory_environments/rlfactory_task"]
    command += ["-T", f"plugin={vaults}", "-T", "rollout.max_turns=3", "--limit", "2", "--display", "plain"]
    command += ["--model", "openai-api/fake/toy", "--log-dir", str(tmp_path / "logs")]
    with serve(lambda _: press) as server:
        own = {**os.environ, "FAKE_BASE_URL": server.url, "FAKE_API_KEY": "none"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, cwd=tmp_path, env=own)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "env_reward" in done.stdout
    assert len(server.requests) == 5  # two presses open the first vault, the second attempt ends at the limit
    assert server.requests[0]["tools"][0]["function"]["name"] == "press"


def test_a_mistake_is_an_error_that_inspect_ai_shows_without_a_traceback(vaults: str) -> None:
    with pytest.raises(PrerequisiteError, match="max_turns"):
        rlfactory_task(vaults, **{"rollout.max_turn": 2})
    with pytest.raises(PrerequisiteError, match="no training samples"):
        rlfactory_task(vaults, split="train")
    with pytest.raises(PrerequisiteError, match="nothing_like_it"):
        rlfactory_task("nothing_like_it")
