"""What tests of tasks, tools and rewards need instead of a model, a server and luck.

Everything here is loaded on first use: pytest loads this package in every session, for its fixtures.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlfactory_core.testing.assertions import (
        assert_called,
        assert_masks,
        assert_not_masked,
        assert_reward,
        assert_stop,
        show,
    )
    from rlfactory_core.testing.bench import TaskBench
    from rlfactory_core.testing.chat import ToyChatFormat
    from rlfactory_core.testing.checking import check_plugin
    from rlfactory_core.testing.checks.result import CheckResult
    from rlfactory_core.testing.faults import FaultInjector, lognormal, steady
    from rlfactory_core.testing.policies import Policy, constant, guess, oracle, script
    from rlfactory_core.testing.redteam import run_redteam
    from rlfactory_core.testing.sampler import ScriptedSampler
    from rlfactory_core.testing.tokenizer_kinds import TokenizerKind
    from rlfactory_core.testing.tokenizers import build_tokenizer, families, tiny_tokenizer

_HOME = {
    "TokenizerKind": "tokenizer_kinds",
    "build_tokenizer": "tokenizers",
    "run_redteam": "redteam",
    "CheckResult": "checks.result",
    "FaultInjector": "faults",
    "Policy": "policies",
    "ScriptedSampler": "sampler",
    "TaskBench": "bench",
    "ToyChatFormat": "chat",
    "assert_called": "assertions",
    "assert_masks": "assertions",
    "assert_not_masked": "assertions",
    "assert_reward": "assertions",
    "assert_stop": "assertions",
    "check_plugin": "checking",
    "constant": "policies",
    "families": "tokenizers",
    "guess": "policies",
    "lognormal": "faults",
    "oracle": "policies",
    "script": "policies",
    "show": "assertions",
    "steady": "faults",
    "tiny_tokenizer": "tokenizers",
}

__all__ = [
    "CheckResult",
    "FaultInjector",
    "Policy",
    "ScriptedSampler",
    "TaskBench",
    "TokenizerKind",
    "ToyChatFormat",
    "assert_called",
    "assert_masks",
    "assert_not_masked",
    "assert_reward",
    "assert_stop",
    "build_tokenizer",
    "check_plugin",
    "constant",
    "families",
    "guess",
    "lognormal",
    "oracle",
    "run_redteam",
    "script",
    "show",
    "steady",
    "tiny_tokenizer",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
