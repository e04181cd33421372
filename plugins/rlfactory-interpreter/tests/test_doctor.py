"""``rlfactory doctor`` on this machine: what it says of the code interpreter's guards."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from click.testing import CliRunner
from rlfactory_interpreter import forkserver

from rlfactory_core.cli.doctor import doctor

ALL = "ok       interpreter   the model's code is guarded: files, memory, network, processes"
SOME = "note     interpreter   the model's code is guarded: files, memory; not network (no seccomp); not processes (x)"


@pytest.mark.slow
@pytest.mark.parametrize(("missing", "line"), [({}, ALL), ({"network": "no seccomp", "processes": "x"}, SOME)])
def test_the_guards_that_this_platform_lacks_are_named(
    missing: Mapping[str, str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver, "missing_guards", lambda: missing)
    outcome = CliRunner().invoke(doctor)
    assert outcome.exit_code == 0, outcome.output
    assert line in outcome.output.splitlines()
