"""``--plugin ./my_task.py``: a plugin that is one file, without packaging.

The module's name holds a hash of the file's content. So two files of one name do not meet, and what the module
defines can be pickled to any process that has loaded the same content, wherever the file lies there.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from rlfactory_core.errors import PluginError
from rlfactory_core.plugins.discovery import PluginEntry


def is_file(spec: str) -> bool:
    """Whether a ``--plugin`` value means a file: it ends with .py, or has a directory in it."""
    return spec.endswith(".py") or os.sep in spec


def file_entry(spec: str) -> PluginEntry:
    """The plugin in a file.

    Raises:
        PluginError: no such file, or not Python by its name.
    """
    path = Path(spec).expanduser().resolve()
    if path.suffix != ".py" or not path.is_file():
        raise PluginError(f"No plugin file {path}. Expected a Python file, such as --plugin ./my_task.py.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    module = f"rlfactory_file_{re.sub(r'[^0-9A-Za-z]', '_', path.stem)}_{digest}"
    return PluginEntry(path.stem, path.name, "", module, file=str(path))


def import_file(name: str, file: str) -> ModuleType:
    """Run the file as module ``name``, once a process."""
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"no loader for {file}")
    module = module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as an import does: dataclasses and pickle look modules up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
