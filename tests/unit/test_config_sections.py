"""Sections that plugins add to the configuration: checked, filled, saved, and read wherever the plugin's parts are."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rlfactory_verl.run_payload import Payload

from rlfactory_core.errors import PluginConflictError, PluginError, UsageError
from rlfactory_core.plugins.discovery import discover
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner import prepare, resume, run
from rlfactory_core.runner.checking import check
from rlfactory_core.runner.making import make_tasks
from rlfactory_core.runner.resolving import read, resolve

PLUGIN = str(Path(__file__).parents[1] / "support" / "sections_plugin.py")
BASE = [f"plugin={PLUGIN}", "engine=still", "train.steps=3"]
MANNERS = """
from rlfactory_core import Lazy, Section, hookimpl

class Manners(Section):
    bow: float = 0.5

@hookimpl
def rlfactory_config_sections(register):
    register("manners", CLASS)
"""


def trained(out: Path, *overrides: str) -> RunFolder:
    return run(prepare(None, [*BASE, f"out={out}", *overrides]), Progress())


def test_task_reward_engine_and_other_processes_read_it(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", "plugins.greeting.word=hei", "plugins={greeting: {times: 3}}")
    greeting = {"word": "hei", "times": 3}
    assert folder.read_summary()["seen"] == {
        "engine": greeting,
        "samples": "hei",
        "scorer": 3,
        "folder": str(folder.path),
        "carried": greeting,
    }
    assert folder.read_config()["plugins"] == {"greeting": greeting}


def test_the_defaults_of_a_plugin_in_use_are_saved_too(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run")
    assert folder.read_config()["plugins"] == {"greeting": {"word": "hello", "times": 1}}
    again = resume(str(folder.path), ["train.steps=4", "plugins.greeting.times=2"], Progress())
    assert again.read_summary()["seen"]["scorer"] == 2
    assert again.read_config()["plugins"] == {"greeting": {"word": "hello", "times": 2}}


def test_a_worker_of_verl_reads_it_from_the_payload(tmp_path: Path) -> None:
    prepared = prepare(None, [*BASE, "plugins.greeting.word=hei"])
    made = Payload.make(prepared.config, prepared.registry.fingerprints(), tmp_path)
    config, registry = Payload.from_text(made.to_text()).load_plugins()
    assert make_tasks(config, registry).only.task.run.sections["greeting"].word == "hei"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("plugins.greting.word=hei", "No config section 'greting' is registered. Did you mean 'greeting'?"),
        ("plugins.greeting.wrod=hei", "Unknown key 'plugins.greeting.wrod'. Did you mean 'plugins.greeting.word'?"),
        ("plugins.greeting.times=many", "plugins.greeting.times: got 'many', expected a valid integer"),
        ("plugins.greeting=hei", "plugins.greeting: got 'hei', expected a section of keys and values"),
        (
            "plugins={greeting: {}, 'sections_plugin.py:greeting': {}}",
            "the section 'greeting' is given twice, once as 'sections_plugin.py:greeting'",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_whole_key(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        trained(tmp_path / "run", override)
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


# --- of another plugin than the task's ------------------------------------------------------------------------------

Installed = Callable[..., Registry]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    """A registry over plugins that only give the section 'manners': by name, what each registers."""
    before = set(sys.modules)

    def registry(**classes: str) -> Registry:
        for name, registered in classes.items():
            info = tmp_path / "site" / f"{name}-1.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text(f"[rlfactory]\n{name} = rlfactory_of_{name}\n")
            (tmp_path / "site" / f"rlfactory_of_{name}.py").write_text(MANNERS.replace("CLASS", registered))
        monkeypatch.syspath_prepend(tmp_path / "site")
        return Registry([entry for entry in discover() if entry.name in classes])

    yield registry
    for name in set(sys.modules) - before:
        if name.startswith("rlfactory_of_"):
            del sys.modules[name]


def checked(registry: Registry, *overrides: str) -> dict[str, object]:
    return dict(check(resolve(registry, read(None, [*BASE, *overrides]))).config.plugins)


def in_use(registry: Registry) -> set[str]:
    return {print_.distribution for print_ in registry.fingerprints()} - {"rlfactory-core", "sections_plugin.py"}


@pytest.mark.parametrize("registered", ["Manners", "Lazy('rlfactory_of_east:Manners')"])
def test_naming_a_section_brings_its_plugin_into_use(installed: Installed, registered: str) -> None:
    registry = installed(east=registered)
    assert checked(registry).keys() == {"greeting"}
    assert in_use(registry) == set()
    assert checked(registry, "plugins.manners.bow=1")["manners"] == {"bow": 1.0}
    assert in_use(registry) == {"east"}


def test_of_two_that_give_the_section_one_is_named(installed: Installed) -> None:
    registry = installed(east="Manners", west="Manners")
    registry.load_all()
    assert checked(registry).keys() == {"greeting"}  # nobody named it: no conflict
    with pytest.raises(PluginConflictError, match=r"both give the config section 'manners'\. Name .*: 'east:manners'"):
        checked(registry, "plugins.manners.bow=1")
    assert checked(registry, "plugins={'west:manners': {bow: 1}}")["west:manners"] == {"bow": 1.0}
    assert in_use(registry) == {"west"}
    saved = json.loads(json.dumps(checked(registry)))  # as a resume reads it
    assert checked(registry, f"plugins={json.dumps(saved)}") == saved
    registry.load("east")
    with pytest.raises(PluginConflictError, match="config section 'manners'"):
        checked(registry)


def test_what_is_no_section_is_the_plugins_mistake(installed: Installed) -> None:
    with pytest.raises(PluginError, match=r"'east' \(east 1.0\) registers the config section 'manners' with .*dict"):
        checked(installed(east="dict"), "plugins.manners.bow=1")
