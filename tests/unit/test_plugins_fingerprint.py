"""A worker runs what the driver runs, or refuses and says which file differs."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from rlfactory_core.errors import PluginError
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.plugins.registry import Registry

ROOT = Path(__file__).parent.parent.parent

DRIVER = Fingerprint("d:p", "d", "1.0", {"p/a.py": "1", "p/b.py": "2"})


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        (DRIVER, None),
        (replace(DRIVER, version="1.1"), "the driver has d 1.0, this worker d 1.1"),
        (replace(DRIVER, files={"p/a.py": "1", "p/b.py": "9"}), "the file p/b.py differs"),
        (replace(DRIVER, files={"p/a.py": "1"}), "the file p/b.py is missing here"),
        (replace(DRIVER, files={**DRIVER.files, "p/c.py": "3"}), "the file p/c.py is not on the driver"),
    ],
)
def test_the_difference_is_named(worker: Fingerprint, words: str | None) -> None:
    assert DRIVER.difference(worker) == words
    assert (DRIVER.digest == worker.digest) == (words is None)


def test_it_crosses_processes_and_goes_into_json() -> None:
    assert pickle.loads(pickle.dumps(DRIVER)) == DRIVER
    assert Fingerprint(**json.loads(json.dumps(asdict(DRIVER)))) == DRIVER


WORKER = """
import json, pickle, sys
from rlfactory_core.errors import PluginError
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.plugins.registry import Registry
fingerprints, payload = pickle.load(sys.stdin.buffer)
try:
    Registry().load_for_worker(fingerprints)
except PluginError as error:
    sys.exit(str(error))
print(type(pickle.loads(payload)).__name__ if payload else "the same")
"""


def in_worker(
    fingerprints: tuple[Fingerprint, ...], payload: bytes, *paths: Path
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", WORKER],
        input=pickle.dumps((fingerprints, payload)),
        env={"PYTHONPATH": ":".join(str(path) for path in (*paths, ROOT))},
        capture_output=True,
        timeout=60,
        check=False,
    )


def driver(site: Path) -> tuple[Fingerprint, ...]:
    """What a driver process with this site directory sends."""
    code = (
        "import pickle, sys; from rlfactory_core.plugins.registry import Registry; registry = Registry(); "
        "registry.task('greeter'); sys.stdout.buffer.write(pickle.dumps(registry.fingerprints()))"
    )
    env = {"PYTHONPATH": f"{site}:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, timeout=60, check=True)
    fingerprints: tuple[Fingerprint, ...] = pickle.loads(done.stdout)
    return fingerprints


@pytest.mark.slow
def test_a_worker_with_another_file_refuses_and_names_it(install: Callable[..., Path]) -> None:
    site = install("rlfactory_greeter")
    fingerprints = driver(site)
    assert {item.distribution for item in fingerprints} == {"rlfactory-core", "rlfactory-greeter"}
    assert in_worker(fingerprints, b"", site).stdout == b"the same\n"

    changed = site / "rlfactory_greeter" / "plugin.py"
    changed.write_text(changed.read_text() + "\n# edited on this machine only\n")
    refused = in_worker(fingerprints, b"", site)
    assert refused.returncode == 1
    assert (
        b"'greeter' (rlfactory-greeter 1.0) is not the driver's: the file rlfactory_greeter/plugin.py" in refused.stderr
    )


def test_a_worker_without_the_plugin_refuses(install: Callable[..., Path]) -> None:
    refused = in_worker(driver(install("rlfactory_greeter")), b"")
    assert b"No plugin 'rlfactory-greeter:greeter' is installed" in refused.stderr


def test_what_a_file_defines_reaches_a_worker(tmp_path: Path) -> None:
    file = tmp_path / "task.py"
    file.write_text(
        "from rlfactory_core.hookspecs import hookimpl\n"
        "class Countdown: ...\n"
        "@hookimpl\n"
        "def rlfactory_tasks(register): register('countdown', Countdown)\n"
    )
    registry = Registry([])
    payload = pickle.dumps(registry.task(str(file)).factory())
    done = in_worker(registry.fingerprints(), payload)
    assert (done.stdout, done.stderr) == (b"Countdown\n", b"")
    with pytest.raises(PluginError, match=r"the file task\.py differs"):
        Registry([]).load_for_worker([replace(registry.fingerprints()[1], files={"task.py": "0" * 64})])
