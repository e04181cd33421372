"""A worker gets the same configuration and plugin as the driver, or an error that names the file that differs."""

from __future__ import annotations

import hashlib
import os
import pickle
import string
import subprocess
import sys
from pathlib import Path

import pytest
from configs import made_config
from rlfactory_verl.run_payload import Payload

from rlfactory_core.errors import PluginError
from rlfactory_core.plugins.registry import Registry

PLUGIN = """# Aufgabe: "zähle" — 数える
from rlfactory_core import Sample, Task, hookimpl


class Counting(Task):
    def samples(self, split):
        return [Sample("1", "Wie viele Äpfel? 🍎", "drei")]


@hookimpl
def rlfactory_tasks(register):
    register("counting", Counting)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    file = tmp_path / "my own task.py"
    file.write_bytes(PLUGIN.replace("\n", "\r\n").encode())
    return file


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def payload(plugin: str | Path, folder: Path, **config: object) -> Payload:
    """As the driver makes it."""
    registry = Registry()
    registry.load(str(plugin))
    made = made_config({"plugin": str(plugin), "engine": "verl", **config})
    return Payload.make(made, registry.fingerprints(), folder, {"train": ["7"]})


def test_a_configuration_is_read_back_unchanged(plugin: Path, tmp_path: Path) -> None:
    before = payload(
        plugin,
        tmp_path,
        engine="verl",
        out=tmp_path / "run",
        rewards=[{"name": "exact_match", "weight": 0.5, "own": [1, None]}],
        task={"text": "a=b, {c}: 'd' ${e}\n", "nested": {"größe": 1e-9}},
        verl={"gpus": 2, "overrides": ["trainer.note='a, b'"]},
    )
    after = Payload.from_text(before.to_text())
    assert after == before
    assert after.config.model_dump() == before.config.model_dump()
    assert pickle.loads(pickle.dumps(after)) == before


def test_the_text_has_no_special_characters_of_configuration_languages(plugin: Path, tmp_path: Path) -> None:
    assert set(payload(plugin, tmp_path).to_text()) <= {*string.ascii_letters, *string.digits, "+", "/", "="}


def test_a_one_file_plugin_is_sent_to_a_machine_that_lacks_it(plugin: Path, cache: Path, tmp_path: Path) -> None:
    sent = payload(plugin, tmp_path)
    (driver,) = (item for item in sent.fingerprints if item.distribution == plugin.name)
    bytes_before = plugin.read_bytes()
    plugin.unlink()
    config, registry = Payload.from_text(sent.to_text()).load_plugins()
    written = Path(config.plugin)
    assert written != plugin
    assert written.read_bytes() == bytes_before
    assert b"\r\n" in bytes_before
    (worker,) = (item for item in registry.fingerprints() if item.distribution == plugin.name)
    assert worker.digest == driver.digest
    assert worker.files == {plugin.name: hashlib.sha256(bytes_before).hexdigest()}
    (sample,) = registry.task(config.plugin).make({}, 0).samples("train")
    assert sample.prompt == "Wie viele Äpfel? 🍎"


def test_what_a_travelled_plugin_defines_can_be_pickled_between_driver_and_worker(
    plugin: Path, cache: Path, tmp_path: Path
) -> None:
    """In a process of its own, which has never seen the driver's file."""
    sent = payload(plugin, tmp_path)
    task = Registry().task(str(plugin)).factory
    data = tmp_path / "data"
    data.write_bytes(pickle.dumps(task))
    plugin.unlink()
    program = (
        "import pickle, sys\n"
        "from rlfactory_verl.run_payload import Payload\n"
        "Payload.from_text(sys.argv[1]).load_plugins()\n"
        "print(pickle.load(open(sys.argv[2], 'rb')).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, sent.to_text(), str(data)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert (done.stdout.strip(), done.returncode) == ("Counting", 0), done.stderr


def test_a_file_that_is_there_is_used_where_it_is(plugin: Path, cache: Path, tmp_path: Path) -> None:
    config, _ = Payload.from_text(payload(plugin, tmp_path).to_text()).load_plugins()
    assert config.plugin == str(plugin)
    assert not cache.exists()


def test_a_file_that_differs_is_refused_by_name(plugin: Path, cache: Path, tmp_path: Path) -> None:
    sent = payload(plugin, tmp_path)
    plugin.write_bytes(plugin.read_bytes() + b"# another reward\r\n")
    with pytest.raises(PluginError, match=r"is not the driver's: the file my own task\.py differs\. Install the same"):
        Payload.from_text(sent.to_text()).load_plugins()


def test_an_installed_plugin_that_the_worker_lacks_is_refused(
    tmp_path: Path, install: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install("rlfactory_greeter")  # type: ignore[operator]
    monkeypatch.syspath_prepend(str(site))
    sent = payload("greeter", tmp_path)
    assert not sent.sources
    text = sent.to_text()
    config, _ = Payload.from_text(text).load_plugins()
    assert config.plugin == "greeter"
    monkeypatch.undo()
    with pytest.raises(PluginError, match="greeter"):
        Payload.from_text(text).load_plugins()
