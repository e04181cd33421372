"""A function's version: another one after every edit that counts, the same in every process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlfactory_devkit import FaultInjector, InjectedFaults

from rlfactory_core.tools import tool

MODULE = """
import enum
from functools import lru_cache, wraps
from rlfactory_core.tools import tool

class Unit(enum.Enum):
    METRE = "m"
    MILE = "mi"

TIMES = 2

def helper(x):
    return x * TIMES

def noted(fn):
    @wraps(fn)
    def wrapper(*args):
        return fn(*args)
    return wrapper

@tool
def plain(a: int, unit: Unit = Unit.METRE, places: tuple[str, ...] = ("a", "b"), odd: set[str] = {"x", "y"}) -> int:
    seen = a in {"one", "two", "three"}
    return helper(a) if seen else (lambda: a + 1)()

@tool
@noted
def decorated(a: int) -> int:
    return a

@tool
@lru_cache
def remembered(a: int) -> int:
    return a

@tool(version="of the index")
def named(a: int) -> int:
    return a
"""
PRINT = "import tools_here; print(*(getattr(tools_here, name).version for name in %r))"
NAMES = ["plain", "decorated", "remembered", "named"]


def versions(folder: Path, text: str, seed: int = 0) -> list[str]:
    """Of the module's tools, in a process of its own."""
    (folder / "tools_here.py").write_text(text)
    env = {
        "PYTHONHASHSEED": str(seed),
        "PYTHONPATH": f"{folder}:{Path(__file__).parents[2]}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run([sys.executable, "-c", PRINT % NAMES], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split(" ", 3)


@pytest.mark.slow
def test_it_is_the_same_in_every_process_and_changes_with_the_file(tmp_path: Path) -> None:
    first = versions(tmp_path, MODULE)
    assert len(set(first)) == 4
    assert first[3] == "of the index\n"
    assert versions(tmp_path, MODULE, seed=7) == first
    edited = versions(tmp_path, MODULE.replace("return x * TIMES", "return x * TIMES + 1"))
    assert [a == b for a, b in zip(edited, first, strict=True)] == [False, False, False, True]


def closing_over(value: Any) -> Callable[..., Any]:
    def inner(a: int) -> Any:
        return value

    return inner


def typed_in() -> Callable[..., Any]:
    module: dict[str, Any] = {"__name__": "typed_in"}
    exec("def f(a: int): return a", module)
    return module["f"]  # type: ignore[no-any-return]


class Index:
    def search(self, query: str) -> str:
        return query


@pytest.mark.parametrize("fn", [Index().search, closing_over(1), typed_in()])
def test_where_more_than_a_file_decides_there_is_no_version(fn: Callable[..., Any]) -> None:
    assert tool(fn).version == ""
    assert tool(fn, version="1").version == "1"


def test_a_tool_around_another_has_its_version_and_deadline() -> None:
    made = tool(closing_over(1), version="7", deadline_s=2.5)
    around = FaultInjector(made, 0, InjectedFaults(lambda draw: 0.0))
    assert (around.version, around.deadline_s) == ("7", 2.5)
