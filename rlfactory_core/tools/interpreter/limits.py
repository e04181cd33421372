"""What one trajectory's interpreter may use."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from rlfactory_core.errors import UsageError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class InterpreterLimits:
    """Per call or, where nothing else is said, per trajectory.

    Raises:
        UsageError: a limit that is not a positive number.
    """

    seconds: float = 20.0  # by the clock, per call; then the process is killed
    cpu_s: float = 10.0  # of processor time, per call; sooner than the clock's, so that a busy machine decides less
    memory_mb: float = 1024.0  # of address space, preloaded modules included: more than the memory in use
    file_mb: float = 64.0  # each file
    scratch_mb: float = 256.0  # all files with a name; looked at four times a second: for a moment it can be more
    scratch_entries: int = 1000  # files and directories; looked at likewise
    open_files: int = 64
    threads: int = 32  # looked at likewise
    output_bytes: int = 3000  # per call; the middle is left out. The tool's ``max_result_tokens`` cuts after that

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            whole = item.type == "int"
            if not (isinstance(value, int if whole else int | float) and math.isfinite(value) and value > 0):
                kind = "whole number" if whole else "number"
                raise UsageError(f"code_interpreter: {item.name} must be a positive {kind}, got {value!r}.")
