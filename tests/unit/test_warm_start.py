"""A warm start that misses its target goes on, begins anew, says so, and is not cached in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from said import Said
from stock_task import Stock

from rlfactory_core.errors import ModelError
from rlfactory_core.tasks.demonstrations import recipe_of
from rlfactory_core.tasks.setup import TaskSetup
from rlfactory_core.tiny import TinyModelRecipe, WarmStartStage

pytest.importorskip("torch", reason="the embedded engine needs rlfactory-core[local]")

from rlfactory_core.engines import tiny_model_folder
from rlfactory_core.engines.local.tiny.building import build
from rlfactory_core.engines.local.tiny.warmstart import WarmStart
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.engines.tiny import TinyModel

LONGER = "the warm start has not reached its target yet, and goes on"
MISSED = "warning: the warm start has missed its target: 0.60 of 0.90 on the probe after 50 steps. "


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyModelRecipe:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))
    whole = recipe_of(TaskSetup(Stock()))
    assert whole is not None
    shown = whole.stages[0].demonstrate
    stages = (WarmStartStage(shown, 25, 1, target=0.9), WarmStartStage(shown, 1, 1))
    return replace(whole, stages=stages, architecture={**whole.architecture, "num_hidden_layers": 1})


def probes(monkeypatch: pytest.MonkeyPatch, accuracies: Sequence[float]) -> None:
    found = iter(accuracies)
    monkeypatch.setattr(WarmStart, "accuracy", lambda self: next(found))


@pytest.mark.slow
def test_it_goes_on_for_as_many_steps_again(recipe: TinyModelRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    heard, own = Said(), TinyModel(recipe, (), 0)
    probes(monkeypatch, [0.5, 0.95])
    build(own, Workers(), heard)
    assert heard.lines == [LONGER]
    assert own.folder(1).is_dir()


@pytest.mark.slow
def test_it_is_used_as_it_is_near_its_target(recipe: TinyModelRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    heard, own = Said(), TinyModel(recipe, (), 0)
    probes(monkeypatch, [0.5, 0.88])
    build(own, Workers(), heard)
    assert heard.lines[0] == LONGER
    assert heard.lines[1].startswith("the warm start ends at 0.88 of 0.90 on the probe, which is near enough.")
    assert own.folder(1).is_dir()


@pytest.mark.slow
def test_it_begins_anew_with_other_weights(recipe: TinyModelRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    heard, own = Said(), TinyModel(recipe, (), 0)
    probes(monkeypatch, [0.5, 0.6, 0.95])
    build(own, Workers(), heard)
    assert heard.lines == [LONGER, f"{MISSED}It begins anew."]
    assert own.folder(1).is_dir()


@pytest.mark.slow
def test_a_model_that_has_missed_it_to_the_last_is_not_cached(
    recipe: TinyModelRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, own = Said(), TinyModel(recipe, (), 0)
    probes(monkeypatch, [0.5, 0.6] * 2)
    build(own, Workers(), heard)
    assert heard.lines[-1] == f"{MISSED}The model is used as it is, and is not cached."
    assert not own.folder(1).exists()
    probes(monkeypatch, [0.5, 0.6] * 2)
    with pytest.raises(ModelError, match="has not learnt its task"):
        tiny_model_folder(recipe, 0, heard)
