"""Exit codes, and a task's options as overrides."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from rlfactory_core.cli import main as cli_main
from rlfactory_core.cli.commands import LazyGroup, PluginCommand
from rlfactory_core.cli.options import task_options
from rlfactory_core.errors import MissingExtraError, TrainingError, UsageError
from rlfactory_core.plugins import discovery


def command_that(action: object) -> click.Command:
    @click.command()
    def command() -> None:
        if isinstance(action, BaseException):
            raise action

    return command


@pytest.mark.parametrize(
    ("action", "code", "said"),
    [
        (None, 0, ""),
        (UsageError("no such thing"), 2, "error: no such thing\n"),
        (TrainingError("too many skipped steps"), 1, "error: too many skipped steps\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
    ],
)
def test_each_end_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], action: object, code: int, said: str
) -> None:
    monkeypatch.setattr(cli_main.MainGroup, "get_command", lambda *_: command_that(action))
    assert cli_main.invoke(["anything"]) == code
    assert capsys.readouterr().err.strip() == said.strip()


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_main.MainGroup, "get_command", lambda *_: command_that(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli_main.invoke(["anything"])


@pytest.mark.parametrize(
    ("args", "overrides"),
    [
        (["--corpus", "docs.jsonl", "--top-k=3"], ["task.corpus=docs.jsonl", "task.top_k=3"]),
        (["train.lr=3e-4", "--seeded", "--k", "-1"], ["train.lr=3e-4", "task.seeded=true", "task.k=-1"]),
        (["--verbose"], ["task.verbose=true"]),
        (["--retriever.url=http://h/?a=b"], ["task.retriever.url=http://h/?a=b"]),
        (["--url", "http://a", "--k=3", "--url=http://b"], ['task.url=["http://a", "http://b"]', "task.k=3"]),
        (["--text", ""], ["task.text="]),
        ([], []),
    ],
)
def test_a_tasks_options_become_overrides(args: list[str], overrides: list[str]) -> None:
    assert task_options(args) == overrides


@pytest.mark.parametrize("word", ["search", "-k", "--", "-k=3"])
def test_anything_else_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="expected an option of the task"):
        task_options([word])


def install_waver(site: Path, registered: str, distribution: str = "waver") -> None:
    """A plugin that registers this command."""
    hook = f"@hookimpl\ndef rlfactory_commands(register):\n    register({registered})\n"
    (site / "waver_plugin.py").write_text(f"import click\nfrom rlfactory_core import hookimpl\n\n{hook}")
    info = site / "waver-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlfactory]\nwaver = waver_plugin\n")


def test_help_names_the_plugins_whose_commands_there_may_be(
    install: Callable[..., Path], rlfactory: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    site = install("rlfactory_greeter", "rlfactory_broken", "rlfactory_manners")
    done = rlfactory("--help", site=site, RLFACTORY_DISABLE_PLUGINS="manners")
    commands, _, plugins = done.stdout.partition("\nPlugins:\n")
    assert "greeter" not in commands
    listed = {line.split()[0]: line.split(maxsplit=1)[1:] for line in plugins.splitlines() if line[2:3].strip()}
    assert listed["greeter"] == ["Learn to greet"]
    assert "broken" in listed
    assert "manners" not in listed
    assert "`rlfactory PLUGIN --help`" in plugins


@pytest.mark.slow
@pytest.mark.parametrize(
    ("registered", "message"),
    [
        ("'hello', lambda: click.Command('hello')", "registers the command hello, which nobody can call"),
        ("'waver', dict", "gives {} as its command; expected a click.Command"),
    ],
)
def test_a_plugins_command_that_cannot_be_called_is_explained(
    tmp_path: Path, rlfactory: Callable[..., subprocess.CompletedProcess[str]], registered: str, message: str
) -> None:
    install_waver(tmp_path, registered)
    done = rlfactory("waver", site=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_in_a_plugin_that_is_not_installed_says_what_to_install() -> None:
    missing = PluginCommand("no-such-plugin", "things check", "Check things.")
    group = LazyGroup("things", lazy={"check": missing})
    assert "check  Check things." in group.get_help(click.Context(group))
    with pytest.raises(MissingExtraError) as raised:
        group.main(["check"], standalone_mode=False)
    assert str(raised.value) == (
        "`rlfactory things check` is in the plugin rlfactory-no-such-plugin, which is not installed: "
        "python -m pip install rlfactory-no-such-plugin"
    )


def test_an_agent_without_the_plugin_that_plays_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(discovery, "entry_points", lambda group: ())
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "Who?", "answer": "him"}\n')
    options = ("--data", str(data), "--reward", "exact_match", "--api", "http://127.0.0.1:9/v1", "--model", "x")
    assert cli_main.invoke(["eval", "--agent", "cat", *options]) == 2
    assert "Install it: python -m pip install 'rlfactory-core[agents]'" in capsys.readouterr().err


def test_mcp_servers_without_their_client_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(discovery, "entry_points", lambda group: ())
    servers = tmp_path / "mcp.json"
    servers.write_text('{"mcpServers": {"time": {"command": "uvx"}}}')
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "Who?", "answer": "him"}\n')
    run = ["run", "--reward", "exact_match", "--data", str(data), "--model", "x"]
    for command in (["tools", "list"], ["tools", "list", "--servers"], run):
        assert cli_main.invoke([*command, "--mcp", str(servers)]) == 2, command
        assert "Install it: python -m pip install 'rlfactory-core[mcp]'" in capsys.readouterr().err


def test_a_command_of_rlfactory_in_a_plugin_is_found_under_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_waver(tmp_path, "'things wave', lambda: click.Command('wave', callback=lambda: 'waved')", "rlfactory-waver")
    monkeypatch.syspath_prepend(tmp_path)
    group = LazyGroup("things", lazy={"wave": PluginCommand("waver", "things wave", "Wave.")})
    assert group.main(["wave"], standalone_mode=False) == "waved"
    main = cli_main.MainGroup("rlfactory", lazy={"wave": PluginCommand("waver", "wave", "Wave.")})
    listed = main.get_help(click.Context(main))
    assert "wave  Wave." in listed
    assert "waver" not in listed
