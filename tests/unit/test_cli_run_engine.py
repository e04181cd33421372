"""``rlfactory run`` for an engine with a configuration of its own: defaults, ``--dry-run``, keys after ``--``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlfactory_verl import engine
from rlfactory_verl.config import VerlConfig

from rlfactory_core.cli.main import invoke
from rlfactory_core.config import RunConfig
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.runner import read, resolve
from rlfactory_core.settings import load_yaml

PLUGIN = '''
from rlfactory_core import Sample, Section, Task, UsageError, hookimpl
from rlfactory_core.settings import EngineSection


class Quiet(Task):
    class Config(Section):
        level: int = 1

    defaults = {"train": {"schedule": "linear", "lr": 5e-4}}
    tiny_defaults = {"train": {"muon_lr": 0.002, "steps": 7}}
    rewards = {"exact_match": 1.0}

    def samples(self, split):
        return [Sample("1", "How long?", "x")]


class Notes(EngineSection):
    options = ("pace", "most_pages")
    after_dashes = "own_keys"

    pace: int = 1
    """How fast it writes."""
    most_pages: int = 9
    own_keys: tuple[str, ...] = ()


class Noted:
    """An engine that explains itself and must not be asked to train."""

    def prepare(self, config):
        if config.train.muon_lr:
            raise UsageError("train.muon_lr: not here. Set it to 0.")
        return config.model_copy(update={"device": "cpu"})

    def explain(self, config, registry):
        return "\\n".join(["own:", *Notes.of(config).own_keys])


class Plain:
    def prepare(self, config):
        return config


class Factory:
    """Made when the run begins; asked before, how a task's defaults fit."""

    def __call__(self):
        return Noted()

    def adapt(self, defaults):
        train = {**defaults.get("train", {}), "muon_lr": 0.0}
        return {**defaults, "train": train}


@hookimpl
def rlfactory_tasks(register):
    register("quiet", Quiet)


@hookimpl
def rlfactory_engines(register):
    register("noted", Factory())
    register("plain", Plain)


@hookimpl
def rlfactory_config_sections(register):
    register("noted", Notes)
'''

Resolve = Callable[..., RunConfig]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quiet.py").write_text(PLUGIN)
    return "./quiet.py"


@pytest.fixture
def resolved(plugin: str) -> Resolve:
    """The configuration before any engine has seen it."""

    def resolved(*given: Any) -> RunConfig:
        return resolve(Registry(), read(None, [f"plugin={plugin}", *given])).config

    return resolved


def test_a_tasks_defaults_are_fitted_to_verl_and_only_to_verl(resolved: Resolve) -> None:
    """Without verl installed: the configuration is made before the engine is."""
    local, verl = resolved(), resolved("engine=verl")
    assert (local.train.schedule, local.train.muon_lr) == ("linear", 0.002)
    assert (verl.train.schedule, verl.train.muon_lr) == ("cosine", 0.0)
    assert local.train.steps == verl.train.steps == 7
    assert local.train.lr == verl.train.lr == 5e-4


def test_what_the_user_asks_for_is_never_fitted(resolved: Resolve, tmp_path: Path) -> None:
    assert resolved("engine=verl", "train.schedule=linear", "train.muon_lr=0.1").train.muon_lr == 0.1
    file = tmp_path / "run.yaml"
    file.write_text("plugin: ./quiet.py\nengine: verl\ntrain: {schedule: linear}\n")
    found = resolve(Registry(), read(file, [])).config
    assert (found.train.schedule, found.train.muon_lr) == ("linear", 0.0)


def test_a_model_of_the_users_own_leaves_the_tiny_models_defaults_out(resolved: Resolve) -> None:
    assert resolved("engine=verl", "model=/models/x").train.steps == RunConfig(plugin="x").train.steps


def test_any_engine_may_fit_defaults_or_not(resolved: Resolve) -> None:
    assert resolved("engine=noted").train.muon_lr == 0.0
    assert resolved("engine=plain").train.muon_lr == 0.002


@pytest.mark.parametrize(
    ("right", "whose"), [("explain", "The engine 'noted'"), ("adapt", "The factory of the engine 'noted'")]
)
def test_a_misspelt_attribute_is_refused(
    plugin: str, right: str, whose: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(plugin).write_text(PLUGIN.replace(f"def {right}(", f"def {right}s("))
    assert run("--plugin", plugin, "--engine", "noted", "--dry-run") == 2
    message = f"{whose} has the attribute '{right}s', which nothing reads. Did you mean '{right}'?"
    assert message in capsys.readouterr().err


def run(*arguments: object) -> int:
    return invoke(["run", *map(str, arguments)])


def test_a_dry_run_shows_the_configuration_and_the_engines_own(
    plugin: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["a.b=1", "+c='x, y'", "d=e=f", "--not-an-option=1"]
    assert run("--plugin", plugin, "--engine", "noted", "--dry-run", "train.lr=2e-4", "--level", 3, "--", *given) == 0
    shown, _, own = capsys.readouterr().out.partition("\n# noted\n")
    (tmp_path / "shown.yaml").write_text(shown)
    assert load_yaml(tmp_path / "shown.yaml")["noted"] == {"pace": 1, "most_pages": 9, "own_keys": given}
    config = resolve(Registry(), read(tmp_path / "shown.yaml", [])).config
    assert (config.engine, config.device, config.train.lr, config.task) == ("noted", "cpu", 2e-4, {"level": 3})
    assert own.splitlines() == ["own:", *given]
    assert not (tmp_path / "runs").exists()


def test_an_engine_without_one_shows_ours_alone(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--plugin", plugin, "--engine", "plain", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "engine: plain" in out
    assert "# plain" not in out


def test_a_dry_run_finds_what_is_wrong(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--plugin", plugin, "--engine", "noted", "--dry-run", "train.muon_lr=0.1") == 2
    assert "error: train.muon_lr: not here. Set it to 0." in capsys.readouterr().err


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """The configuration that a dry run shows."""
    assert run("--dry-run", *arguments) == 0
    Path("shown.yaml").write_text(capsys.readouterr().out.partition("\n# ")[0])
    return load_yaml(Path("shown.yaml"))


def test_gpus_nodes_and_cluster_have_options(
    plugin: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: object())
    monkeypatch.setattr(engine.VerlEngine, "explain", lambda *_: "")
    options = ["--gpus", 4, "--nodes=2", "--ray-address", "auto"]
    found = shown(capsys, "--plugin", plugin, "--engine", "verl", "--device", "cuda", *options, "--", "a.b=1")["verl"]
    assert (found["gpus"], found["nodes"], found["ray_address"], found["overrides"]) == (4, 2, "auto", ["a.b=1"])


def test_an_engine_s_section_has_options_and_stands_under_its_name(
    plugin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--plugin", plugin, "--engine", "noted"]
    found = shown(capsys, *command, "--pace", 2, "--most-pages=3", "--level=4")
    assert (found["noted"], found["task"]) == ({"pace": 2, "most_pages": 3, "own_keys": []}, {"level": 4})
    assert "verl" not in found
    for given in ("noted.pace=5", "plugins.noted.pace=5"):
        assert shown(capsys, *command, given)["noted"]["pace"] == 5
    assert "noted" not in shown(capsys, "--plugin", plugin, "--engine", "plain", "noted.pace=1")


def test_the_help_names_engines_and_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "--help"]) == 0
    out = capsys.readouterr().out
    for words in ("installed engines", "--gpus", "--nodes", "--ray-address", "Address of a running Ray cluster"):
        assert words in out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--engine", "noted", "--pace"], "--pace needs a value: it sets noted.pace."),
        (["--engine", "noted", "--pace=fast"], "noted.pace: got 'fast', expected a valid integer"),
        (["--engine", "noted", "noted.pase=1"], "Unknown key 'noted.pase'. Did you mean 'noted.pace'?"),
        (["--engine", "noted", "noted=1"], "noted: got 1, expected a section of keys and values"),
        (["--engine", "noted", "--gpus=2"], "It is an option of the verl engine: add --engine verl"),
        (["--engine", "plain", "--pace", "2", "--", "a=1"], "noted.pace, noted.own_keys: the plain engine has none"),
        (["--engine", "verll"], "No engine 'verll' is registered. Did you mean 'verl'?"),
        (["--engine", "plain", "nothed.pace=1"], "Unknown key 'nothed'."),
    ],
)
def test_what_an_engine_does_not_have_is_refused(
    plugin: str, given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--plugin", plugin, *given) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize("extra", [["--dry-run"], ["--", "a.b=1"]])
def test_a_resumed_run_goes_on_as_it_began(extra: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--resume", "some-run", *extra) == 2
    assert "neither --dry-run nor keys after `--`" in capsys.readouterr().err


def test_verl_that_is_not_installed_is_told_with_the_command(
    plugin: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    assert run("--plugin", plugin, "--engine", "verl", "--device", "cpu") == 2
    text = capsys.readouterr().err
    assert "--engine verl needs verl, ray" in text
    assert "rlfactory doctor --engine verl --device cpu --install" in text
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--device", "cuda:1"], ["--device cuda:1", "verl.gpus"]),
        (["train.muon_lr=0.1", "train.workers=2"], ["train.muon_lr=0.1", "train.workers=2"]),
        (["verl.mode=sometimes"], ["verl.mode", "sometimes", "colocate_async"]),
        (["verl.gpu=2"], ["'verl.gpu'", "'verl.gpus'"]),
    ],
)
def test_what_verl_cannot_do_is_told_before_anything_starts(
    given: list[str],
    words: list[str],
    plugin: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: object())  # as if all were installed
    device = [] if "--device" in given else ["--device", "cpu"]
    assert run("--plugin", plugin, "--engine", "verl", *device, *given) == 2
    text = capsys.readouterr().err
    for word in words:
        assert word in text
    assert not Path("runs").exists()


def test_prepare_completes_what_the_machine_decides(plugin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: object())
    monkeypatch.setattr(engine.shutil, "which", lambda name: None)  # no GPU

    def prepared(*given: str) -> RunConfig:
        return engine.VerlEngine().prepare(
            resolve(Registry(), read(None, [f"plugin={plugin}", "engine=verl", *given])).config
        )

    config = prepared()
    verl = VerlConfig.of(config)
    assert (config.device, config.dtype, verl.gpus, verl.agent_workers) == ("cpu", "float32", 1, 1)
    assert Path(config.plugin).is_absolute()  # its workers stand elsewhere
    separate = VerlConfig.of(prepared("verl.mode=separate_async"))
    assert (separate.gpus, separate.rollout_gpus) == (2, 1)
    many = prepared("device=cuda", "verl.gpus=16", "model=/models/x")
    assert (many.dtype, VerlConfig.of(many).agent_workers) == ("bfloat16", 8)


def test_the_local_engine_has_no_use_for_verl_s_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="the embedded engine")
    plugin = str(Path(__file__).parents[1] / "support" / "tiny_task.py")
    code = invoke(
        [
            "run",
            "--plugin",
            plugin,
            "--gpus",
            "2",
            "--out",
            str(tmp_path / "run"),
        ]
    )
    assert code == 2
    assert "add --engine verl" in capsys.readouterr().err
    assert invoke(["run", "--plugin", plugin, "--", "a.b=1"]) == 2
    assert "`-- a.b=1` is for an engine's own configuration" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# --- --judge ------------------------------------------------------------------------------------------------------

JUDGE = """

class Judge:
    def __init__(self, url=None): ...

    async def score(self, trajectory): ...


@hookimpl
def rlfactory_reward_scorers(register):
    register("judge", Judge)
"""


@pytest.fixture
def judged(plugin: str) -> str:
    """The plugin, which gives a judge, too."""
    Path(plugin).write_text(PLUGIN + JUDGE)
    return plugin


def shown_rewards(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    """As a run would save them."""
    assert run(*arguments, "--engine", "plain", "--dry-run") == 0
    shown = capsys.readouterr().out.partition("\n# plain\n")[0]
    Path("shown.yaml").write_text(shown)
    rewards: list[dict[str, Any]] = load_yaml(Path("shown.yaml"))["rewards"]
    return [{name: value for name, value in item.items() if name not in ("deadline_s", "label")} for item in rewards]


def test_a_judge_is_added_to_the_rewards_there_are(judged: str, capsys: pytest.CaptureFixture[str]) -> None:
    judge = {"name": "judge", "weight": 1.0, "url": "http://host:8000/v1"}
    given = ("--plugin", judged, "--judge", "http://host:8000/v1")
    assert shown_rewards(capsys, *given) == [{"name": "exact_match", "weight": 1.0}, judge]
    assert shown_rewards(capsys, *given, "--reward", "f1=0.5") == [{"name": "f1", "weight": 0.5}, judge]


def test_a_judge_that_is_there_already_is_found_at_its_new_place(
    judged: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--plugin", judged, "--judge", "http://new:8000/v1")
    (found,) = shown_rewards(capsys, *given, "--reward", "judge=0.5")
    assert found == {"name": "judge", "weight": 0.5, "url": "http://new:8000/v1"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--judge", "host:8000"], "--judge host:8000: expected the address of an OpenAI-compatible server"),
        (["--judge", "http://host/v1", "rewards=[{name: f1, label: judge}]"], "another reward is labelled 'judge'"),
        (["--judge", "http://host/v1", "--resume", "x"], "--judge cannot be given with it"),
    ],
)
def test_a_judge_that_cannot_be_is_refused(
    judged: str, given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [] if "--resume" in given else ["--plugin", judged]
    assert run(*named, *given) == 2
    assert message in capsys.readouterr().err


def test_without_a_plugin_that_judges_the_remedy_is_said(
    plugin: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RLFACTORY_DISABLE_PLUGINS", "judge")
    for command in ("run", "eval"):
        assert invoke([command, "--plugin", plugin, "--judge", "http://host/v1"]) == 2
        assert "pip install rlfactory-judge" in capsys.readouterr().err
