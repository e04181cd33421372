"""A reward's model in verl's reward-model pool: verl's keys, refusals, and who gets the addresses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from configs import made_config
from rlfactory_devkit import ScriptedSampler, ToyChatFormat
from rlfactory_verl.nodes import report
from rlfactory_verl.overrides import Place, changed_by, compile_overrides
from rlfactory_verl.pool import Pool, Served, check_gpus
from rlfactory_verl.rollout_request import Position, RolloutRequest
from rlfactory_verl.run_payload import Payload
from rlfactory_verl.worker_runtime import worker_runtime

from rlfactory_core.config import RunConfig
from rlfactory_core.errors import ConfigError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import PoolRequest
from rlfactory_core.types import Sample

MODEL = "reward.reward_model"
PLUGIN = """
from rlfactory_core import Sample, Score, Task, hookimpl
from rlfactory_core.protocols import PoolRequest
from rlfactory_devkit import ToyChatFormat


class PoolScorer:
    def __init__(self, model="org/judge"):
        self.pool = PoolRequest(model, 1, 1)
        self.told = self.opened_with = None

    def use_pool(self, urls, model):
        self.told = (tuple(urls), model)

    async def open(self, task):
        assert self.told is not None
        self.opened_with = self.told

    async def close(self): ...

    async def score(self, trajectory):
        urls, model = self.opened_with
        return Score(float(len(urls)), {model: 1.0})


class Small(Task):
    rewards = {"asking": 1.0}


class Toy(ToyChatFormat):
    def __init__(self, tokenizer, thinking): ...


@hookimpl
def rlfactory_tasks(register):
    register("small", Small)


@hookimpl
def rlfactory_reward_scorers(register):
    register("asking", PoolScorer)


@hookimpl
def rlfactory_chat_formats(register):
    register("toy", Toy)
"""


def config(device: str = "cuda", **verl: Any) -> RunConfig:
    data = {"plugin": "search", "engine": "verl", "device": device, "dtype": "bfloat16", "verl": {"gpus": 2, **verl}}
    return made_config(data)


def pool(gpus: int = 1, tensor_parallel: int = 1, model: str = "org/judge", **verl: Any) -> Pool:
    found = Pool.of({"judge": PoolRequest(model, gpus, tensor_parallel)}, config(**verl))
    assert found is not None
    return found


def refusal(gpus: int, tensor_parallel: int = 1, model: str = "org/judge", **verl: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        pool(gpus, tensor_parallel, model, **verl)
    return str(refused.value)


def compiled(wanted: Pool | None, *, device: str = "cuda", **verl: Any) -> dict[str, tuple[str, str]]:
    """verl's keys with their values and where those come from."""
    place = Place("/models/tiny", Path("/runs/one"))
    found = changed_by(compile_overrides(config(device, **verl), place, held_out=1, pool=wanted))
    return {key: (override.value, override.source) for key, override in found.items()}


def test_the_pool_sets_verls_keys() -> None:
    found = compiled(pool(4, 2, nodes=2), nodes=2)
    told = {key.removeprefix(f"{MODEL}."): value for key, value in found.items() if key.startswith(MODEL)}
    assert told == {
        "enable": ("true", "rewards.judge"),
        "enable_resource_pool": ("true", "rewards.judge"),
        "model_path": ("'org/judge'", "rewards.judge"),
        "n_gpus_per_node": ("4", "rewards.judge"),
        "nnodes": ("2", "verl.nodes"),
        "rollout.name": ("'vllm'", "rewards.judge"),
        "rollout.dtype": ("'auto'", "rewards.judge"),
        "rollout.tensor_model_parallel_size": ("2", "rewards.judge"),
        "rollout.response_length": ("1000000", "rewards.judge"),
        "rollout.free_cache_engine": ("false", "rewards.judge"),
        "rollout.enable_sleep_mode": ("false", "rewards.judge"),
        "rollout.gpu_memory_utilization": ("0.9", "rewards.judge"),
    }
    assert found["trainer.n_gpus_per_node"][0] == "2"  # the policy's stay its own


def test_without_a_pool_no_key_of_it_is_set() -> None:
    assert Pool.of({}, config()) is None
    assert not [key for key in compiled(None) if key.startswith(MODEL)]


def test_on_a_cpu_ray_counts_the_pools_devices_too() -> None:
    alone, beside = compiled(None, device="cpu"), compiled(pool(2, device="cpu"), device="cpu")
    assert [found["ray_kwargs.ray_init.num_gpus"][0] for found in (alone, beside)] == ["2", "4"]
    assert [found["ray_kwargs.ray_init.num_cpus"][0] for found in (alone, beside)] == ["16", "22"]
    assert f"{MODEL}.rollout.gpu_memory_utilization" not in beside


def test_rewards_that_request_the_same_pool_share_it() -> None:
    same = PoolRequest("org/judge", 2, 1)
    found = Pool.of({"judge": same, "critic": same}, config())
    assert found is not None
    assert found.source == "rewards.judge, rewards.critic"


def test_rewards_that_request_different_pools_are_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        Pool.of({"judge": PoolRequest("a/b", 1, 1), "critic": PoolRequest("c/d", 2, 1)}, config())
    text = str(refused.value)
    for words in ("verl has one pool", "rewards.judge: model=a/b, gpus=1", "rewards.critic: model=c/d, gpus=2"):
        assert words in text


def test_a_folder_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "judge"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert [pool(model=name).model for name in ("judge", "./judge", "org/judge")] == [str(folder)] * 2 + ["org/judge"]
    assert f"{tmp_path / 'jugde'} is no model's folder" in refusal(1, model="./jugde")


@pytest.mark.parametrize(("gpus", "span", "nodes"), [(4, 2, 1), (2, 2, 3), (8, 16, 2), (1, 1, 1)])
def test_servers_that_fit_machines(gpus: int, span: int, nodes: int) -> None:
    assert pool(gpus, span, nodes=nodes).tensor_parallel == span


@pytest.mark.parametrize(("gpus", "span", "nodes"), [(3, 2, 2), (2, 4, 1), (8, 16, 3)])
def test_servers_that_do_not_fit_machines(gpus: int, span: int, nodes: int) -> None:
    text = refusal(gpus, span, nodes=nodes)
    assert f"rewards.judge: gpus={gpus} on each of {nodes} machines" in text
    assert f"tensor_parallel={span}" in text


def test_on_a_cpu_a_server_is_one_process() -> None:
    assert "tensor_parallel=2, but on the CPU" in refusal(2, 2, device="cpu")


def test_the_message_on_missing_gpus_has_the_numbers() -> None:
    check_gpus(config(gpus=6), pool(2), 8, "This machine")
    with pytest.raises(ConfigError) as refused:
        check_gpus(config(gpus=8), pool(2), 8, "This machine")
    text = str(refused.value)
    assert "needs 10 GPUs: 8 for the policy (verl.gpus=8 x verl.nodes=1), 2 for rewards.judge" in text
    assert "This machine has 8" in text
    assert "Use verl.gpus=6" in text
    with pytest.raises(ConfigError, match=r"needs 16 GPUs: 16 for the policy .* has 8\. Lower verl\.gpus"):
        check_gpus(config(gpus=8, nodes=2), None, 8, "The Ray cluster")


def test_the_addresses_are_those_of_the_servers_not_of_verls_router() -> None:
    manager = SimpleNamespace(
        server_addresses=["10.0.0.2:81", "[fd00::1]:82"], config=SimpleNamespace(model_path="/models/judge")
    )
    trainer = SimpleNamespace(reward_loop_manager=SimpleNamespace(reward_model_manager=manager))
    served = Served.by(trainer)
    assert served == Served(("http://10.0.0.2:81/v1", "http://[fd00::1]:82/v1"), "/models/judge")
    assert Served.from_text(served.to_text()) == served
    trainer.reward_loop_manager.reward_model_manager = None
    assert Served.by(trainer) is None


@pytest.fixture
def payload(tmp_path: Path) -> Payload:
    """A run whose one reward wants a pool."""
    file = tmp_path / "small.py"
    file.write_text(PLUGIN)
    registry = Registry()
    registry.load(str(file))
    made = made_config({"plugin": str(file), "engine": "verl", "chat": {"format": "toy"}})
    return Payload.make(made, registry.fingerprints(), tmp_path)


def test_before_the_pool_runs_a_machine_is_checked_without_it(payload: Payload) -> None:
    """This plugin's scorer cannot open without the addresses."""
    assert report(payload, "").problems == ()


def test_scorers_of_a_rollout_worker_get_the_addresses_before_they_open(payload: Payload) -> None:
    served = Served(("http://a/v1", "http://b/v1"), "judge")
    shared = worker_runtime(payload.to_text(), None, served.to_text())
    sampler: Any = ScriptedSampler(["<answer>x</answer>"], ToyChatFormat())
    work = RolloutRequest(Sample("s", "Where?", "x"), 5, Position("train", 1, 0), 1.0)

    async def play() -> Any:
        _, trajectory = await shared.play(work.dumps(), 0, sampler)
        await shared.tasks.close()
        return trajectory

    trajectory = asyncio.run(play())
    assert not trajectory.faults
    assert trajectory.reward == 2.0
    assert trajectory.score.components["asking.judge"] == 1.0
