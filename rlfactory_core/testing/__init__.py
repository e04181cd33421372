"""What tests of tasks, tools and rewards need instead of a model, a server and luck."""

from rlfactory_core.testing.chat import ToyChatFormat
from rlfactory_core.testing.faults import FaultInjector
from rlfactory_core.testing.sampler import ScriptedSampler

__all__ = ["FaultInjector", "ScriptedSampler", "ToyChatFormat"]
