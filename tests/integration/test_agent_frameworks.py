"""Agents of real frameworks are trained on exactly what the model sampled. The session `agents` has the frameworks."""

from __future__ import annotations

import asyncio
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from agent_examples.frameworks import AGENTS
from conversations import CHAT, LIMITS, RecordingSampler, check_exact, episode

from rlfactory_core.gateway.function import FunctionAgents
from rlfactory_core.gateway.models import TokenModel
from rlfactory_core.gateway.play import play_agent
from rlfactory_core.gateway.program import ProgramAgents
from rlfactory_core.gateway.server import Gateway
from rlfactory_core.rewards import exact_match
from rlfactory_core.types import Sample, StopReason, Trajectory

pytestmark = pytest.mark.skipif(find_spec("agents") is None, reason="`nox -s agents` installs the frameworks")
PROGRAM = Path(__file__).parents[1] / "support" / "agent_examples" / "agent.mjs"
QUESTION = Sample("s", "In which country is Tedre Labs based?", "Ransta")


def call(name: str = "search", **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


THINKING = "<think>\nI should look this up.\n</think>\n\n"
PARALLEL = f"{THINKING}Let me look.\n{call(query='Tedre Labs')}\n{call(query='Tinmivor')}"
TOOL_TURNS = [PARALLEL, f"{THINKING}Ransta"]
CODE = [
    'Thought: I look.\n<code>\nprint(search(query="Tedre Labs"))\n</code>',
    '<code>\nfinal_answer("Ransta")\n</code>',
]
SCRIPTS = {
    "smolagents, tools": [PARALLEL, call("final_answer", answer="Ransta")],
    "smolagents, code": CODE,
    "qwen-agent": [call(query="Tedre Labs"), "Ransta"],
}
ROWS = {"smolagents, tools": 2, "smolagents, code": 2}  # they rewrite their history; all others have one row


def play(agent: Any, script: list[str]) -> tuple[Trajectory, RecordingSampler]:
    sampler = RecordingSampler(script)

    async def run() -> Trajectory:
        gateway = Gateway()
        await gateway.open()
        try:
            return await play_agent(episode(LIMITS, QUESTION), agent, TokenModel(CHAT, sampler), gateway, 120.0)
        finally:
            await agent.close()
            await gateway.close()

    return asyncio.run(run()), sampler


@pytest.mark.parametrize("name", AGENTS)
def test_the_tokens_trained_are_those_sampled(name: str) -> None:
    played, sampler = play(FunctionAgents(AGENTS[name]), SCRIPTS.get(name, TOOL_TURNS))
    assert played.faults == ()
    assert played.stop is StopReason.FINAL_ANSWER
    assert exact_match(played.answer or "", ["Ransta"]) == 1.0
    check_exact(played.turns, sampler)
    assert len(played.turns) == 2
    assert len(played.rows) == ROWS.get(name, 1), [turn.fork for turn in played.turns]
    assert sum(played.loss_mask) == sum(len(said) for _, said in sampler.calls)
    results = " ".join(CHAT.decode(turn.context_ids) for turn in played.turns[1:])
    assert "Tedre Labs is based in Tinmivor." in results


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")
def test_a_node_program() -> None:
    played, sampler = play(ProgramAgents(f"node {PROGRAM}"), TOOL_TURNS)
    assert (played.answer, played.info, len(played.rows)) == ("Ransta", {"sdk": "none"}, 1)
    check_exact(played.turns, sampler)
