"""``rlfactory new``: what it makes, what it refuses, and when it asks."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from made_plugins import make_plugin
from rlfactory_devkit import TaskBench, oracle
from rlfactory_devkit.scaffold.names import names_of
from rlfactory_devkit.scaffold.template import TEMPLATES, render, template

from rlfactory_core.cli.main import invoke
from rlfactory_core.errors import UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.folder import RunFolder

Run = Callable[..., "subprocess.CompletedProcess[str]"]
LONG = "a-name-as-long-as-a-name-can-b"
needs_lint = pytest.mark.skipif(not Path(sys.executable).with_name("mypy").exists(), reason="needs mypy and ruff")


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_makes_a_whole_project(name: str) -> None:
    files = render(template(name), names_of("my-task"))
    needed = {"pyproject.toml", "README.md", ".gitignore", ".github/workflows/check.yml"}
    needed |= {"my_task/__init__.py", "my_task/py.typed", f"my_task/{template(name).module}.py", "tests/test_task.py"}
    assert needed <= set(files)
    assert 'test_my_task = check_plugin("my-task")' in files["tests/test_task.py"]
    assert not [path for path, text in files.items() if "PACKAGE" in path or "<<" in text or "%>" in text]


def test_the_minimal_task_is_under_forty_lines() -> None:
    assert len(render(template("tool-task"), names_of("my-task"))["my_task/task.py"].splitlines()) < 40


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("My Task", "such as my-task"),
        ("7up", "a letter first, such as up"),
        ("my--task", "such as my-task"),
        ("x" * 31, "at most 30"),
        ("", "such as my-task"),
        ("json", "'json' is taken"),
        ("run", "rlfactory has something of that name"),
        ("class", "'class' is taken"),
        ("click", "a package 'click' is installed"),
    ],
)
def test_names_that_cannot_be(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        names_of(name)


def test_a_name_in_all_its_places() -> None:
    names = names_of("my-long_task2")
    assert (names.name, names.package, names.class_name) == ("my-long_task2", "my_long_task2", "MyLongTask2")


@pytest.mark.parametrize("kind", ["task", "format", "chat-format", "verifier", "engine"])
def test_no_class_has_its_kind_twice_in_its_name(kind: str) -> None:
    for name in TEMPLATES:
        text = "\n".join(render(template(name), names_of(f"my-{kind}")).values())
        assert not re.findall(r"\w*(?:FormatFormat|VerifierVerifier|TaskTask|EngineEngine|FormatTask)\w*", text), name


def test_a_template_that_is_not_there_is_answered_with_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["new", str(tmp_path / "my-task"), "--template", "tool_task"]) == 2
    assert "There is no template 'tool_task'. Did you mean 'tool-task'?" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_is_there_already_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "my-task"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    (tmp_path / "my_task.py").write_text("# mine")
    for name in ("my-task", "my_task.py"):
        assert invoke(["new", str(tmp_path / name)]) == 2
        assert "is there already, and stays as it is" in capsys.readouterr().err
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]
    assert (tmp_path / "my_task.py").read_text() == "# mine"


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["new", str(tmp_path / "nowhere" / "my-task")]) == 2
    assert "There is no folder" in capsys.readouterr().err


def test_the_name_of_an_installed_plugin_is_refused(install: Callable[..., Path], rlfactory: Run) -> None:
    site = install("rlfactory_greeter")
    for name in ("greeter", "rlfactory-greeter"):
        done = rlfactory("new", name, site=site)
        assert done.returncode == 2
        assert f"'{name}' is the name of an installed plugin, 'greeter' (rlfactory-greeter 1.0)" in done.stderr


def test_without_a_terminal_nothing_is_asked(rlfactory: Run) -> None:
    done = rlfactory("new")
    assert done.returncode == 2
    assert "Usage: rlfactory new" in done.stderr
    assert "Missing a name, for example: rlfactory new my-task" in done.stderr


@pytest.mark.slow
def test_on_a_terminal_it_asks_for_what_is_missing(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "rlfactory_core", "new"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    ) as process:
        os.close(theirs)
        os.write(ours, b"my-task\n\n")  # the name, and Return for the template
        said = b"".join(iter(lambda: _read(ours), b"")).decode()
    os.close(ours)
    assert process.returncode == 0, said
    assert "Name, such as my-task:" in said
    assert "Template [tool-task]:" in said
    assert (tmp_path / "my-task" / "pyproject.toml").exists()


@pytest.mark.parametrize("kind", ["tool-task", "env"])
def test_one_file_is_a_plugin_too(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my_task.py"
    assert invoke(["new", str(file), "--template", kind]) == 0
    assert f"rlfactory run --plugin {file} --steps 3" in capsys.readouterr().out
    with TaskBench(str(file)) as bench:
        assert {trajectory.reward for trajectory in bench.play(oracle(bench.task), bench.samples())} == {1.1}


def test_only_some_templates_are_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["new", str(tmp_path / "my_task.py"), "--template", "verifier"]) == 2
    assert "as one file there is: tool-task, agent, env." in capsys.readouterr().err


@pytest.mark.slow
@needs_lint
@pytest.mark.parametrize("name", ["my-task", LONG])
def test_what_is_made_is_clean(tmp_path: Path, name: str) -> None:
    for kind in TEMPLATES:
        folder = make_plugin(tmp_path / kind, name, kind)
        _succeeds(folder, "ruff", "check", "--no-cache", ".")
        _succeeds(folder, "ruff", "format", "--check", "--no-cache", ".")


@pytest.mark.slow
@needs_lint
@pytest.mark.parametrize("kind", TEMPLATES)
def test_what_is_made_is_typed(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    cache = tmp_path_factory.getbasetemp() / "mypy"  # of all of them: most of the work is the core
    _succeeds(make_plugin(tmp_path, "my-task", kind), "mypy", f"--cache-dir={cache}")


@pytest.mark.slow
def test_what_is_made_trains_as_it_is(tmp_path: Path, rlfactory: Run) -> None:
    pytest.importorskip("tokenizers", reason="needs rlfactory-core[local]")
    site = make_plugin(tmp_path, "made-engine", "engine")
    done = rlfactory("run", "--plugin", "made-engine", "--steps", "3", "--out", "run", site=site)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = RunFolder(tmp_path / "run")
    assert [row["step"] for row in folder.read_metrics()] == [1, 2, 3]
    again = rlfactory("run", "--resume", "run", "--steps", "5", site=site)
    assert again.returncode == 0, again.stdout + again.stderr
    assert folder.read_summary()["steps"] == 5
    measured = rlfactory("eval", "--plugin", "made-engine", "--model", "run", site=site)
    assert measured.returncode == 0, measured.stdout + measured.stderr


def test_an_installed_one_gives_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(make_plugin(tmp_path, "made-here", "tool-task")))
    assert Registry().task("made-here").make({}, 0).__class__.__name__ == "MadeHere"


def _succeeds(folder: Path, *command: str) -> None:
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run([program, *command[1:]], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _read(descriptor: int) -> bytes:
    """What a terminal shows; Linux says with an error that nobody writes to it any more."""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
