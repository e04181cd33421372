"""`rlfactory run` and `rlfactory eval`, from Python: resolve a configuration, train, resume, evaluate."""

from rlfactory_core.runner.resolving import Prepared, Resolved, prepare, read, resolve
from rlfactory_core.runner.training import resume, resume_or_start, run

__all__ = ["Prepared", "Resolved", "prepare", "read", "resolve", "resume", "resume_or_start", "run"]
