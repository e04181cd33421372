"""What tests of tasks, tools and rewards need instead of a model, a server and luck."""

from rlfactory_core.testing.bench import TaskBench
from rlfactory_core.testing.chat import ToyChatFormat
from rlfactory_core.testing.checks.result import CheckResult
from rlfactory_core.testing.faults import FaultInjector
from rlfactory_core.testing.policies import Policy, constant, guess, oracle
from rlfactory_core.testing.sampler import ScriptedSampler

__all__ = [
    "CheckResult",
    "FaultInjector",
    "Policy",
    "ScriptedSampler",
    "TaskBench",
    "ToyChatFormat",
    "constant",
    "guess",
    "oracle",
]
