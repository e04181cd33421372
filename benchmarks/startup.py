"""What starting the command line costs: CPU time of a process, beside Python alone.

    python benchmarks/startup.py         # writes benchmarks/results/startup.md

User and system time of the process, the best of many starts, with compiled modules, as pip leaves them.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import describe, finish, publish, sized

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from plugin_sites import many_plugins  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "startup.md"
PLUGINS = 30
STARTS = sized(30, 2)
BAR_MS = 150.0
LISTING = f"rlfactory plugins list, {PLUGINS} plugins"
COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "python -c 'import rlfactory_core'": ("-c", "import rlfactory_core"),
    "rlfactory --help": ("-m", "rlfactory_core", "--help"),
    LISTING: ("-m", "rlfactory_core", "plugins", "list"),
}


def best_ms(arguments: tuple[str, ...], environment: dict[str, str]) -> float:
    """Milliseconds of CPU time of the cheapest start; the first one, which compiles, does not count."""
    costs: list[float] = []
    for _ in range(STARTS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(costs[1:]) * 1e3


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        path = os.pathsep.join((str(many_plugins(Path(place) / "site", PLUGINS)), str(ROOT)))
        cache = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{place}/cache"}
        environment = {**os.environ, **cache, "PYTHONPATH": path}
        costs = {name: best_ms(arguments, environment) for name, arguments in COMMANDS.items()}
    rows = [
        f"| `{name}` | {cost:.0f} | {f'≤ {BAR_MS:.0f}' if name == LISTING else ''} |" for name, cost in costs.items()
    ]
    lines = [
        "# Starting the command line",
        "",
        f"`python benchmarks/startup.py`: milliseconds of CPU time, the best of {STARTS} starts.",
        "",
        "| what | ms | bar |",
        "|---|---|---|",
        *rows,
        "",
        f"Machine: {describe('click', 'pluggy')}.",
    ]
    publish(RESULTS, "\n".join(lines) + "\n")
    finish(held=costs[LISTING] <= BAR_MS)


if __name__ == "__main__":
    main()
