"""A name that goes says so to who uses it, where they use it."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import rlfactory_core
from rlfactory_core import RlfactoryDeprecationWarning, builtin
from rlfactory_core.deprecation import moved, warn_deprecated


def test_a_moved_name_works_and_says_where_it_stands_now() -> None:
    said = (
        r"rlfactory_core.builtin.Lazy is deprecated since plugin API 1.1 and goes with 2.0. Use rlfactory_core.Lazy\."
    )
    with pytest.warns(RlfactoryDeprecationWarning, match=said) as caught:
        assert builtin.Lazy is rlfactory_core.Lazy
    assert Path(caught[0].filename) == Path(__file__)  # the place that has to change


def test_all_that_moved_together_is_found() -> None:
    for name in ("LazyReward", "LazyChatFormat", "LazyEngine"):
        with pytest.warns(RlfactoryDeprecationWarning):
            assert getattr(builtin, name) is getattr(rlfactory_core, name)


def test_another_name_is_no_attribute() -> None:
    find = moved("somewhere", {"Old": "pathlib:Path"}, since="1.1", until="2.0")
    with pytest.raises(AttributeError, match="module 'somewhere' has no attribute 'Other'"):
        find("Other")
    assert not hasattr(builtin, "Other")


def old(count: int) -> int:
    warn_deprecated("old()", since="1.1", until="2.0", instead="new()")
    return count


def test_one_place_warns_once() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        assert [old(count) for count in range(3)] == [0, 1, 2]
        old(3)
    assert len(said) == 2
    assert {Path(item.filename) for item in said} == {Path(__file__)}
