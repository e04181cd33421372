"""The search task, played by agents of LangGraph and of OpenAI's Agents SDK, and whether it is learnt as well.

    python benchmarks/agents_learn.py            # writes benchmarks/results/agents_learn.md

The agents are in ``tests/support/agent_examples``, in the style of their documentation. Each run is the whole command
with an empty cache. It needs the frameworks: ``nox -s benchmarks -- agents_learn`` has them.
"""

from __future__ import annotations

from pathlib import Path

from seeds import Bar, Case, measure_learning

EXAMPLES = Path(__file__).parents[1] / "tests" / "support" / "agent_examples"
AGENTS = {"LangGraph": "search_in_langgraph.py", "OpenAI Agents SDK": "search_in_openai_agents.py"}
BEFORE, AFTER = 0.10, 0.85  # bars on held-out two-hop questions

if __name__ == "__main__":
    measure_learning(
        __file__,
        __doc__ or "",
        {name: Case(str(EXAMPLES / file), "exact_match/two_hop") for name, file in AGENTS.items()},
        title="The search task inside agents of other frameworks",
        what="Held-out exact match over 100 questions that need two searches, greedy.",
        figure="two-hop",
        bar=Bar((f"≤ {BEFORE:g}", f"≥ {AFTER:g}"), lambda before, after: before <= BEFORE and after >= AFTER),
        libraries=("langgraph", "langchain-openai", "openai-agents"),
    )
