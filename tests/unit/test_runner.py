"""The runner around an engine that does nothing: what is saved, repeated, resumed and refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from said import Said

from rlfactory_core.errors import ConfigError, PluginError, RunStopped, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import PoolRequest
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner import prepare, read, resolve, resume, run
from rlfactory_core.settings import validate_section
from rlfactory_core.tasks.runtime import TaskRuntime
from rlfactory_core.tasks.scorers import ServedModel
from rlfactory_core.tasks.setup import TaskSetup

PLUGIN = """
from rlfactory_core import Sample, Task, UsageError, hookimpl
from rlfactory_core.errors import RunStopped
from rlfactory_core.protocols import PoolRequest


class Quiet(Task):
    rewards = {"length": 1.0}

    def samples(self, split):
        return SAMPLES


class Length:
    async def score(self, trajectory): ...


class Asks(Length):
    def __init__(self, model="m"):
        self.pool = PoolRequest(model, 2, 1) if model else None
        self.urls = ()
        self.opened = False

    def use_pool(self, urls, model):
        self.urls, self.model = urls, model

    async def open(self, task):
        self.opened = True

    async def close(self): ...


class Patient(Length):
    deadline_s = 900.0


class Still:
    def prepare(self, config):
        return config.model_copy(update={"device": "cpu"})

    def train(self, run):
        if run.config.train.steps == 14:
            (run.folder.checkpoints / "latest").mkdir()
        if run.config.train.steps >= 14:
            run.folder.write_summary({"steps": 0})
            raise RunStopped("Stopped. It was time.")
        if run.config.train.steps == 13:
            raise UsageError("not thirteen")
        return {"plugin": run.config.plugin, "steps": run.config.train.steps, "eval": {}}


@hookimpl
def rlfactory_tasks(register):
    register("quiet", Quiet)


@hookimpl
def rlfactory_engines(register):
    register("still", Still)


@hookimpl
def rlfactory_reward_scorers(register):
    register("length", Length)
    register("asks", Asks)
    register("patient", Patient)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    file = tmp_path / "quiet.py"
    file.write_text(PLUGIN.replace("SAMPLES", '[Sample("1", "How long?", "x")]'))
    return file


def trained(plugin: Path, out: Path, *overrides: str) -> RunFolder:
    given = [f"plugin={plugin}", "engine=still", f"out={out}", "train.steps=3", *overrides]
    return run(prepare(None, given), Progress())


def test_a_saved_configuration_is_one_for_another_run_like_it(plugin: Path, tmp_path: Path) -> None:
    first = trained(plugin, tmp_path / "first", "train.lr=3e-4")
    again = run(prepare(first.config, [f"out={tmp_path / 'again'}"]), Progress())
    assert again.read_config() == first.read_config()
    assert first.read_config()["out"] is None
    assert first.read_config()["device"] == "cpu"


def test_a_finished_run_is_not_resumed_unless_made_longer(plugin: Path, tmp_path: Path) -> None:
    folder = trained(plugin, tmp_path / "run")
    for overrides in ([], ["train.steps=2"]):
        with pytest.raises(UsageError, match=r"is finished: it has done 3 steps\. To train it longer: .* --steps 6"):
            resume(str(folder.path), overrides, Progress())
    assert folder.read_config()["train"]["steps"] == 3
    assert resume(str(folder.path), ["train.steps=4"], Progress()).read_summary()["steps"] == 4


def test_a_resume_that_the_engine_refuses_leaves_the_configuration(plugin: Path, tmp_path: Path) -> None:
    folder = trained(plugin, tmp_path / "run")
    with pytest.raises(UsageError, match="not thirteen"):
        resume(str(folder.path), ["train.steps=13"], Progress())
    assert folder.read_config()["train"]["steps"] == 3


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ("train.lora.rank=4", "train.lora.alpha=8"),
        ("train.lora.rank=4", "train.lora.rank=8"),
        ("train.lora.targets=q_proj", "train.lora.targets=v_proj"),
        ("train.lora.base_bits=4", "train.lora.base_bits=null"),
        ("train.lora.rank=4", "train.lora=null"),
        ("train.lora=null", "train.lora.rank=4"),
    ],
)
def test_a_resumed_run_keeps_its_adapters(plugin: Path, tmp_path: Path, before: str, change: str) -> None:
    folder = trained(plugin, tmp_path / "run", before)
    with pytest.raises(UsageError, match=r"train\.lora\.\w+=.*: the checkpoints in .*run have .* begin a new run"):
        resume(str(folder.path), [change, "train.steps=4"], Progress())
    assert resume(str(folder.path), ["train.lr=1e-4", "train.steps=4"], Progress()).read_summary()["steps"] == 4


def test_a_resumed_run_keeps_its_model(plugin: Path, tmp_path: Path) -> None:
    mine, gone = tmp_path / "mine", tmp_path / "gone"
    mine.mkdir()
    folder = trained(plugin, tmp_path / "run", f"model={mine}")
    with pytest.raises(UsageError, match=r"model=other: the run in .*run trains .*mine\. .* begin a new run"):
        resume(str(folder.path), ["model=other", "train.steps=4"], Progress())
    mine.rename(gone)  # it lies elsewhere now
    assert resume(str(folder.path), [f"model={gone}", "train.steps=4"], Progress()).read_summary()["steps"] == 4


def test_a_plugin_that_changed_is_told_on_resume(plugin: Path, tmp_path: Path) -> None:
    folder = trained(plugin, tmp_path / "run")
    same, changed = Said(), Said()
    resume(str(folder.path), ["train.steps=4"], same)
    assert not any("quiet.py" in line and "changed" in line for line in same.lines)
    plugin.write_text(plugin.read_text() + "\n# another reward\n")
    resume(str(folder.path), ["train.steps=5"], changed)
    assert any("has changed since the run began: quiet.py." in line for line in changed.lines)


def test_a_plugin_that_gives_only_a_reward_is_locked_too(plugin: Path, tmp_path: Path) -> None:
    folder = trained(plugin, tmp_path / "run")
    lock = json.loads(folder.plugins_lock.read_text())
    assert {print_["distribution"] for print_ in lock.values()} == {"rlfactory-core", "quiet.py"}


def test_an_unknown_reward_is_refused_before_anything_else(plugin: Path, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="No reward scorer or verifier 'exact_mach'"):
        trained(plugin, tmp_path / "run", "rewards={exact_mach: 1}")
    assert not (tmp_path / "run").exists()


WRONG_TASKS = {
    "rewards = 'exact_match'": "rewards = 'exact_match'; expected names with their weights",
    "rewards = {len: 1.0}": "A function or class of your own gets its name in the hook",
    "rewards = {'exact_match': 'high'}": "expected names with their weights",
    "class Config:\n        size = 1": "Wrong.Config is no Section",
    "def __init__(self):\n        pass": "`def __init__(self, config=None, seed=0)`",
    "def __init__(self, config=None, seed=0):\n        pass": "has to call `super().__init__(config, seed)`",
}


@pytest.mark.parametrize("body", WRONG_TASKS)
def test_what_is_no_task_is_told_in_words(tmp_path: Path, body: str) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        "from rlfactory_core import Task, hookimpl\n\n\n"
        f"class Wrong(Task):\n    {body}\n\n\n"
        "@hookimpl\ndef rlfactory_tasks(register):\n    register('wrong', Wrong)\n"
    )
    with pytest.raises(PluginError) as caught:
        prepare(None, [{"plugin": str(file)}])
    assert WRONG_TASKS[body] in str(caught.value)


def test_the_task_is_made_once(plugin: Path, tmp_path: Path) -> None:
    counted = "    def __init__(self, *given):\n        super().__init__(*given)\n        MADE.append(self)\n"
    text = PLUGIN.replace("class Quiet(Task):\n", f"MADE = []\n\n\nclass Quiet(Task):\n{counted}")
    trains = 'return {"made": [len(MADE), MADE == [run.tasks.only.task]], "plugin"'
    plugin.write_text(text.replace("SAMPLES", "()").replace('return {"plugin"', trains))
    summary = trained(plugin, tmp_path / "run", "rewards={length: 1}", "seed=3").read_summary()
    assert summary["made"] == [1, True]


def test_what_is_no_sample_is_named(plugin: Path) -> None:
    plugin.write_text(PLUGIN.replace("SAMPLES", '[("How long?", "x")]').replace("lambda: None", "object"))
    prepared = prepare(None, [f"plugin={plugin}", "engine=still", "rewards={exact_match: 1}"])
    with pytest.raises(PluginError, match=r"samples\('train'\) gave a tuple; expected rlfactory_core.Sample"):
        prepared.tasks.samples("train")


@pytest.mark.parametrize(("steps", "further"), [(14, "Go on with: rlfactory run --resume {}"), (15, "Start it anew")])
def test_a_run_that_is_stopped_says_how_to_go_on(plugin: Path, tmp_path: Path, steps: int, further: str) -> None:
    out = tmp_path / "run"
    with pytest.raises(RunStopped) as stopped:
        trained(plugin, out, f"train.steps={steps}")
    assert str(stopped.value).startswith(f"Stopped. It was time. {further.format(out)}")
    assert (out / "report.html").exists()


def test_a_pool_is_refused_where_nobody_serves_one(plugin: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"rewards\.asks: placement=pool needs an engine that serves.*vllm serve"):
        trained(plugin, tmp_path / "run", "rewards={asks: 1}")
    assert not (tmp_path / "run").exists()
    trained(plugin, tmp_path / "run", "rewards=[{name: asks, model: ''}]")


def test_a_pool_is_served_before_its_scorers_open(plugin: Path) -> None:
    def made() -> TaskSetup:
        return resolve(Registry(), read(None, [f"plugin={plugin}", "rewards={asks: 1, length: 1}"])).tasks.only

    def opened(setup: TaskSetup, **options: Any) -> bool:
        runtime = TaskRuntime(setup)
        asyncio.run(runtime.open(**options))
        asyncio.run(runtime.close())
        return bool(setup.scorers.weighted["asks"][0].opened)

    assert made().scorers.pools == {"asks": PoolRequest("m", 2, 1)}
    with pytest.raises(UsageError, match="placement=pool"):
        opened(made())
    assert not opened(made(), pools_later=True)
    setup = made()
    assert opened(setup, served=ServedModel(("http://a/v1",), "m"))
    assert setup.scorers.weighted["asks"][0].urls == ("http://a/v1",)


def test_a_scorers_own_deadline_holds_where_none_is_configured(plugin: Path) -> None:
    def deadlines(rewards: str) -> dict[str, float]:
        tasks = resolve(Registry(), read(None, [f"plugin={plugin}", f"rewards={rewards}"])).tasks
        return tasks.scorers.layer._deadlines

    assert deadlines("{patient: 1, length: 1}") == {"patient": 900.0, "length": 60.0}
    assert deadlines("[{name: patient, deadline_s: 5}]") == {"patient": 5.0}


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("lr", "train.lr"),
        ("epochs", "train.steps"),
        ("per_device_train_batch_size", "train.prompts_per_step"),
        ("output_dir", "out"),
        ("save_steps", "checkpoint.every"),
        ("lora", "train.lora.rank"),
        ("warmup_steps", "train.warmup_steps"),
    ],
)
def test_an_option_of_other_programs_is_answered_by_the_runs_key(option: str, key: str) -> None:
    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")
        hops: int = 1

    with pytest.raises(ConfigError, match=rf"'task\.{option}'.* the run's key is {key}, so write {key}=VALUE"):
        validate_section(Options, {option: 1}, "task")
