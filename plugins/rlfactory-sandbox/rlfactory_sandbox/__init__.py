"""Processes that run code or SQL which nobody has read.

A `ForkServer` starts and ends them, `guards` confines them, and a `Pool` of them runs jobs. `supervisor`, `guards` and
what these import need nothing but the standard library, so that a process that must know nothing of this program can
load them without the rest of the package.
"""

from rlfactory_sandbox.forkserver import ForkServer
from rlfactory_sandbox.pool import Pool, WorkerLostError
from rlfactory_sandbox.process import Ending, Process

__all__ = ["Ending", "ForkServer", "Pool", "Process", "WorkerLostError"]
