"""OpenEnv as published: its echo environment is trained on; its validation, its clients and TRL play our server."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import queue
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import blank_model
import pytest

pytest.importorskip("openenv.core", reason="nox -s environments installs it")
pytest.importorskip("torch")

from openenv.core import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient
from openenv_echo import ECHO, make_echo, openenv, running, serving
from process_tree import children
from rlfactory_devkit import TaskBench, constant, oracle, script, tiny_tokenizer

from rlfactory_core.cli.main import invoke
from rlfactory_core.runner import Policy
from rlfactory_core.types import FaultKind, Message, Sample, StopReason, Trajectory

pytestmark = pytest.mark.slow
GUIDE = Path(__file__).parents[3] / "docs" / "environments.md"


def test_a_model_trains_on_the_echo_environment(tmp_path: Path) -> None:
    place = make_echo(tmp_path)
    model = blank_model.write(tmp_path / "model", ["Echo World environment ready! Your whole reply is the action."] * 8)
    run = tmp_path / "run"
    sizes = ["train.prompts_per_step=2", "train.group_size=4", "eval.every=0", "eval.limit=2", "checkpoint.every=0"]
    limits = ["rollout.max_turn_tokens=128", "rollout.max_turns=2"]  # it ends about one turn of three by itself
    with serving("-c", ECHO, "0", place=place) as url:
        command = ["run", "--plugin", "openenv", "--url", url, "--model", str(model), "--steps", "3"]
        assert invoke([*command, "--out", str(run), *sizes, *limits]) == 0
    steps = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    assert [step["masked"] for step in steps] == [0.0] * 3
    for step, file in zip(steps, sorted(run.glob("trajectories/step-*.jsonl")), strict=True):
        rows = [json.loads(line) for line in file.open()]
        assert len(rows) == 2 * 4
        faults = [fault for row in rows for fault in row["faults"]]
        assert not [fault for fault in faults if fault["kind"] != "policy"], "a text may look like a broken call"
        assert step["trained_tokens"] == sum(map(sampled_tokens, rows)) - untrained_tokens(rows)
    assert sum(step["trained_tokens"] for step in steps) > 0
    assert invoke(["trace", str(run), "--verify"]) == 0


def test_openenvs_own_client_gets_the_rewards_that_ours_gets(tmp_path: Path) -> None:
    place = make_echo(tmp_path)
    texts = ["ah", "a longer text", "again"]

    async def play(url: str) -> list[float]:
        async with GenericEnvClient(base_url=url) as env:
            await env.reset(seed=1)
            return [float((await env.step({"message": text})).reward or 0.0) for text in texts]

    with serving("-c", ECHO, "0", place=place) as url:
        with TaskBench("openenv", [f"task.url={url}", "task.max_steps=3"]) as bench:
            (played,) = bench.play(script(*(Message("assistant", text) for text in texts)), bench.samples(limit=1))
        own = asyncio.run(play(url))
    assert [turn.reward for turn in played.turns] == own
    assert played.reward == sum(own)


def test_a_server_that_is_full_hung_killed_and_restarted_scores_nothing_0_and_leaves_no_process(tmp_path: Path) -> None:
    place, before = make_echo(tmp_path, sessions=1), children(os.getpid())

    def play(policy: Policy, url: str, limit: int = 1, wait_s: float = 60.0) -> list[Trajectory]:
        waits = [f"task.{name}_s={wait_s}" for name in ("request", "connect", "queue")]
        with TaskBench("openenv", [f"task.url={url}", "task.max_steps=2", *waits]) as bench:
            return list(bench.play(policy, bench.samples(limit=limit)))

    with running("-c", ECHO, "0", place=place) as (process, url):

        def sending(number: int) -> Policy:
            def say(sample: Sample, messages: Sequence[Message], *_: object) -> str:
                if len(messages) > 1:
                    process.send_signal(number)
                return "ah"

            return say

        full = play(constant("ah"), url, limit=4)
        (hung,) = play(sending(signal.SIGSTOP), url, wait_s=5.0)
        process.send_signal(signal.SIGCONT)
        (woken,) = play(constant("ah"), url)
        (killed,) = play(sending(signal.SIGKILL), url, wait_s=5.0)
        process.wait(600)
        with serving("-c", ECHO, url.rpartition(":")[2], place=place):
            (restarted,) = play(constant("ah"), url)
    for lost in (hung, killed):
        assert (lost.masked, lost.stop, lost.faults[0].kind) == (True, StopReason.FAULT, FaultKind.INFRA)
    for played in (*full, woken, restarted):
        assert (played.masked, played.reward) == (False, pytest.approx(0.4))  # 0.1 for each character
    assert children(os.getpid()) == before


def sampled_tokens(row: Mapping[str, Any]) -> int:
    return sum(len(turn["sampled_ids"]) for turn in row["turns"])


def untrained_tokens(rows: Sequence[Mapping[str, Any]]) -> int:
    """Those of groups whose attempts all have the same reward, which teach nothing."""
    rewards: dict[str, set[float]] = {}
    for row in rows:
        rewards.setdefault(row["sample"]["id"], set()).add(row["reward"])
    return sum(sampled_tokens(row) for row in rows if len(rewards[row["sample"]["id"]]) == 1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the search task as an OpenEnv environment."""
    pytest.importorskip("rlfactory_search")
    command = ("-m", "rlfactory_core", "serve", "--plugin", "search", "--as", "openenv", "--port", "0")
    with serving(*command, place=tmp_path_factory.mktemp("served")) as url:
        yield url


def test_openenvs_own_validation_passes_our_server(served: str, tmp_path: Path) -> None:
    report = json.loads(openenv("validate", "--url", served, "--json", place=tmp_path))
    assert report["passed"], report


def test_openenvs_own_client_plays_an_episode_of_our_server(served: str) -> None:
    async def play() -> None:
        async with GenericEnvClient(base_url=served) as env:
            begun = await env.reset(seed=3)
            again = await env.reset(seed=3)
            assert begun.observation["text"] == again.observation["text"] != ""
            found = await env.step({"type": "call_tool", "tool_name": "search", "arguments": {"query": "where"}})
            assert (found.done, bool(found.observation["text"])) == (False, True)
            ended = await env.step({"message": "<answer>nowhere</answer>"})
            assert ended.done
            assert 0.0 <= ended.reward < 1.0

    asyncio.run(play())


def test_openenvs_own_tool_client_calls_the_tools_of_our_server(served: str) -> None:
    async def play() -> None:
        async with MCPToolClient(base_url=served) as env:
            await env.reset(seed=3)
            assert [tool.name for tool in await env.list_tools()] == ["search"]
            assert await env.call_tool("search", query="where")

    asyncio.run(play())


def test_trls_harness_gets_the_rewards_of_our_own_runner(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    pytest.importorskip("trl", reason="nox -s environments installs it")
    with TaskBench("search") as bench:
        rows = bench.rows("train")[:3]
        own = [*bench.play(oracle(bench.task), rows), *bench.play(constant("<answer>nowhere</answer>"), rows)]
    assert len({each.reward for each in own}) > 1
    for each, (conversation, reward) in zip(own, played_by_trl(served, own, len(rows)), strict=True):
        assert reward == each.reward
        heard = [message["content"] for message in conversation if message["role"] == "tool"]
        assert heard == [result.content for turn in each.turns for result in turn.results]


def played_by_trl(url: str, wanted: Sequence[Trajectory], count: int) -> list[tuple[list[dict[str, Any]], float]]:
    """The messages and rewards of episodes that TRL's rollout loop plays, with a model that says what ours said.

    Args:
        wanted: the n-th one is of the sample n modulo ``count``.
    """
    from openenv.core.harness import MCPHarnessAdapter
    from trl.chat_template_utils import qwen3_chat_template
    from trl.experimental.async_grpo.openenv_harness import _HarnessRolloutLoop

    guide: dict[str, Any] = {}
    exec(
        next(each for each in re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.S) if "Served" in each),
        guide,
    )
    tokenizer = tiny_tokenizer("qwen3")
    tokenizer.chat_template = qwen3_chat_template

    class Scripted(_HarnessRolloutLoop):  # type: ignore[misc,no-any-unimported]
        async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
            ids = tokenizer(said.pop(0), add_special_tokens=False)["input_ids"]
            return ids, [0.0] * len(ids)

    context = multiprocessing.get_context("spawn")
    loop = Scripted(
        model_name="scripted",
        dataset=[],
        reward_funcs=[],
        processing_class=tokenizer,
        eos_token_ids=[tokenizer.eos_token_id],
        rollout_buffer=queue.Queue(),
        model_version_value=context.Value("i", 0),
        heartbeat_value=context.Value("d", 0.0),
        failed_event=context.Event(),
        exception_info_queue=queue.Queue(),
        metrics_queue=queue.Queue(),
        harness_session_factory=lambda: guide["ServedTask"](url),
        harness_adapter=MCPHarnessAdapter(),
    )
    found = []
    try:
        for number, each in enumerate(wanted):
            said = [written(turn.message) for turn in each.turns]
            played = loop._loop.run_until_complete(loop._generate_one(None, {}, [], group_id=number % count))
            found.append((played[0], played[-1]))
    finally:
        loop._session_pool.shutdown()
        loop._tool_pool.shutdown()
        loop._loop.close()
    return found


def written(message: Message) -> str:
    """A turn as Qwen3 writes it."""
    calls = [json.dumps({"name": each.name, "arguments": each.arguments}) for each in message.tool_calls]
    return message.content + "".join(f"<tool_call>\n{each}\n</tool_call>" for each in calls) + "<|im_end|>"
