"""A task reads the user's files in layouts of its own field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rlfactory_core.config import RunConfig
from rlfactory_core.errors import DataError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.runner.making import make_tasks
from rlfactory_core.tasks.settings import DataColumns
from rlfactory_core.types import Sample

PLUGIN = """
import csv
from rlfactory_core import Sample, Task, hookimpl

class Cards(Task):
    def load(self, path, columns, split):
        if path.suffix != ".csv":
            return super().load(path, columns, split)
        with path.open() as file:
            return [Sample(str(n), front, back, split=split) for n, (front, back) in enumerate(csv.reader(file))]

    def adapt(self, sample):
        return Sample(sample.id, f"Translate: {sample.prompt}", sample.answer, split=sample.split)

@hookimpl
def rlfactory_tasks(register):
    register("cards", Cards)
"""


def samples(folder: Path, train: str, columns: DataColumns | None = None) -> Sequence[Sample]:
    plugin = folder / "cards.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    data = {"train": folder / train, "columns": columns or DataColumns()}
    config = RunConfig.model_validate({"plugin": str(plugin), "data": data})
    return make_tasks(config, Registry()).samples("train")


def test_a_task_s_own_layout_is_read_and_adapted(tmp_path: Path) -> None:
    (tmp_path / "cards.csv").write_text("Haus,house\nBaum,tree\n", encoding="utf-8")
    assert samples(tmp_path, "cards.csv") == [
        Sample("0", "Translate: Haus", "house"),
        Sample("1", "Translate: Baum", "tree"),
    ]


def test_the_core_s_layouts_stay_readable(tmp_path: Path) -> None:
    (tmp_path / "cards.jsonl").write_text(json.dumps({"de": "Haus", "en": "house"}), encoding="utf-8")
    (found,) = samples(tmp_path, "cards.jsonl", DataColumns(prompt="de", answer="en"))
    assert replace(found, metadata={}) == Sample("0", "Translate: Haus", "house")


def test_a_layout_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cards.xml").write_text("<cards/>", encoding="utf-8")
    with pytest.raises(DataError, match=r"cards\.xml"):
        samples(tmp_path, "cards.xml")
