"""`rlfactory run` and `rlfactory eval`, from Python: resolve a configuration, train, resume, evaluate.

`TaskBench` plays a task without an engine, by a policy such as `oracle`.
"""

from rlfactory_core.runner.bench import TaskBench
from rlfactory_core.runner.policies import Policy, PolicyModel, constant, guess, oracle, script
from rlfactory_core.runner.resolving import Prepared, Resolved, prepare, read, resolve
from rlfactory_core.runner.training import resume, resume_or_start, run

__all__ = [
    "Policy",
    "PolicyModel",
    "Prepared",
    "Resolved",
    "TaskBench",
    "constant",
    "guess",
    "oracle",
    "prepare",
    "read",
    "resolve",
    "resume",
    "resume_or_start",
    "run",
    "script",
]
