"""An attempt that an infra fault spoils is played again, as the same attempt: a retry selects nothing."""

from __future__ import annotations

from pathlib import Path

from conversations import CHAT, RecordingSampler, calling, check_exact
from rlfactory_devkit import TaskBench

from rlfactory_core.rollout import TokenModel
from rlfactory_core.types import StopReason, Trajectory

ANSWER = "<answer>him</answer>"
TASK = """
from pathlib import Path

from rlfactory_core import Sample, Task, ToolUnavailableError, hookimpl, tool

CALLED = Path("CALLED_FILE")


@tool
def search(query: str) -> str:
    '''Search.'''
    called = CALLED.read_text() if CALLED.exists() else ""
    CALLED.write_text(called + query)
    if len(called) < DOWN_FOR:
        raise ToolUnavailableError("the corpus is away")
    return "found"


class Searching(Task):
    tools = [search]
    rewards = {"exact_match": 1.0}

    def samples(self, split):
        yield Sample("s", "Who?", "him")


@hookimpl
def rlfactory_tasks(register):
    register("searching", Searching)
"""


def play(folder: Path, down_for: int, retries: int) -> tuple[Trajectory, RecordingSampler, str]:
    """An attempt whose tool fails for so many calls, and the queries of all calls."""
    file = folder / "searching.py"
    file.write_text(TASK.replace("DOWN_FOR", str(down_for)).replace("CALLED_FILE", str(folder / "called")))
    sampler = RecordingSampler([calling(query="a"), ANSWER, "never", "never"])
    overrides = [f"rollout.retries={retries}", "tools.retries=0", "rollout.max_turn_tokens=400"]
    with TaskBench(str(file), overrides) as bench:
        options = {"attempts": 1, "temperature": 1.0, "seed": 0, "session": "run/0"}
        playing = bench.runtime.play(bench.samples()[0], TokenModel(CHAT, sampler), **options)  # type: ignore[arg-type]
        (played,) = bench.run(playing).trajectories
    return played, sampler, (folder / "called").read_text()


def test_a_retry_says_the_same_again_and_goes_on(tmp_path: Path) -> None:
    played, sampler, called = play(tmp_path, down_for=1, retries=1)
    assert (played.stop, played.faults, played.reward) == (StopReason.FINAL_ANSWER, (), 1.0)
    assert called == "aa"
    assert len(sampler.calls) == 2  # the call was sampled once
    check_exact(played.turns, sampler)


def test_a_tool_that_stays_away_masks_after_all_retries(tmp_path: Path) -> None:
    played, sampler, called = play(tmp_path, down_for=9, retries=2)
    assert played.masked
    assert called == "aaa"
    assert len(sampler.calls) == 1  # who called was not sampled anew


def test_without_retries_there_is_one_attempt(tmp_path: Path) -> None:
    played, _, called = play(tmp_path, down_for=1, retries=0)
    assert played.masked
    assert called == "a"
