"""The names of a new plugin as distribution, package and class, and which names are not allowed."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from rlfactory_core.errors import UsageError
from rlfactory_core.plugins import discover

LONGEST = 30  # characters, so that lines of the templates with the name do not become too long
RESERVED = {"builtin", "doctor", "eval", "new", "plugins", "run", "tests", "data", "tools", "trace"}
"""Names of the core's own parts and commands, and of folders in the package."""
_KINDS = ("Task", "Verifier", "Format", "Engine", "Env", "Scorer")
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Names:
    """One name, as distribution and entry point (``my-task``), package (``my_task``) and class (``MyTask``)."""

    name: str
    package: str
    class_name: str

    def part(self, kind: str) -> str:
        """The class of one of several parts, ``MyFormat`` for ``Format``, of whatever kind the plugin's own name is."""
        stem = next((s for each in _KINDS if (s := self.class_name.removesuffix(each)) != self.class_name), "")
        return (stem or self.class_name) + kind


def names_of(name: str) -> Names:
    """The names of a new plugin."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST:
        proposal = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:LONGEST].rstrip("-")
        raise UsageError(
            f"'{name}' cannot be a plugin's name. Expected at most {LONGEST} lower-case letters and digits, in words "
            f"with - or _ between them, a letter first, such as {proposal if _NAME.fullmatch(proposal) else 'my-task'}."
        )
    if name in RESERVED:
        raise UsageError(f"'{name}' cannot be a plugin's name: rlfactory has something of that name. Choose another.")
    package = name.replace("-", "_")
    if keyword.iskeyword(package) or package in sys.stdlib_module_names:
        raise UsageError(f"'{name}' cannot be a plugin's name: in Python, '{package}' is taken. Choose another.")
    for entry in discover():
        if name in (entry.name, entry.distribution):
            raise UsageError(f"'{name}' is the name of an installed plugin, {entry}. Choose another, or uninstall it.")
    if find_spec(package) is not None:
        raise UsageError(
            f"'{name}' cannot be a plugin's name here: a package '{package}' is installed, and one of them would hide "
            "the other. Choose another name."
        )
    return Names(name, package, "".join(word.capitalize() for word in package.split("_")))
