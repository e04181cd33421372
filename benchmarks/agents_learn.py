"""The search task, played by agents of LangGraph and of OpenAI's Agents SDK, and whether it is learnt as well.

    python benchmarks/agents_learn.py            # writes benchmarks/results/agents_learn.md

The agents are in ``tests/support/agent_examples``, in the style of their documentation. Each run is the whole command
with an empty cache. It needs the frameworks: ``nox -s benchmarks -- agents_learn`` has them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from machine import describe, sized
from seeds import measure_seeds, run_plugin

EXAMPLES = Path(__file__).parents[1] / "tests" / "support" / "agent_examples"
AGENTS = {"LangGraph": "search_in_langgraph.py", "OpenAI Agents SDK": "search_in_openai_agents.py"}
BEFORE, AFTER = 0.10, 0.85  # bars on held-out two-hop questions


@dataclass(frozen=True)
class Run:
    """One seed: by framework, wall seconds and two-hop exact match before and after."""

    seed: int
    found: dict[str, tuple[float, float, float]]

    @property
    def held(self) -> bool:
        return all(before <= BEFORE and after >= AFTER for _, before, after in self.found.values())


def run(seed: int, scratch: Path) -> Run:
    found = {}
    for name, file in sized(list(AGENTS.items()), list(AGENTS.items())[:1]):
        seconds, out = run_plugin(str(EXAMPLES / file), seed, scratch / name)
        evaluations = json.loads((out / "summary.json").read_text())["eval"]
        key = "exact_match/two_hop"
        found[name] = (seconds, evaluations["before"][key], evaluations["after"][key])
    return Run(seed, found)


def report(runs: Sequence[Run], command: str) -> str:
    rows = ["| seed | agent | two-hop, before | two-hop, after | seconds |", "|---|---|---|---|---|"]
    rows += [
        f"| {one.seed} | {name} | {before:.3f} | {after:.3f} | {seconds:.0f} |"
        for one in runs
        for name, (seconds, before, after) in one.found.items()
    ]
    rows.append(f"| bar | | ≤ {BEFORE:g} | ≥ {AFTER:g} | |")
    return (
        "# The search task inside agents of other frameworks\n\n"
        "Held-out exact match over 100 questions that need two searches, greedy.\n\n"
        + "\n".join(rows)
        + f"\n\nMade by `{command}` on {describe('langgraph', 'langchain-openai', 'openai-agents')}.\n"
    )


if __name__ == "__main__":
    measure_seeds(__file__, __doc__ or "", run, report)
