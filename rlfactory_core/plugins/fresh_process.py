"""Whether a Python process that starts from nothing, as a worker does, finds the same plugins with the same files.

It does not where a plugin is only found from the folder that the command was started in, or writes into its own
package as it is imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict

from rlfactory_core.errors import PluginError
from rlfactory_core.plugins.fingerprint import Fingerprint

DEADLINE_S = 120.0


def differences(fingerprints: Iterable[Fingerprint], deadline_s: float = DEADLINE_S) -> Mapping[str, str]:
    """What such a process would refuse to start over, by the plugin's qualified name; nothing where all is the same."""
    asked = list(fingerprints)
    try:
        with tempfile.TemporaryDirectory() as elsewhere:
            done = subprocess.run(  # noqa: S603 - this Python and this module
                [sys.executable, "-m", __name__],
                input=json.dumps([asdict(item) for item in asked]),
                cwd=elsewhere,
                capture_output=True,
                text=True,
                timeout=deadline_s,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return {item.plugin: f"A fresh process did not load the plugins within {deadline_s:g} s." for item in asked}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {item.plugin: f"A fresh process could not look for the plugins: {last}" for item in asked}
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _answer(fingerprints: Iterable[Fingerprint]) -> dict[str, str]:
    from rlfactory_core.plugins.registry import Registry

    registry = Registry()
    refused = {}
    for item in fingerprints:
        try:
            registry.load_for_worker([item])
        except PluginError as error:
            refused[item.plugin] = str(error)
    return refused


def main() -> None:
    """In that process: fingerprints as JSON on its input, what it refuses on its output."""
    with redirect_stdout(sys.stderr):  # a plugin may say something as it is imported
        refused = _answer(Fingerprint(**item) for item in json.load(sys.stdin))
    sys.stdout.write(json.dumps(refused))


if __name__ == "__main__":
    main()
