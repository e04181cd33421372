"""Limits of one trajectory's interpreter."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from rlfactory_core.errors import UsageError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class InterpreterLimits:
    """Limits of time and output are per call, the others per trajectory.

    Raises:
        UsageError: a limit that is not a positive number.
    """

    seconds: float = 20.0  # wall-clock time per call; then the process is killed
    cpu_s: float = 10.0  # processor time per call; below `seconds`, so that a busy machine rarely decides
    memory_mb: float = 1024.0  # address space, preloaded modules included; more than the memory in use
    file_mb: float = 64.0  # size of each file
    scratch_mb: float = 256.0  # all named files together; checked four times a second, so a short excess is possible
    scratch_entries: int = 1000  # files and directories; checked likewise
    open_files: int = 64
    threads: int = 32  # checked likewise
    output_bytes: int = 3000  # per call; the middle is cut. The tool's ``max_result_tokens`` applies afterwards

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            whole = item.type == "int"
            if not (isinstance(value, int if whole else int | float) and math.isfinite(value) and value > 0):
                kind = "whole number" if whole else "number"
                raise UsageError(f"code_interpreter: {item.name} must be a positive {kind}, got {value!r}.")
