"""A plugin of somebody else, ``tests/packages/rlfactory_pioneer``, which uses most of what the plugin API has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def pioneer(install: Callable[..., Path]) -> Path:
    return install("rlfactory_pioneer")


@pytest.mark.slow
def test_it_is_listed_and_described(pioneer: Path, rlfactory: Run) -> None:
    rows = [line.split() for line in rlfactory("plugins", "list", site=pioneer).stdout.splitlines()]
    assert ["pioneer", "rlfactory-pioneer", "1.0.0", "installed"] in [row[:4] for row in rows]
    found = json.loads(rlfactory("plugins", "info", "pioneer", "--json", site=pioneer).stdout)
    task, scorer, verifier, command = found["gives"]
    assert (task["doc"], task["problem"]) == ("Look at a coin, then say which side it shows.", "")
    assert task["options"][1] == {
        "key": "hint",
        "type": "none | some",
        "default": "none",
        "doc": "",  # it stands in a comment beside the field, which is not read any more
    }
    assert [part["options"][0]["key"] for part in (scorer, verifier)] == ["price", "times"]
    assert command["doc"] == "Coins: what sides they have."


@pytest.mark.slow
def test_the_doctor_says_what_it_lacks(pioneer: Path, rlfactory: Run) -> None:
    found = json.loads(rlfactory("plugins", "doctor", "--json", site=pioneer).stdout)
    (health,) = [item for item in found["plugins"] if item["name"] == "pioneer"]
    assert (health["state"], health["worker"]) == ("ok", "")
    (extra,) = health["requirements"]
    assert (extra["state"], extra["what"]) == ("missing", "plots")
    assert "pip install 'rlfactory-pioneer[plots]'" in extra["detail"]


@pytest.mark.slow
def test_its_command_runs(pioneer: Path, rlfactory: Run) -> None:
    assert rlfactory("pioneer", "other", "heads", site=pioneer).stdout == "tails\n"
    assert rlfactory("pioneer", "other", "edge", site=pioneer).returncode == 2


@pytest.mark.slow
def test_it_trains_and_is_evaluated_beside_bad_plugins(
    install: Callable[..., Path], rlfactory: Run, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="the embedded engine needs rlfactory-core[local]")
    site = install(
        "rlfactory_broken", "rlfactory_future", "rlfactory_greeter", "rlfactory_greeter_twin", "rlfactory_pioneer"
    )
    run = tmp_path / "run"
    done = rlfactory("run", "--plugin", "pioneer", "--steps", "1", "--out", str(run), "--coins", "2", site=site)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    step = next(line for line in lines if line.get("step") == 1)
    named = [key for key in step if key.endswith(("looked", "patience", "format", "exact_match"))]
    assert len(named) >= 4, step
    done = rlfactory("eval", "--plugin", "pioneer", "--model", str(run), "eval.limit=2", site=site)
    assert done.returncode == 0, done.stderr
