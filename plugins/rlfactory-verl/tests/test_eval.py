"""`rlfactory eval` with the verl engine for real, on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import summary
from verl_runs import rlfactory

pytest.importorskip("verl", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("vllm", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest_plugins = ("verl_runs",)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_of_verl_left")]


def test_a_policy_is_measured_with_and_without_results(tmp_path: Path) -> None:
    """The search task's warm-started policy answers questions of one search from what it finds, not by heart."""
    out, options = tmp_path / "eval", ("engine=verl", "device=cpu", "eval.limit=10", "eval.sampled=false")
    assert "exact match" in rlfactory("eval", "--plugin", "search", "--out", out, *options).out
    found = summary(out)
    assert found["engine"] == "verl"
    assert found["eval"]["after"]["exact_match/one_hop"] > 0.5
    assert found["eval"]["after"]["control/no_results/exact_match"] <= 0.05
