"""Runs without a plugin: what stands in its place, and what ``--mcp`` and ``--reward`` come to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from runs import Cli, write_lines

from rlfactory_core.errors import UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.runner import read, resolve
from rlfactory_core.runner.resolving import configured
from rlfactory_core.settings import load_yaml
from rlfactory_core.tasks.generic import SYSTEM
from rlfactory_core.tasks.setup import TaskSetup
from rlfactory_core.types import Message

COLUMNS = {"prompt": "question", "answer": "answer"}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    own = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Which?"}]
    write_lines(Path("train.jsonl"), [{"question": "Who?", "answer": "Ann"}, {"question": own, "answer": ["x", "y"]}])
    return "train.jsonl"


def setup(*given: Mapping[str, Any] | str) -> TaskSetup:
    return resolve(Registry(), read(None, given)).tasks.only


def test_the_user_s_rows_get_a_system_message_where_they_have_none(data: str) -> None:
    first, second = setup({"data": {"train": data, "columns": COLUMNS}}).samples("train")
    assert first.messages == (Message("system", SYSTEM), Message("user", "Who?"))
    assert (first.answer, second.answer) == ("Ann", ("x", "y"))
    assert second.messages == (Message("system", "Be brief."), Message("user", "Which?"))
    assert "<answer>" in SYSTEM  # what the default reward reads


@pytest.mark.parametrize(("given", "messages"), [("", 1), ("Be kind.", 2)])
def test_the_system_message_is_an_option(data: str, given: str, messages: int) -> None:
    found = setup({"data": {"train": data, "columns": COLUMNS}}, f"task.system={given}").samples("train")[0]
    assert len(found.messages) == messages
    assert found.messages[0].content == given or messages == 1


@pytest.mark.parametrize(
    ("given", "plugin"),
    [
        ({"data": {"train": "train.jsonl"}}, "tools"),
        ({"data": {"eval": "test.jsonl"}}, "tools"),
        ({"tools": {"mcp": {"mcpServers": {}}}}, "tools"),
    ],
)
def test_own_data_or_servers_stand_in_the_place_of_a_plugin(given: dict[str, Any], plugin: str) -> None:
    if "tools" in given:
        pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")
    assert configured(Registry(), read(None, [given]))[0].plugin == plugin


@pytest.mark.parametrize("given", [{}, {"model": "m"}, {"data": "train.jsonl"}, {"tools": {"retries": 1}}])
def test_without_either_the_message_says_what_to_give(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"No plugin is named.*--plugin search.*--data train.jsonl --mcp mcp.json"):
        resolve(Registry(), read(None, [given]))


def test_files_are_found_again_from_another_folder(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")
    monkeypatch.setenv("HOME", str(tmp_path))
    given = {"data": {"train": data, "eval": "~/test.jsonl"}, "tools": {"mcp": "mcp.json"}}
    saved = configured(Registry(), read(None, [given]))[0].model_dump(mode="json")
    assert saved["data"]["train"] == str(tmp_path / data)
    assert saved["data"]["eval"] == str(tmp_path / "test.jsonl")
    assert saved["tools"]["sources"]["mcp"] == str(tmp_path / "mcp.json")


def test_rewards_on_the_command_line_replace_all_others(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.yaml").write_text("rewards: {f1: 1.0, exact_match: 1.0}\n", encoding="utf-8")
    pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")
    Path("mcp.json").write_text('{"mcpServers": {"a": {"url": "http://127.0.0.1:9/mcp"}}}', encoding="utf-8")
    cli = Cli(capsys)
    run = ("run", "--data", data, "--model", "some/model", "--config", "run.yaml", "--dry-run", "--device", "cpu")
    run += tuple(f"data.columns.{key}={value}" for key, value in COLUMNS.items())
    shown = cli(*run, "--reward", "exact_match", "--reward", "format=0.25")
    assert shown.code == 0, shown.err
    Path("shown.yaml").write_text(shown.out, encoding="utf-8")
    config = load_yaml(Path("shown.yaml"))
    assert config["plugin"] == "tools"
    assert [(r["name"], r["weight"]) for r in config["rewards"]] == [("exact_match", 1.0), ("format", 0.25)]
    Path("own.py").write_text("def brief(trajectory): return 1.0\n", encoding="utf-8")
    shown = cli(*run, "--reward", "./own.py:brief=0.5", "--mcp", "mcp.json")
    assert f"name: {Path('own.py').absolute()}:brief\n  label: brief\n  weight: 0.5" in shown.out
    assert "expected FILE.py:NAME" in cli.refusal(*run, "--reward", "./own.py")
    assert "Did you mean 'exact_match'" in cli.refusal(*run, "--reward", "exact_mach")
    for wrong in ("format=much", "format=", "=1", "format=inf"):
        assert f"--reward {wrong}: expected NAME or NAME=WEIGHT" in cli.refusal(*run, "--reward", wrong)


def test_a_dry_run_looks_at_the_columns_and_at_the_model_s_folder(
    data: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cli, columns = Cli(capsys), [f"data.columns.{key}={value}" for key, value in COLUMNS.items()]
    run = ("run", "--data", data, "--device", "cpu", "--dry-run", "--model")
    assert "has no column 'prompt'" in cli.refusal(*run, "some/model")
    assert "There is no model folder './none'" in cli.refusal(*run, "./none", *columns)
    model, shards = tmp_path / "model", [f"model-{number}-of-2.safetensors" for number in (1, 2)]
    model.mkdir()
    lacks = "config.json, the weights (model.safetensors), the tokenizer (tokenizer.json)"
    assert f"is incomplete: it lacks {lacks}" in cli.refusal(*run, model, *columns)
    for name in ("config.json", "tokenizer.json", shards[0]):
        (model / name).write_text("{}")
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shards[0], "b": shards[1]}}))
    assert f"it lacks {shards[1]}. Copy it again." in cli.refusal(*run, model, *columns)
    (model / shards[1]).write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "git lfs pull" in cli.refusal(*run, model, *columns)
    (model / shards[1]).write_text("weights")
    assert cli(*run, model, *columns).code == 0
    (model / "config.json").rename(model / "adapter_config.json")
    assert "The adapter in" in cli.refusal(*run, model, *columns)
    file = tmp_path / "model.gguf"
    assert f"There is no file '{file}'" in cli.refusal(*run, file, *columns)
    file.write_bytes(b"GGUF")
    assert "is damaged or cut off" in cli.refusal(*run, file, *columns)


def test_the_generic_task_needs_a_model_and_data(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(capsys)
    assert "--model" in cli.refusal("run", "--data", data, "--device", "cpu")
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Cannot read the MCP configuration"),
        ("servers", "mcp.json is not JSON"),
        ('{"servers": {}}', "mcp.json names no MCP server"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"KEY": "${RLFACTORY_NO_SUCH}"}}}}', "RLFACTORY_NO_SUCH"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("run", "--model", "some/model", "--data", "train.jsonl", "--device", "cpu"),
        ("eval", "--api", "http://127.0.0.1:9/v1", "--data", "train.jsonl"),
        ("tools", "list"),
    ],
)
def test_servers_that_cannot_be_started_are_refused_before_anything_is(
    data: str, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], content: str | None, message: str
) -> None:
    pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")
    if content is not None:
        Path("mcp.json").write_text(content, encoding="utf-8")
    assert message in Cli(capsys).refusal(*command, "--mcp", "mcp.json")
    assert not Path("runs").exists()


def test_an_option_that_a_reward_does_not_have_is_refused_without_a_traceback(data: str) -> None:
    rewards = [{"name": "exact_match", "strict": True}]
    with pytest.raises(UsageError, match=r"'exact_match' cannot be made with the options strict.*options of its own"):
        setup({"data": {"train": data, "columns": COLUMNS}, "rewards": rewards})
