"""A condition on trajectories, as ``--where`` and ``train.where`` have it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from reporting_examples import infra_fault, make_trajectory

from rlfactory_core.errors import UsageError
from rlfactory_core.reporting.where import FACTS, Where

GOOD = make_trajectory(1.0, sample="q7")
BAD = make_trajectory(0.0, calls=0, faults=(infra_fault(),))
UNSCORED = replace(BAD, score=None)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", (True, True)),
        ("reward >= 1", (True, False)),
        ("reward >= 1 and tool_calls >= 1", (True, False)),
        ("0 <= reward < 1", (False, True)),
        ("not (reward > 0.5 or masked)", (False, False)),
        ("masked", (False, True)),
        ("exact_match == 1.0", (True, False)),
        ('score["exact_match"] > -1 and turns == 2', (True, False)),
        ('stop in ["final_answer", "no_tool_call"]', (True, True)),
        ('"infra" in faults', (False, True)),
        ('"search" in tools and "look" not in tools', (True, False)),
        ('sample == "q7" and slice == "two_hop" and split == "eval"', (True, False)),
        ("rows == 1 and attempt == 0 and seconds >= 0 and tokens > 0 and context_tokens > 0", (True, True)),
        ("failed_calls == 0 and task == ''", (True, True)),
    ],
)
def test_conditions(text: str, holds: tuple[bool, bool]) -> None:
    assert (Where(text).holds(GOOD), Where(text).holds(BAD)) == holds


def test_no_comparison_with_a_score_is_true_of_an_attempt_without_one() -> None:
    assert not Where("exact_match >= 0").holds(UNSCORED)
    assert Where("reward == 0").holds(UNSCORED)


@pytest.mark.parametrize(
    "text",
    [
        "reward >=",
        "__import__('os').system('true')",
        "reward.__class__",
        "[each for each in faults]",
        "reward + 1 > 2",
        "lambda: 1",
        "f'{reward}'",
        "reward if masked else 1",
        "(reward := 1)",
        "score",
        "score[0] == 1",
        "faults[0] == 'infra'",
        "not " * 2000 + "masked",
        "(" * 300,
    ],
)
def test_anything_else_is_refused_and_never_executed(text: str) -> None:
    with pytest.raises(UsageError, match="expected an expression such as: reward >= 1"):
        Where(text).holds(GOOD)


def test_an_unknown_name_has_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"there is no 'rewards'\. Did you mean 'reward'"):
        Where("rewards >= 1").holds(GOOD)
    with pytest.raises(UsageError, match=r"there is no 'exact_mach'\. Did you mean 'exact_match'"):
        Where("exact_mach >= 1").holds(GOOD)


def test_values_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(UsageError, match="'<' not supported"):
        Where("stop < 3").holds(GOOD)


def test_a_filter_that_keeps_nothing_says_what_there_is() -> None:
    assert Where("masked").among([GOOD, BAD], "attempts") == [BAD]
    with pytest.raises(UsageError) as none:
        Where('reward > 1 and stop == "lenght" and "tool" in faults and exact_match > 1').among([GOOD, BAD], "attempts")
    assert str(none.value).endswith(
        "keeps none of 2 attempts. They have reward from 0 to 1; stop final_answer (2); faults none (1), infra (1); "
        "exact_match from 0 to 1."
    )
    with pytest.raises(UsageError, match=r"keeps none of 0 attempts\.$"):
        Where("masked").among([], "attempts")


def test_the_documents_have_all_names() -> None:
    page = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
    assert [name for name in FACTS if f"`{name}`" not in page] == []
