"""A name that goes says so to who uses it, where they use it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import rlfactory_core
from rlfactory_core import RlfactoryDeprecationWarning, builtin
from rlfactory_core.errors import MissingExtraError
from rlfactory_core.types import Score
from rlfactory_core.utils.deprecation import moved, warn_deprecated
from rlfactory_core.utils.old_paths import MOVED


def test_a_moved_name_works_and_says_where_it_stands_now() -> None:
    said = (
        r"rlfactory_core.builtin.Lazy is deprecated since plugin API 1.1 and goes with 2.0. Use rlfactory_core.Lazy\."
    )
    with pytest.warns(RlfactoryDeprecationWarning, match=said) as caught:
        assert builtin.Lazy is rlfactory_core.Lazy
    assert Path(caught[0].filename) == Path(__file__)  # the place that has to change


def test_all_that_moved_together_is_found() -> None:
    for name in ("LazyReward", "LazyChatFormat", "LazyEngine"):
        with pytest.warns(RlfactoryDeprecationWarning):
            assert getattr(builtin, name) is getattr(rlfactory_core, name)


def test_another_name_is_no_attribute() -> None:
    find = moved("somewhere", {"Old": "pathlib:Path"}, since="1.1", until="2.0")
    with pytest.raises(AttributeError, match="module 'somewhere' has no attribute 'Other'"):
        find("Other")
    assert not hasattr(builtin, "Other")


def test_a_field_with_a_new_name_can_be_given_and_read_by_the_old_one() -> None:
    with pytest.warns(
        RlfactoryDeprecationWarning, match="the argument 'turns' of Score .* Use 'turn_rewards'"
    ) as caught:
        score = Score(1.0, turns=(0.5,))  # type: ignore[call-arg]
    assert Path(caught[0].filename) == Path(__file__)
    assert score == Score(1.0, turn_rewards=(0.5,)) == replace(Score(1.0), turn_rewards=(0.5,))
    with pytest.warns(RlfactoryDeprecationWarning, match=r"Score.turns is deprecated .* Use Score.turn_rewards\."):
        assert score.turns == (0.5,)  # type: ignore[attr-defined]


def old(count: int) -> int:
    warn_deprecated("old()", since="1.1", until="2.0", instead="new()")
    return count


def test_one_place_warns_once() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        assert [old(count) for count in range(3)] == [0, 1, 2]
        old(3)
    assert len(said) == 2
    assert {Path(item.filename) for item in said} == {Path(__file__)}


@pytest.mark.parametrize("old", MOVED)
def test_a_module_that_moved_is_found_under_its_old_name(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(RlfactoryDeprecationWarning, match=f"{old} is deprecated .* Use {MOVED[old]}"):
        module = import_module(old)
    assert module is import_module(MOVED[old])
    assert module.__spec__.name == MOVED[old]


OLD_TESTS = """
from rlfactory_core.testing import TaskBench, check_plugin
from rlfactory_core.testing.bench import TaskBench as same
from rlfactory_core.testing.checks.context import CheckContext
import rlfactory_devkit.checks.context
assert same is TaskBench and check_plugin is rlfactory_devkit.check_plugin
assert CheckContext is rlfactory_devkit.checks.context.CheckContext
"""


@pytest.mark.slow
def test_the_tests_of_older_plugins_still_run() -> None:
    code = [sys.executable, "-W", "always", "-c", OLD_TESTS]
    done = subprocess.run(code, capture_output=True, text=True, check=True)
    warned = "rlfactory_core.testing is deprecated since plugin API 1.2 and goes with 2.0. Use rlfactory_devkit."
    assert warned in done.stderr


def test_an_old_module_of_a_package_that_is_missing_says_what_to_install() -> None:
    code = "import sys\nsys.modules['rlfactory_devkit'] = None\nfrom rlfactory_core.testing import TaskBench"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("not installed: python -m pip install rlfactory-devkit")


def test_the_place_that_imports_an_old_module_is_named() -> None:
    code = "from rlfactory_core.env import ToolEnv\nimport rlfactory_core\nassert ToolEnv is rlfactory_core.ToolEnv"
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True)
    assert "<string>:1: RlfactoryDeprecationWarning: rlfactory_core.env is deprecated" in done.stderr


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("agent_tool", "rlfactory_agents"),
        ("code_interpreter", "rlfactory_interpreter"),
        ("McpSource", "rlfactory_mcp"),
        ("qwen_tool", "rlfactory_mcp"),
        ("qwen_tools", "rlfactory_mcp"),
    ],
)
def test_a_name_that_moved_to_a_plugin(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = getattr(pytest.importorskip(package), name)
    with pytest.warns(RlfactoryDeprecationWarning, match=rf"Use {package}\.{name}"):
        assert getattr(rlfactory_core, name) is moved
    monkeypatch.setitem(sys.modules, package, None)
    with (
        pytest.warns(RlfactoryDeprecationWarning),
        pytest.raises(MissingExtraError, match=f"python -m pip install {package.replace('_', '-')}"),
    ):
        getattr(rlfactory_core, name)
