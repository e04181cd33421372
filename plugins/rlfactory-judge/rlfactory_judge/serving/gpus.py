"""The GPUs that this process may use, found without loading torch."""

from __future__ import annotations

import os
import shutil
import subprocess

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_PATIENCE_S = 30.0


def visible_gpus() -> tuple[str, ...]:
    """As ``CUDA_VISIBLE_DEVICES`` names them; all of the machine's where that is not set."""
    if _VARIABLE in os.environ:
        named = [name.strip() for name in os.environ[_VARIABLE].split(",")]
        # CUDA ignores what stands behind the first name that is none.
        ends = next((position for position, name in enumerate(named) if name in ("", "-1")), len(named))
        return tuple(named[:ends])
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = [program, "--query-gpu=index", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(found.stdout.split())
