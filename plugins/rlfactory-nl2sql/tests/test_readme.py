"""The README's verifier of another plugin, used as the README says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from configs import made_config

from rlfactory_core import Message, Sample, StopReason, Trajectory
from rlfactory_core.plugins.discovery import PluginEntry, discover
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.runner.making import make_tasks
from rlfactory_core.tasks.opening import open_tasks
from rlfactory_core.types import Turn

README = Path(__file__).parent.parent / "README.md"


def test_a_verifier_of_another_plugin_joins_a_run(shops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"<!-- file: small_result.py -->\s*```python\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)
    assert found is not None
    (tmp_path / "small_result.py").write_text(found[1], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry((*discover(), PluginEntry("small_result", "small-result", "1.0", "small_result")))
    given = "rewards=[{name: execution}, {name: small_result, weight: 0.1, rows: 2}]"
    config = made_config({"plugin": "nl2sql", "task": {"db": str(shops)}}, given)

    async def scored(*answers: str) -> list[Trajectory]:
        async with open_tasks(make_tasks(config, registry)) as tasks:
            return [await tasks.only.rewards.score_trajectory(trajectory(answer)) for answer in answers]

    small, large, silent = asyncio.run(
        scored("<answer>SELECT id FROM city WHERE id < 3</answer>", "<answer>SELECT id FROM shop</answer>", "?")
    )
    assert small.reward == pytest.approx(1.1)
    assert large.reward == silent.reward == 0.0
    assert small.faults == large.faults == silent.faults == ()
    assert large.score is not None
    assert large.score.verdicts["small_result"].reasons


def trajectory(said: str) -> Trajectory:
    sample = Sample("s", "Which?", "SELECT id FROM city WHERE NOT id >= 3")
    return Trajectory(sample, 0, (Turn((1,), (2,), (-0.5,), Message("assistant", said)),), StopReason.FINAL_ANSWER)
