"""Which plugins a run gets, and what becomes of broken, colliding, disabled and wrong-version ones."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlfactory_core.errors import PluginConflictError, PluginError, PluginVersionError
from rlfactory_core.plugins.discovery import DISABLE_VARIABLE, PluginEntry, discover
from rlfactory_core.plugins.registry import Registry

Installed = Callable[..., Registry]


@pytest.fixture
def installed(install: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    """A registry over exactly these test packages, in this process."""
    before = set(sys.modules)

    def registry(*names: str) -> Registry:
        site = install(*names)
        monkeypatch.syspath_prepend(site)
        wanted = {name.replace("_", "-") for name in names}
        return Registry([entry for entry in discover() if entry.distribution in wanted])

    yield registry
    for name in set(sys.modules) - before:
        if name.startswith(("rlfactory_greeter", "rlfactory_manners", "rlfactory_broken", "rlfactory_future")):
            del sys.modules[name]


def test_only_what_a_run_names_is_imported(installed: Installed) -> None:
    registry = installed("rlfactory_greeter", "rlfactory_manners", "rlfactory_broken")
    assert registry.task("greeter").name == "greeter"
    assert "rlfactory_greeter.plugin" in sys.modules
    assert "rlfactory_manners" not in sys.modules
    assert registry.broken == ()


def test_the_built_in_parts_are_registered_like_a_plugins(installed: Installed) -> None:
    registry = installed()
    assert registry.find("qwen3", "chat_format").plugin.distribution == "rlfactory-core"
    assert registry.find("exact_match", "reward_scorer", "verifier").kind == "reward_scorer"
    assert [item.name for item in registry.registered("engine")] == ["local"]


def test_a_name_of_another_plugin_loads_that_plugin(installed: Installed) -> None:
    registry = installed("rlfactory_manners", "rlfactory_broken")
    assert registry.find("punctuality", "reward_scorer").plugin.name == "manners"
    assert [item.entry.name for item in registry.broken] == ["broken"]  # tried on the way, and in quarantine


def test_a_broken_plugin_is_an_error_for_who_names_it(installed: Installed) -> None:
    registry = installed("rlfactory_greeter", "rlfactory_broken")
    assert registry.load("greeter")
    with pytest.raises(PluginError) as error:
        registry.load("broken")
    assert "'broken' (rlfactory-broken 0.3) cannot be loaded: ModuleNotFoundError" in str(error.value)
    assert 'rlfactory_broken.py", line 3' in registry.broken[0].traceback


def test_another_plugin_api_is_refused_with_both_versions(installed: Installed) -> None:
    with pytest.raises(PluginVersionError) as error:
        installed("rlfactory_future").load("future")
    assert "speaks plugin API >=2,<3, this rlfactory-core 1.0" in str(error.value)
    assert "pip install -U rlfactory-core rlfactory-future" in str(error.value)


def test_two_distributions_with_one_plugin_name(installed: Installed) -> None:
    registry = installed("rlfactory_greeter", "rlfactory_greeter_twin")
    with pytest.raises(PluginConflictError) as error:
        registry.task("greeter")
    for part in ("rlfactory-greeter 1.0", "rlfactory-greeter-twin 1.1", "'rlfactory-greeter-twin:greeter'"):
        assert part in str(error.value)
    assert registry.task("rlfactory-greeter-twin:greeter").factory is dict
    assert registry.task("rlfactory_greeter:greeter").factory is not dict  # however the distribution is written


def test_two_plugins_that_register_one_name(installed: Installed) -> None:
    registry = installed("rlfactory_greeter", "rlfactory_manners")
    registry.load("greeter")
    registry.load("manners")
    with pytest.raises(PluginConflictError, match="both give the reward scorer 'politeness'"):
        registry.find("politeness", "reward_scorer")
    assert registry.find("rlfactory-manners:politeness", "reward_scorer").factory is dict
    assert len(registry.conflicts()) == 1


@pytest.mark.parametrize("disabled", ["greeter", "rlfactory-greeter", "other, RLFACTORY_greeter"])
def test_a_disabled_plugin_is_as_good_as_absent(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, disabled: str
) -> None:
    registry = installed("rlfactory_greeter", "rlfactory_manners")
    monkeypatch.setenv(DISABLE_VARIABLE, disabled)
    with pytest.raises(PluginError, match="disabled by RLFACTORY_DISABLE_PLUGINS"):
        registry.load("greeter")
    assert registry.find("politeness", "reward_scorer").plugin.name == "manners"


def test_disabling_one_of_two_solves_a_conflict(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = installed("rlfactory_greeter", "rlfactory_greeter_twin")
    monkeypatch.setenv(DISABLE_VARIABLE, "rlfactory-greeter-twin")
    assert registry.task("greeter").plugin.distribution == "rlfactory-greeter"


def test_unknown_names_get_the_nearest(installed: Installed) -> None:
    registry = installed("rlfactory_greeter")
    with pytest.raises(PluginError, match=r"No plugin 'greter' is installed. Did you mean 'greeter'\?"):
        registry.task("greter")
    with pytest.raises(PluginError, match=r"No reward scorer or verifier 'exact_mach' .* 'exact_match'\?"):
        registry.find("exact_mach", "reward_scorer", "verifier")
    with pytest.raises(PluginError, match="'rlfactory-greeter' is a distribution; its plugins are: greeter"):
        registry.task("rlfactory-greeter")


def test_a_search_says_which_plugins_it_could_not_look_into(installed: Installed) -> None:
    with pytest.raises(PluginError, match=r"cannot be loaded: 'broken' \(rlfactory-broken 0.3\)"):
        installed("rlfactory_broken").find("kindness", "reward_scorer")


def test_a_plugin_without_a_task_cannot_be_run(installed: Installed) -> None:
    with pytest.raises(PluginError, match="has no task to run"):
        installed("rlfactory_manners").task("manners")


# One-file plugins


COUNTDOWN = """
from dataclasses import dataclass
from rlfactory_core import hookimpl

@dataclass
class Countdown:
    config: object = None

@hookimpl
def rlfactory_tasks(register):
    register("countdown", Countdown)
"""


def test_one_file_is_a_plugin(tmp_path: Path) -> None:
    file = tmp_path / "my-task.py"
    file.write_text(COUNTDOWN)
    registry = Registry([])
    found = registry.task(str(file))
    assert (found.name, found.plugin.name, found.plugin.file) == ("countdown", "my-task", str(file))
    assert pickle.loads(pickle.dumps(found.factory(3))) == found.factory(3)
    (mark,) = [item for item in registry.fingerprints() if item.plugin == str(file)]
    assert list(mark.files) == ["my-task.py"]


def test_two_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    for folder, name in (("a", "one"), ("b", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "task.py").write_text(COUNTDOWN.replace("countdown", name))
    registry = Registry([])
    assert registry.task(str(tmp_path / "a/task.py")).name == "one"
    assert registry.task(str(tmp_path / "b/task.py")).name == "two"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("x = 1", "registers nothing"),
        ("import helper", "imports helper.py, which lies beside it. A plugin of one file cannot import its neighbours"),
        (
            COUNTDOWN.replace("rlfactory_tasks", "rlfactory_task"),
            "unknown hook 'rlfactory_task'. Did you mean 'rlfactory_tasks'",
        ),
        (COUNTDOWN.replace("(register)", "(reg)"), "has rlfactory_tasks(reg); expected rlfactory_tasks(register)"),
        (COUNTDOWN + "    register('countdown', Countdown)", "twice"),
        (COUNTDOWN.replace('"countdown"', '"a:b"'), "without ':'"),
        (COUNTDOWN.replace(", Countdown)", ", 3)"), "expected a factory"),
        (COUNTDOWN + "\nRLFACTORY_API = 'new'", "expected a version specifier"),
        (COUNTDOWN + "    register('second', Countdown)", "several tasks. Choose one: --plugin countdown or second"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(content)
    (tmp_path / "helper.py").write_text("")
    with pytest.raises(PluginError) as error:
        Registry([]).task(str(file))
    assert message in str(error.value)


def test_a_reward_in_a_file_is_found_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    file.write_text(
        "class Mine:\n    async def score(self, trajectory): return 1.0\n\ndef brief(trajectory): return 0.5\n\nx = 1"
    )
    registry = Registry([])
    assert type(registry.find(f"{file}:Mine", "reward_scorer", "verifier").make()).__name__ == "Mine"
    assert registry.find(f"{file}:brief", "reward_scorer", "verifier").make()(None) == 0.5
    prints = registry.fingerprints()
    assert [item.plugin for item in prints if item.plugin == str(file)]
    Registry([]).load_for_worker(prints)
    for name in ("Min", "x"):
        with pytest.raises(PluginError, match=r"--reward .*gone\.py:Mine: there is no file"):
            registry.find(f"{tmp_path / 'gone.py'}:Mine", "reward_scorer")
        with pytest.raises(PluginError, match=r"no reward of that name.*Mine"):
            registry.find(f"{file}:{name}", "reward_scorer", "verifier")
    with pytest.raises(PluginError, match="registers nothing"):
        registry.task(str(file))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(PluginError, match=r"No plugin file .*/nowhere\.py"):
        Registry([]).task("./nowhere.py")


def test_an_entry_tells_people_and_the_command_line_what_it_is() -> None:
    entry = PluginEntry("search", "rlfactory-search", "0.1.0", "rlfactory_search.plugin")
    assert (str(entry), entry.qualified) == ("'search' (rlfactory-search 0.1.0)", "rlfactory-search:search")
