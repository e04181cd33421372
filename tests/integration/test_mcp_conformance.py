"""The verdict of the MCP conformance suite on our client, for what our client does: it offers and calls tools."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from real_servers import NODE, SERVERS, needs_servers

pytestmark = [needs_servers, pytest.mark.usefixtures("nothing_left")]

CLIENT = Path(__file__).parents[1] / "support" / "conformance_client.py"
SUITE = [NODE, f"{SERVERS}/node_modules/.bin/conformance"]
OURS = ["initialize", "tools_call", "sse-retry"]
NOT_OURS = {
    "auth/": "OAuth needs a person and a browser; a training run sends the fixed `headers` of its configuration",
    "elicitation-": "nobody sits at a training run to be asked; the client does not claim the capability",
}


def test_every_scenario_is_run_or_has_a_reason_not_to_be() -> None:
    listed = subprocess.run([*SUITE, "list", "--client"], capture_output=True, text=True, check=True).stdout
    names = [line.split()[1] for line in listed.splitlines() if line.startswith("  - ")]
    rest = [name for name in names if not name.startswith(tuple(NOT_OURS))]
    assert sorted(rest) == sorted(OURS)


@pytest.mark.parametrize("scenario", OURS)
def test_the_suite_is_content(scenario: str, tmp_path: Path) -> None:
    command = shlex.join([sys.executable, str(CLIENT)])
    run = subprocess.run(
        [*SUITE, "client", "--command", command, "--scenario", scenario, "--output-dir", str(tmp_path / "results")],
        capture_output=True,
        text=True,
        check=False,
    )
    (file,) = (tmp_path / "results").rglob("checks.json")
    verdicts = {check["id"]: check["status"] for check in json.loads(file.read_text()) if check["status"] != "INFO"}
    assert set(verdicts.values()) == {"SUCCESS"}, f"{verdicts}\n{run.stdout}\n{run.stderr}"
    assert run.returncode == 0, run.stdout + run.stderr
