"""The pytest plugin, in sessions of its own: fixtures and `check_plugin`, on good tasks and on bad ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT, blocks
from rlfactory_devkit import check_plugin

from rlfactory_core.errors import UsageError

COUNTED = """
from pathlib import Path
from rlfactory_core import Sample, Task, hookimpl


class Counted(Task):
    def samples(self, split):
        yield from (Sample(f"{i}", f"What is {i} + {i}?", str(2 * i)) for i in range(1, 9))

    async def open(self):
        Path("log").open("a").write("open\\n")

    async def close(self):
        Path("log").open("a").write("close\\n")


@hookimpl
def rlfactory_tasks(register):
    register("counted", Counted)
"""
TESTS = """
import pytest
from rlfactory_devkit import check_plugin

CHEAP = ["oracle", "splits", "faults"]
REST = [
    "floor", "determinism", "leakage", "isolation", "cancellation", "close", "tokens", "pickling", "bounds",
]
test_counted = check_plugin("./counted.py", skip=REST)
test_gone = check_plugin("./gone.py", skip=["faults", *REST])


def test_bench(task_bench):
    bench = task_bench("./counted.py")
    assert len(bench.samples(limit=3)) == 3


def test_tokenizers(tiny_tokenizer):
    assert tiny_tokenizer("llama3") is tiny_tokenizer("llama3")
    assert tiny_tokenizer("llama3") is not tiny_tokenizer("qwen3")


def test_closed():
    with open("log") as log:
        assert log.read().split() == ["open", "open", "close"]
"""


def pytest_in(place: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=240, check=False)
    return done.stdout + done.stderr


def write_document(place: Path) -> None:
    for block in blocks(ROOT / "docs" / "testing.md"):
        if block.mark.startswith("file:"):
            (place / block.mark.removeprefix("file:").strip()).write_text(block.body, encoding="utf-8")


@pytest.mark.slow
def test_an_item_for_each_check_tells_what_it_found(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(COUNTED)
    (tmp_path / "test_it.py").write_text(TESTS)
    told = pytest_in(tmp_path, "-rfsp")
    assert "PASSED test_it.py::test_counted[oracle]" in told
    assert "plugin './counted.py' fails the check 'splits':\n- 8 of 8 eval samples are also in train" in told
    assert "rlfactory plugins check ./counted.py --only splits" in told
    assert "the task has no tools of its own" in told
    assert "check_plugin(skip=…) names it" in told
    assert re.search(r"_ test_gone\[oracle\] _+\nNo plugin file .*gone\.py\. Expected a Python file", told)
    assert re.search(r"\b3 failed, 4 passed, 20 skipped", told)
    assert "Traceback" not in told
    assert "another exception" not in told
    assert (tmp_path / "log").read_text().split() == ["open", "open", "close", "close"]  # one for all checks


@pytest.mark.slow
def test_the_documents_tests_pass(tmp_path: Path) -> None:
    write_document(tmp_path)
    assert "4 passed" in pytest_in(tmp_path, "test_capitals.py")


@pytest.mark.slow
def test_the_documents_task_passes_all_checks(tmp_path: Path) -> None:
    write_document(tmp_path)
    assert "12 passed" in pytest_in(tmp_path, "test_checks.py")


def test_a_check_that_there_is_not_cannot_be_skipped() -> None:
    with pytest.raises(UsageError, match=r"no check 'leak'\. Did you mean 'leakage'"):
        check_plugin("./any.py", skip=["leak"])


@pytest.mark.slow
def test_a_session_that_does_not_use_it_loads_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "test_modules.py").write_text(
        "import sys\n\n\ndef test_modules():\n"
        "    ours = {name for name in sys.modules if name.startswith('rlfactory')}\n"
        "    assert ours <= {'rlfactory_core', 'rlfactory_devkit', 'rlfactory_devkit.fixtures'}\n"
        "    assert not {'torch', 'transformers', 'pydantic', 'jsonschema'} & set(sys.modules)\n"
    )
    assert "1 passed" in pytest_in(tmp_path, "test_modules.py")
