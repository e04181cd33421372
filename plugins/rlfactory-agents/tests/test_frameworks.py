"""Agents of real frameworks are trained on exactly what the model sampled. The session `agents` has the frameworks.

The agents are those of the documentation's pages, `docs/agents/`, and those in `framework_agents`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from conversations import CHAT, LIMITS, RecordingSampler, check_exact, episode
from framework_agents import AI_SDK, FRAMEWORKS
from rlfactory_agents.function import FunctionAgents
from rlfactory_agents.play import play_agent
from rlfactory_agents.program import ProgramAgents
from rlfactory_agents.server import Gateway

from rlfactory_core.rewards import exact_match
from rlfactory_core.rollout import TokenModel
from rlfactory_core.types import Sample, StopReason, Trajectory

pytestmark = pytest.mark.skipif(find_spec("agents") is None, reason="`nox -s agents` installs the frameworks")
PAGES = Path(__file__).parents[3] / "docs" / "agents"
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.S)
# By page; or with what the page says that works as well.
AGENTS: dict[str, tuple[str, str] | None] = {
    "openai_sdk": None,
    "openai_agents": None,
    "openai_agents, chat": ("OpenAIResponsesModel", "OpenAIChatCompletionsModel"),
    "langgraph": None,
    "langgraph, streamed": ("streaming = False", "streaming = True"),
    "smolagents": None,
    "smolagents, code": ("ToolCallingAgent", "CodeAgent"),
    "qwen_agent": None,
    "anthropic_sdk": None,
}
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
    "smolagents": [PARALLEL, call("final_answer", answer="Ransta")],
    "smolagents, code": CODE,
    "qwen_agent": [call(query="Tedre Labs"), "Ransta"],
}
ROWS = {"smolagents": 2, "smolagents, code": 2}  # they rewrite their history; all others have one row


def code_of(page: str) -> str:
    found = FILE.search((PAGES / f"{page}.md").read_text("utf-8"))
    assert found is not None
    return found[2]


def agent_of(name: str, folder: Path) -> Any:
    """The method `agent` of the task on a page."""
    code, change = code_of(name.split(",", maxsplit=1)[0]), AGENTS[name]
    file = folder / "plugin.py"
    file.write_text(code.replace(*change) if change else code, "utf-8")
    return runpy.run_path(str(file))["Research"]().agent


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


@pytest.mark.parametrize("name", [*AGENTS, *FRAMEWORKS])
def test_the_tokens_trained_are_those_sampled(name: str, tmp_path: Path) -> None:
    agent = FRAMEWORKS.get(name) or agent_of(name, tmp_path)
    check(*play(FunctionAgents(agent), SCRIPTS.get(name, TOOL_TURNS)), name)


@pytest.mark.skipif("RLFACTORY_AI_SDK" not in os.environ, reason="`nox -s agents` installs the AI SDK")
@pytest.mark.parametrize("way", ["responses", "responses streamed", "chat", "chat streamed"])
def test_the_ai_sdk(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.environ["RLFACTORY_AI_SDK"])  # which has the packages
    program = Path("agent.mjs")
    program.write_text(AI_SDK, "utf-8")
    check(*play(ProgramAgents(f"node {program} {way}"), TOOL_TURNS), "ai")


def check(played: Trajectory, sampler: RecordingSampler, name: str) -> None:
    """The whole conversation was in the model's context, and what it sampled in it is trained."""
    assert played.faults == ()
    assert played.stop is StopReason.FINAL_ANSWER
    assert exact_match(played.answer or "", ["Ransta"]) == 1.0
    check_exact(played.turns, sampler)
    assert len(played.turns) == 2
    assert len(played.rows) == ROWS.get(name, 1), [turn.fork for turn in played.turns]
    assert sum(played.loss_mask) == sum(len(said) for _, said in sampler.calls)
    assert QUESTION.prompt in CHAT.decode(sampler.calls[-1][0])
    results = CHAT.decode(played.turns[-1].context_ids)
    assert "Tedre Labs is based in Tinmivor." in results
    if name != "smolagents, code" and SCRIPTS.get(name, TOOL_TURNS)[0] == PARALLEL:  # the results of both calls
        assert "Tinmivor lies in Ransta." in results


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")
def test_a_node_program(tmp_path: Path) -> None:
    program = tmp_path / "agent.mjs"
    program.write_text(code_of("node"), "utf-8")
    played, sampler = play(ProgramAgents(f"node {program}"), TOOL_TURNS)
    assert (played.answer, played.info, len(played.rows)) == ("Ransta", {"sdk": "none"}, 1)
    check_exact(played.turns, sampler)
