"""A mutation test of `rlfactory plugins check`: each bad task is caught by the check that is there for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlfactory_devkit.checks import CHECKS, run_checks
from rlfactory_devkit.checks.context import CheckContext, CheckOptions
from rlfactory_devkit.checks.result import CheckResult

PLUGIN = str(Path(__file__).parents[3] / "tests" / "support" / "bad_tasks.py")
SLOW = {"determinism", "pickling", "tokens"}  # another process, nine tokenizers: only where they matter
OPTIONS = CheckOptions(samples=6, deadline_s=10.0, close_s=0.3, hang_s=0.2)


def check(bad: str, *also: str) -> dict[str, CheckResult]:
    """What the quick checks find, and those named."""
    names = [name for name in CHECKS if name not in SLOW or name in also]
    with CheckContext(PLUGIN, [f"task.bad={bad}"], OPTIONS) as context:
        return {result.name: result for result in run_checks(context, names)}


def failed(results: dict[str, CheckResult]) -> set[str]:
    return {name for name, result in results.items() if result.passed is False}


@pytest.mark.slow
def test_a_good_task_passes_all() -> None:
    results = check("good", *SLOW)
    assert list(results) == list(CHECKS)
    assert {name: result.evidence for name, result in results.items() if not result.passed} == {
        "stored": ("no run is named: --run RUN",)
    }
    assert failed(results) == set()
    assert "words of eval never occur in train, such as 'kemu'" in results["splits"].evidence[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "caught", "says"),
    [
        ("pays_less", "oracle", "the oracle gets 0.9 on average"),
        ("solve_raises", "oracle", "KeyError"),
        ("solve_loops", "oracle", "max_turns"),
        ("open_raises", "oracle", "no index"),
        ("pays_silence", "floor", "empty output: 1 on average"),
        ("pays_tags", "floor", "a constant answer: 0.9 on average"),
        ("unseeded", "determinism", "a second task of the same seed gives other samples"),
        ("hash_order", "determinism", "the task in another process of the same seed gives other samples"),
        ("pays_by_chance", "determinism", "another reward when it is scored again"),
        ("prompt_leak", "leakage", "the prompt: the answer is there in 12 of 12 samples"),
        ("schema_leak", "leakage", "the tools' schemas: the answer is there in 12 of 12 samples"),
        ("id_leak", "leakage", "the sample's id: the answer is there in 12 of 12 samples"),
        ("shared_state", "isolation", "was here"),
        ("blocks_loop", "isolation", "tool look blocks the event loop for 0."),
        ("leaves_process", "cancellation", "sleep 60"),
        ("leaves_file", "cancellation", "the file "),
        ("leaves_task", "cancellation", "the asyncio task sleep is left"),
        ("swallows_cancellation", "cancellation", "in the tool look the asyncio task"),
        ("close_hangs", "close", "the first close() did not end within 0.3 s"),
        ("close_blocks", "close", "the first close() did not end within 0.3 s"),
        ("second_close_raises", "close", "closed already"),
        ("close_needs_open", "close", "without an open: AttributeError"),
        ("env_raises", "faults", "tool look raises: the episode ends with an exception"),
        ("solve_needs_results", "faults", "SolveNeedsResults.solve ends with an exception after"),
        ("env_hides_faults", "faults", "tool look is down: the episode counts"),
        ("env_speaks", "tokens", "qwen3: "),
        ("not_picklable", "pickling", "the samples do not pickle"),
        ("only_here", "pickling", "the data is not on this machine"),
        ("eval_in_train", "splits", "2 of 2 eval samples are also in train"),
        ("same_ids", "splits", "occur more than once, such as 'sample'"),
        ("pays_nan", "bounds", "not finite"),
        ("pays_too_much", "bounds", "lie outside of 0 to 1, the furthest "),
        ("pays_steps", "bounds", "lie outside of 0 to 1, the furthest 2 "),
        ("crashes", "bounds", "IndexError"),
    ],
)
def test_a_bad_task_is_caught_by_one_check(bad: str, caught: str, says: str) -> None:
    results = check(bad, caught)
    assert failed(results) == {caught}, {name: results[name].evidence for name in failed(results)}
    assert says in "\n".join(results[caught].evidence)
