"""The program of a process that compares answers: for each line that it reads, it writes one.

sympy can compute without end on what a policy writes, such as 9^{9^{9^9}}. The kernel ends a process that has had its
seconds of CPU time for one comparison, so that neither a busy machine nor a C function without signals matters. The
process only parses and computes: math-verify evaluates no names or calls of an answer.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from rlfactory_core.rewards.maths.compare import same

_MEMORY = 2 << 30  # bytes of address space


def main() -> None:
    """Answer until the input ends. Argument: seconds of CPU time for one comparison."""
    cpu_s = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    same(r"\frac{1}{2}", "0.5")  # loads what a comparison needs
    for asked in sys.stdin:
        # Whole seconds, and one more for what the process has begun of the current one.
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + cpu_s + 1, -1))
        sys.stdout.write(json.dumps(_answered(json.loads(asked))) + "\n")
        sys.stdout.flush()


def _answered(asked: dict[str, Any]) -> dict[str, Any]:
    """Whether an answer is one of the golds; ``error``: it cannot be computed."""
    try:
        return {"same": any(same(gold, asked["answer"]) for gold in asked["golds"])}
    except (Exception, RecursionError) as error:  # noqa: BLE001 sympy may raise anything for what a policy writes
        return {"same": False, "error": f"{type(error).__name__}: {error}"[:200]}
