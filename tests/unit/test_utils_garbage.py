"""The garbage collector's settings belong to the user's process: a run gives them back."""

from __future__ import annotations

import gc

import pytest

from rlfactory_core.utils.garbage import YOUNGEST, collect_rarely


@pytest.mark.slow
def test_the_collector_is_as_before_after_a_run() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    undo = collect_rarely()
    try:
        assert gc.get_threshold()[0] == YOUNGEST
        assert gc.get_freeze_count() > frozen
    finally:
        undo()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
