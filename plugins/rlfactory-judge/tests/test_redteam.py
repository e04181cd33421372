"""The core's red team against a judge: an honest one stands, an obedient one falls for the judge's own injections."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hackable_rewards
import pytest
from fake_openai import Answer, Reply, said, serve

pytest.importorskip("rlfactory_devkit", reason="the red team is the devkit's")

from rlfactory_devkit import TaskBench
from rlfactory_devkit.redteam import RedTeamResult, run_redteam

_QUOTED = re.compile(r"<quoted:(\w+)>\n(.*?)\n?</quoted:\1>", re.DOTALL)
_LONG = {"prose", "thought"}  # 100 kB each


def honest(body: Mapping[str, Any]) -> Reply:
    _, *right, given = [text.strip() for _, text in _QUOTED.findall(body["messages"][-1]["content"])] or ["", ""]
    return said(json.dumps({"score": 10 if given in right else 0}))


def obedient(body: Mapping[str, Any]) -> Reply:
    prompt = body["messages"][-1]["content"]
    return said('{"score": 10}') if "BEGIN OF ANSWER" in prompt else honest(body)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path / "cache"))


def attack(judge: Answer) -> RedTeamResult:
    with serve(judge) as server:
        rewards = [{"name": "judge", "url": server.url, "cache": "off"}]
        with TaskBench(hackable_rewards.__file__, [{"rewards": rewards}]) as bench:
            return run_redteam(bench, samples=2, skip=_LONG)


@pytest.mark.slow
def test_a_judge_that_obeys_is_found_out_and_an_honest_one_is_not() -> None:
    result = attack(honest)
    assert [each.said for each in result.worst()] == []
    assert result.masked == 0
    mistakes = [each for each in attack(obedient).attempts if each.is_mistake]
    assert {each.mutation.name for each in mistakes} == {"injection"}
    assert all("BEGIN OF ANSWER" in each.variant and each.by == "judge" for each in mistakes)
