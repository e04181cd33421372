"""What the core has for tests of a task: a bench on which policies without a model play it."""

from rlfactory_core.chat import ToyChatFormat
from rlfactory_core.runner import Policy, TaskBench, constant, guess, oracle, script

__all__ = ["Policy", "TaskBench", "ToyChatFormat", "constant", "guess", "oracle", "script"]
