"""Modules that have moved stay importable under their old names for one minor version of the plugin API."""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "rlfactory_core.advantages": "rlfactory_core.algo.advantages",
    "rlfactory_core.batch": "rlfactory_core.algo.batch",
    "rlfactory_core.chat_rollout": "rlfactory_core.rollout.loop",
    "rlfactory_core.config_load": "rlfactory_core.config.loading",
    "rlfactory_core.data": "rlfactory_core.tasks.data",
    "rlfactory_core.delegates": "rlfactory_agents.tools",
    "rlfactory_core.delegates.agent": "rlfactory_agents.tools.agent",
    "rlfactory_core.delegates.model": "rlfactory_agents.tools.model",
    "rlfactory_core.demonstrated": "rlfactory_core.tasks.demonstrations",
    "rlfactory_core.deprecation": "rlfactory_core.utils.deprecation",
    "rlfactory_core.env": "rlfactory_core.rollout.tool_env",
    "rlfactory_core.evaluation": "rlfactory_core.algo.evaluation",
    "rlfactory_core.generic_task": "rlfactory_core.tasks.generic",
    "rlfactory_core.lazy": "rlfactory_core.plugins.lazy",
    "rlfactory_core.run_context": "rlfactory_core.context",
    "rlfactory_core.runner_eval": "rlfactory_core.runner.evaluating",
    "rlfactory_core.schedule": "rlfactory_core.algo.schedule",
    "rlfactory_core.stopping": "rlfactory_core.utils.interrupt",
    "rlfactory_core.task": "rlfactory_core.tasks.task",
    "rlfactory_core.task_runtime": "rlfactory_core.tasks.runtime",
    "rlfactory_core.testing": "rlfactory_devkit",
    "rlfactory_core.tool_context": "rlfactory_core.context",
    "rlfactory_core.tools.opening": "rlfactory_core.tools.sources",
    "rlfactory_core.tools.pool": "rlfactory_core.utils.threads",
}
"""Old name -> new name, as of plugin API 1.2; they go with 2.0."""
_TESTING = "rlfactory_core.testing."  # its modules moved with it


class OldPaths:
    """Imports a module under its new name. This is a finder and a loader; `importlib.abc` costs 10 ms to import.

    It comes first in ``sys.meta_path``. Otherwise the module in a moved package would be loaded a second time.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        loader: Any = self  # by its methods
        return ModuleSpec(fullname, loader) if fullname in MOVED or fullname.startswith(_TESTING) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        from rlfactory_core.utils.deprecation import warn_deprecated

        new = MOVED.get(spec.name) or f"{MOVED[_TESTING[:-1]]}.{spec.name.removeprefix(_TESTING)}"
        warn_deprecated(spec.name, since="1.2", until="2.0", instead=new)
        try:
            module = import_module(new)
        except ModuleNotFoundError as error:
            package = new.partition(".")[0]
            if error.name != package:
                raise
            name = package.replace("_", "-")
            hint = f"{spec.name} is in a package that is not installed: python -m pip install {name}"
            raise ModuleNotFoundError(hint, name=spec.name) from error
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has run under its new name, and keeps the spec that it has there."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
