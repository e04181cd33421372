"""``rlfactory doctor``: which guards around the model's code this machine supports."""

from __future__ import annotations

from collections.abc import Iterator

from rlfactory_core.plugins.diagnostics import Check, DoctorRequest
from rlfactory_interpreter import forkserver
from rlfactory_interpreter.tool import GUARDS


def diagnose(request: DoctorRequest) -> Iterator[Check]:
    """Report the guards that a new process could enable, and those that it could not."""
    missing = forkserver.missing_guards()
    guarded = ", ".join(guard for guard in GUARDS if guard not in missing) or "nothing"
    lacking = "".join(f"; not {guard} ({reason})" for guard, reason in sorted(missing.items()))
    yield Check("note" if missing else "ok", "interpreter", f"the model's code is guarded: {guarded}{lacking}")
