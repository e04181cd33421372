"""An agent of LangGraph, trained by verl and vLLM on the CPU: the same file as with the embedded engine."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from mcp_runs import trajectories
from runs import metrics
from verl_runs import VERL, rlfactory

pytest.importorskip("verl", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("vllm", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest_plugins = ("verl_runs",)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("nothing_of_verl_left"),
    pytest.mark.skipif(find_spec("langgraph") is None, reason="`nox -s verl` installs LangGraph"),
]
PLUGIN = Path(__file__).parents[1] / "support" / "agent_examples" / "search_in_langgraph.py"


def test_a_langgraph_agent_is_trained(tmp_path: Path) -> None:
    run = tmp_path / "run"
    sizes = ("train.prompts_per_step=8", "train.updates_per_step=2", "train.aggregation=trajectory")
    evaluated = ("eval.limit=8", "eval.every=0", "eval.sampled=false")
    rlfactory("run", "--plugin", PLUGIN, *VERL, "--steps", "2", *sizes, *evaluated, "--out", run)
    rows = metrics(run)
    assert [row["step"] for row in rows] == [1, 2]
    assert max(row["rollout_probs_diff_max"] for row in rows) < 1e-4  # what is trained is what was sampled
    assert all(row["grad_norm"] > 0 for row in rows)
    assert all(row["masked"] == row["faults/agent"] == 0 for row in rows)
    played = [each for step in (1, 2) for each in trajectories(run, f"step-{step:06d}")]
    assert len(played) == 2 * 8 * 8
    assert sum(len(each["turns"]) > 1 for each in played) > 50  # searched, and read what came
    assert all(each["answer"] is not None for each in played)
    assert "No problems found" in rlfactory("trace", run, "--verify").out
