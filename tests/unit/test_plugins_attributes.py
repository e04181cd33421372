"""Optional attributes of parts: defaults, values of their own, and misspelt names."""

from __future__ import annotations

from typing import Any

import pytest

from rlfactory_core.chat.select import choose_format
from rlfactory_core.errors import PluginError
from rlfactory_core.plugins.attributes import optional_attributes
from rlfactory_core.protocols import RewardFactoryTraits, ScorerTraits
from rlfactory_core.rewards import RewardLayer
from rlfactory_core.types import Score, Trajectory


class Scorer:
    async def score(self, trajectory: Trajectory) -> Score:
        return Score(0.0)


def with_attribute(name: str, value: Any = ()) -> Any:
    return type("Own", (Scorer,), {name: value})()


def test_what_a_scorer_says_counts_and_the_rest_has_defaults() -> None:
    traits = optional_attributes(with_attribute("bounds", (-1.0, 0.0)), ScorerTraits, "it")
    assert traits == ScorerTraits(bounds=(-1.0, 0.0))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bound", "bounds"),
        ("in_line", "inline"),
        ("deadline", "deadline_s"),
        ("injection", "injections"),
        ("opinon", "opinion"),
    ],
)
def test_a_misspelt_attribute_of_a_scorer_is_refused_with_the_name_that_is_meant(name: str, meant: str) -> None:
    with pytest.raises(PluginError, match=f"The reward 'own' has the attribute '{name}'.*Did you mean '{meant}'"):
        RewardLayer({"own": (with_attribute(name), 1.0)})


@pytest.mark.parametrize("name", ["scores", "closed", "pools", "online", "_bound"])
def test_a_scorer_may_have_attributes_of_its_own(name: str) -> None:
    assert RewardLayer({"own": (with_attribute(name), 1.0)}).traits["own"] == ScorerTraits()


def test_a_name_that_is_there_cannot_be_what_another_one_means() -> None:
    both = type("Both", (Scorer,), {"bounds": (0.0, 2.0), "bound": 2.0})()
    assert optional_attributes(both, ScorerTraits, "it").bounds == (0.0, 2.0)


def test_misspelt_attributes_of_factories_are_refused() -> None:
    def make(**options: Any) -> Scorer:
        return Scorer()

    make.settles = dict  # type: ignore[attr-defined]
    with pytest.raises(PluginError, match="Did you mean 'settle'"):
        optional_attributes(make, RewardFactoryTraits, "The factory")
    tokenizer = type("Tokenizer", (), {"chat_template": "{{ messages }}"})()
    with pytest.raises(PluginError, match=r"The factory of the chat format 'own' has the attribute 'match'.*'matches'"):
        choose_format({"own": type("Format", (), {"match": bool})}, tokenizer)
