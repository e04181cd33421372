"""What tests of tasks, tools and rewards need instead of a model, a server and luck.

Everything here is loaded on first use: pytest loads this package in every session, for its fixtures.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlfactory_core.testing.bench import TaskBench
    from rlfactory_core.testing.chat import ToyChatFormat
    from rlfactory_core.testing.checks.result import CheckResult
    from rlfactory_core.testing.faults import FaultInjector
    from rlfactory_core.testing.policies import Policy, constant, guess, oracle
    from rlfactory_core.testing.sampler import ScriptedSampler
    from rlfactory_core.testing.tokenizers import families, tiny_tokenizer

_HOME = {
    "CheckResult": "checks.result",
    "FaultInjector": "faults",
    "Policy": "policies",
    "ScriptedSampler": "sampler",
    "TaskBench": "bench",
    "ToyChatFormat": "chat",
    "constant": "policies",
    "families": "tokenizers",
    "guess": "policies",
    "oracle": "policies",
    "tiny_tokenizer": "tokenizers",
}

__all__ = [
    "CheckResult",
    "FaultInjector",
    "Policy",
    "ScriptedSampler",
    "TaskBench",
    "ToyChatFormat",
    "constant",
    "families",
    "guess",
    "oracle",
    "tiny_tokenizer",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
