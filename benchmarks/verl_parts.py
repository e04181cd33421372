"""Both agent loops over one vLLM server of verl's, for `verl_agent_loop`: the server, the tool, the scripted turns."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, cast

import ray
from machine import sized
from omegaconf import OmegaConf, open_dict
from rlfactory_search.demonstrations import Demonstrator, answer_text, call_text
from rlfactory_search.task import SearchTask
from rlfactory_search.worlds import World
from rlfactory_verl.cluster.janitor import Janitor
from rlfactory_verl.compose import compose
from rlfactory_verl.overrides import Place, compile_overrides
from rlfactory_verl.rollout_request import FIELD, Position, RolloutRequest
from rlfactory_verl.run_payload import Payload
from rlfactory_verl.worker_runtime import worker_runtime
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, AgentLoopWorker
from verl.tools.function_tool import FunctionTool as VerlTool
from verl.tools.schemas import OpenAIFunctionToolSchema
from verl.workers.rollout.llm_server import LLMServerManager

from rlfactory_core import Sample, tool
from rlfactory_core.engines import prebuilt_model
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner import prepare
from rlfactory_core.types import ToolSpec

CALLS = 4  # at once
OURS, VERL, VERL_PARALLEL = "rlfactory", "verl", f"verl, max_parallel_calls={CALLS}"
TRAJECTORIES = sized(128, 16)  # of two calls and an answer each
FEW = sized(16, 4)  # those whose first turn has several calls
OVERRIDES = (
    "actor_rollout_ref.rollout.load_format=auto",  # no trainer syncs weights here
    "actor_rollout_ref.rollout.nnodes=1",
    "actor_rollout_ref.rollout.n_gpus_per_node=1",
    "actor_rollout_ref.rollout.multi_turn.format=hermes",
    "actor_rollout_ref.rollout.multi_turn.max_tool_response_length=100000",  # else 256 characters of it are shown
)


class Search:
    """The tool of both loops: the search task's, over one of its worlds; it may be slow, or never answer."""

    def __init__(self, task: SearchTask, world: World) -> None:
        self._task, self._world = task, world
        self.latency_s = 0.0
        self.hanging: frozenset[str] = frozenset()  # queries

    async def search(self, query: str) -> str:
        """Search the corpus.

        Args:
            query: what to look for.
        """
        if query in self.hanging:
            await asyncio.Event().wait()
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        return self._task._worlds.answer(self._world, query)


@dataclass(frozen=True)
class Script:
    """What the model is made to say to one prompt: the ids of each turn, stop token included."""

    sample: Sample
    turns: tuple[tuple[int, ...], ...]


@dataclass
class Traffic:
    """What went through the server."""

    turns: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0


class ScriptedClient:
    """verl's ``LLMServerClient``, whose sampled ids are replaced by a script's of the same number."""

    def __init__(self, servers: Any) -> None:
        self._servers = servers
        self._under_way: dict[str, Iterator[tuple[int, ...]]] = {}
        self.scripts: Mapping[tuple[int, ...], Script] = {}  # by the prompt's ids
        self.traffic = Traffic()

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, **rest: Any) -> Any:
        if request_id not in self._under_way:
            self._under_way[request_id] = iter(self.scripts[tuple(prompt_ids)].turns)
        ids = next(self._under_way[request_id])
        asked = {
            "max_tokens": len(ids),
            "ignore_eos": True,
            "temperature": sampling_params["temperature"],
            "top_p": sampling_params["top_p"],
            "top_k": sampling_params["top_k"],
            "logprobs": True,
        }
        output = await self._servers.generate(request_id, prompt_ids=prompt_ids, sampling_params=asked, **rest)
        assert len(output.token_ids) == len(ids) == len(output.log_probs)
        output.token_ids = list(ids)
        self.traffic.turns += 1
        self.traffic.prompt_tokens += len(prompt_ids)
        self.traffic.sampled_tokens += len(ids)
        return output


class Worker(AgentLoopWorker):  # type: ignore[misc]
    """verl's worker; of its V1 queue only what is common to both loops is done: tensors are made."""

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> AgentLoopOutput:
        (only,) = output if isinstance(output, list) else [output]  # ours are lists; these trajectories have one row
        only.as_dict()
        return cast("AgentLoopOutput", only)


@dataclass(frozen=True)
class Batch:
    """One batch as measured."""

    seconds: float
    cpu_s: float  # of this process, all its threads
    traffic: Traffic
    outputs: tuple[AgentLoopOutput, ...]  # of the trajectories that ended
    answers: tuple[int, ...]  # that each of them shows the model

    @property
    def tools_s(self) -> float:
        """A trajectory's, as its loop measures it."""
        return mean(output.metrics.tool_calls for output in self.outputs)

    @property
    def masked(self) -> int:
        """How many of ours an infra fault spoilt."""
        return sum(json.loads(output.extra_fields[FIELD])["masked"] for output in self.outputs)


class Loops:
    """Both loops and what they share."""

    def __init__(self, config: Any, servers: Any, replica: Any) -> None:
        self.replica = replica
        self.client = ScriptedClient(servers)
        four = deepcopy(config)
        four.actor_rollout_ref.rollout.multi_turn.max_parallel_calls = CALLS
        self.workers = {OURS: Worker(config, self.client), VERL: Worker(config, self.client)}
        self.workers[VERL_PARALLEL] = Worker(four, self.client)
        self.runtime = worker_runtime(str(config.data[FIELD]), self.tokenizer, None)
        task = self.runtime.tasks.only.task
        assert isinstance(task, SearchTask)
        self.world = task.world("eval")
        self.tool = Search(task, self.world)
        ours = tool(self.tool.search, name="search")
        schema = OpenAIFunctionToolSchema.model_validate(ours.spec.function_schema)
        # verl's schema drops what it does not know, so the model is told of both tools what is left.
        ours.spec = ToolSpec(**schema.model_dump(exclude_unset=True, exclude_none=True)["function"])
        task.tools = [ours]
        for worker in self.workers.values():
            worker.tools = [VerlTool("search", self.tool.search, schema, is_async=True)]

    @property
    def tokenizer(self) -> Any:
        return self.workers[OURS].tokenizer

    def use(self, scripts: Sequence[Script]) -> None:
        tools = [item.spec for item in self.runtime.tasks.only.task.tools]
        chat = self.runtime.tasks.chat
        self.client.scripts = {chat.initial_ids(script.sample.messages, tools): script for script in scripts}

    def queries(self, script: Script) -> list[str]:
        calls = [call for turn in script.turns for call in self.runtime.tasks.chat.parse(turn).tool_calls]
        return [str(call.arguments["query"]) for call in calls if call.arguments is not None]

    async def play(self, loop: str, limit_s: float | None = None) -> Batch:
        """All scripts once, at the same time."""
        await self.replica.clear_kv_cache()
        self.client.traffic = traffic = Traffic()
        gc.collect()
        worker = self.workers[loop]
        config = worker.rollout_config
        params = {"temperature": config.temperature, "top_p": config.top_p, "top_k": config.top_k}
        params |= {"repetition_penalty": 1.0, "logprobs": config.calculate_log_probs}
        rows = [self._row(number, script) for number, script in enumerate(self.client.scripts.values())]
        where = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
        name = "rlfactory" if loop == OURS else "tool_agent"
        started, cpu = time.perf_counter(), time.process_time()
        tasks = [
            asyncio.create_task(worker._run_agent_loop(dict(params), where, agent_name=name, trace=False, **row))
            for row in rows
        ]
        done, running = await asyncio.wait(tasks, timeout=limit_s)
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        outputs = tuple(one.result() for one in tasks if one in done)
        return Batch(seconds, cpu_s, traffic, outputs, tuple(self._answers(output) for output in outputs))

    def _row(self, number: int, script: Script) -> dict[str, Any]:
        """What verl's trainer hands to its worker for a prompt."""
        sample = script.sample
        work = RolloutRequest(sample, number, Position("train", time.monotonic_ns(), number), 1.0)
        return {
            "raw_prompt": [{"role": message.role, "content": message.content} for message in sample.messages],
            "index": number,
            "data_source": "search",
            "session_id": 0,
            "global_steps": 1,
            "uid": str(number),
            FIELD: work.dumps(),
        }

    def _answers(self, output: AgentLoopOutput) -> int:
        shown = [i for i, own in zip(output.response_ids, output.response_mask, strict=True) if not own]
        return str(self.tokenizer.decode(shown)).count("</tool_response>")


class Scripts:
    """Turns for the world's questions of two hops."""

    def __init__(self, loops: Loops) -> None:
        self._loops = loops
        questions = [question for question in loops.world.questions if question.hops == 2]
        self._questions = random.Random(0).sample(questions, TRAJECTORIES)

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._loops.tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False))

    def two_calls(self) -> list[Script]:
        """A call, a call, the answer: as demonstrated to the model."""
        demonstrate = Demonstrator([self._loops.world], self._loops.runtime.tasks.only.task._worlds.answer, 1.0)
        scripts = []
        for number, question in enumerate(self._questions):
            said = demonstrate.episode(self._loops.world, question, random.Random(number))
            turns = tuple(self._ids(message.content) for message in said if message.role == "assistant")
            scripts.append(Script(self._loops.world.sample(question, "eval", f"eval/{number}"), turns))
        return scripts

    def calls_at_once(self, calls: int) -> list[Script]:
        """So many calls in the first turn, which is as long as with `CALLS` of them, and the answer."""
        scripts = []
        filler = self._ids("of")[0]
        for number, question in enumerate(self._questions[:FEW]):
            queries = [f"{word} {question.path[0]}" for word in ("who", "where", "employer", "city")[:CALLS]]
            texts = [call_text(query) for query in queries]
            ids, longest = self._ids("\n".join(texts[:calls])), len(self._ids("\n".join(texts)))
            turn = (filler,) * (longest - len(ids)) + ids
            sample = self._loops.world.sample(question, "eval", f"eval/{number}")
            scripts.append(Script(sample, (turn, self._ids(answer_text(question.answer)))))
        return scripts


async def start_server(config: Any) -> LLMServerManager:
    return await LLMServerManager.create(config)  # which is awaitable within a coroutine function only


@asynccontextmanager
async def both_loops(scratch: Path, deadline_s: float) -> AsyncIterator[Loops]:
    """Ray, one server of verl's with the search task's tiny model, and both loops; all of it is ended afterwards.

    Args:
        deadline_s: of a call of ours.
    """
    given = {"plugin": "search", "engine": "verl", "device": "cpu", "seed": 0}
    sections = {"tools": {"deadline_s": deadline_s}, "rollout": {"max_tool_calls": CALLS}}
    prepared = prepare(None, [{**given, **sections, "verl": {"gpus": 1, "overrides": OVERRIDES}}])
    run = prepared.at(RunFolder.create("benchmark", scratch / "run"), Progress())
    place = Place(str(prebuilt_model(run)), run.folder.path, str(scratch))
    config = compose(compile_overrides(prepared.config, place, held_out=0))
    with open_dict(config):
        config.data[FIELD] = Payload.make(prepared.config, run.fingerprints, run.folder.path).to_text()
    options = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)
    assert isinstance(options, dict)
    kept = {key: value for key, value in options.items() if value is not None and key != "runtime_env"}
    folder = Path(tempfile.mkdtemp(prefix="rlf-ray-"))  # short: sockets' paths are limited
    kept["runtime_env"] = {"env_vars": {"TMPDIR": str(folder), "VLLM_RPC_BASE_PATH": str(folder)}}
    janitor = Janitor([folder])
    try:
        ray.init(address="local", _temp_dir=str(folder), log_to_driver=False, logging_level="ERROR", **kept)
        manager = await start_server(config)
        loops = Loops(config, manager.get_client(), manager.get_replicas()[0])
        yield loops
        await loops.runtime.tasks.close()
    finally:
        ray.shutdown()
        janitor.finish()
