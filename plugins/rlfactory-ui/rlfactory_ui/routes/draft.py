"""A run that is not started yet: what the form of a new run says, as words of the command line."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rlfactory_core.errors import UsageError
from rlfactory_ui.catalogue import is_name
from rlfactory_ui.pages import OPTIONS, Form, first


@dataclass(frozen=True, slots=True)
class Draft:
    """A run as the form describes it."""

    name: str
    words: tuple[str, ...]  # of the task, the data and the training: what `run`, `tools` and the others share

    @classmethod
    def of(cls, form: Form, runs: Path) -> Draft:
        """
        Raises:
            UsageError: the run's name is no name of a folder.
        """
        plugin = first(form, "plugin")
        agent = Path((_split(form, "agent") or ["none"])[-1]).stem
        name = first(form, "name") or f"{time.strftime('%Y%m%d-%H%M%S')}-{Path(plugin).stem or agent}"
        if not is_name(name) or name.startswith(".") or (runs / name).exists():
            raise UsageError(f"The run's name: got '{name}', expected the name of a new folder in {runs}.")
        return cls(name, tuple(words_of(form)))

    def command(self, runs: Path) -> list[str]:
        return ["run", *self.words, "--out", str(runs / self.name)]


def words_of(form: Form) -> Iterator[str]:
    for name in OPTIONS:
        if value := first(form, name):
            yield from (f"--{name}", value)
    for line in first(form, "rewards").splitlines():
        if line.strip():
            yield from ("--reward", line.strip())
    for name, values in form.items():
        if name.startswith("key.") and (value := values[0].strip()):
            yield f"{name.removeprefix('key.')}={value}"
    disabled = [name for name in form.get("disabled", []) if name]
    if disabled or ("disabled" in form and (first(form, "config") or first(form, "recipe"))):
        yield f"tools.disabled={json.dumps(disabled)}"
    yield from _split(form, "keys")


def _split(form: Form, name: str) -> list[str]:
    """A field as a shell would split it.

    Raises:
        UsageError: a quote is not closed.
    """
    try:
        return shlex.split(first(form, name))
    except ValueError as error:
        raise UsageError(f"The field {name}: {error}.") from error


def tool_words(words: Sequence[str]) -> list[str]:
    """Those that `rlfactory tools` takes, too."""
    known = ("--plugin", "--mcp", "--config")
    taken = [each for word, value in pairwise([*words, ""]) if word in known for each in (word, value)]
    return taken + [word for word in words if "=" in word and word.startswith(("task.", "tools."))]
