"""Fills in the variables of a server's configuration, and finds what only another program would fill in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-((?:(?!\$\{)[^}])*))?\}|\$\{(/)\}")
_KNOWN = {"userHome": "HOME"}  # VS Code and Cursor have values for these two
_SEPARATOR = "pathSeparator"
_FOLDERS = {"workspaceFolder", "workspaceFolderBasename", "CLAUDE_PROJECT_DIR", "CLAUDE_PLUGIN_ROOT", "extensionPath"}

_SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "pwsh", "powershell"}
# No shell fills these in either.
_FOREIGN = r"\$\{\{[^}]*\}\}|\$\{\w+:[A-Za-z][^}]*\}|\{\{\s*[\w.-]+\s*\}\}|(?<!\$)\{(?:env|file):[^{}]+\}"
_IN_SCRIPT = re.compile(_FOREIGN)
_IN_TEXT = re.compile(
    rf"{_FOREIGN}|\$\{{[^}}]*\}}?|\$env:\w+|\$\([A-Za-z_/][^)]*\)|\$(?P<plain>[A-Za-z_]\w*)|%[A-Z_][A-Z0-9_]{{3,}}%"
)
_WHOLE = re.compile(r"(?i)(?:bearer |token )?<[^<>]+>")
_WHOLE_VALUE = re.compile(r"(?i)(?:bearer |token )?your[-_][\w-]+")  # of a variable or a header
_PREFIX = re.compile(r"(?:env|input|inputs|secrets|vars|command|config|file)[.:]")


@dataclass(slots=True)
class Filler:
    """Fills in the texts of one server, and collects what is wrong with them."""

    server: str
    words: tuple[str, ...]  # the command and its arguments, as they are written
    environ: Mapping[str, str]
    values: set[str] = field(default_factory=set)  # of the variables, which may be secret
    problems: list[str] = field(default_factory=list)

    def fill(self, key: str, text: str) -> str:
        """The text with its variables' values, in which nothing more is filled in."""
        parts: list[str] = []
        position = 0
        for found in _VARIABLE.finditer(text):
            parts += [text[position : found.start()], self._value(key, found)]
            position = found.end()
        parts.append(text[position:])
        for placeholder in self._unfilled(key, text, parts[::2]):
            self.problems.append(
                f"MCP server {self.server!r}: {key} has {placeholder}, which nothing fills in here. "
                f"Set an environment variable and write ${{{_name(placeholder)}}}."
            )
        return "".join(parts)

    def _value(self, key: str, found: re.Match[str]) -> str:
        name, default = _KNOWN.get(found[1], found[1]), found[2]
        if found[3] or name == _SEPARATOR:
            return os.sep
        value = self.environ.get(name)
        if default is not None and not value:
            return str(default)
        if value is None:
            remedy = "Write the folder" if name in _FOLDERS else f"Set it, or write ${{{name}:-default}}"
            self.problems.append(
                f"MCP server {self.server!r}: {key} needs the environment variable {name}, which is not set. {remedy}."
            )
            return ""
        self.values.add(value)
        return value

    def _unfilled(self, key: str, text: str, parts: list[str]) -> Iterator[str]:
        """The placeholders of other programs in the parts of a text that are not of variables."""
        if _WHOLE.fullmatch(text) or (key.startswith(("env.", "headers.")) and _WHOLE_VALUE.fullmatch(text)):
            yield text
        script = key.startswith("args") and any(PurePath(word).name in _SHELLS for word in self.words)  # `env bash -c`
        for part in parts:
            for found in (_IN_SCRIPT if script else _IN_TEXT).finditer(part):
                plain = None if script else found["plain"]
                if plain and not plain.isupper() and plain not in self.environ:
                    continue  # such as a password with a dollar sign
                if key == "url" and found[0].startswith("%"):
                    continue  # encoded characters
                yield found[0]


def _name(placeholder: str) -> str:
    """The name that an environment variable for it may have."""
    inner = re.sub(r"^(?i:bearer |token )?[\s${%<]*|[\s}%>]*$", "", placeholder)
    bare = _PREFIX.sub("", inner, count=1)
    if bare == inner and placeholder.startswith("${") and not placeholder.startswith("${{"):
        bare = re.split(r"\W", inner, maxsplit=1)[0]  # an operator of a shell follows the name
    return re.sub(r"\W+", "_", bare).strip("_").upper() or "NAME"
