"""A task's own options on the command line, so that a plugin's options need nothing in the core."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rlfactory_core.errors import UsageError

_OPTION = re.compile(r"--([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_NUMBER = re.compile(r"-[\d.]")


def task_options(args: Sequence[str]) -> list[str]:
    """What a command did not know, as overrides.

    ``--top-k 3`` and ``--top-k=3`` become ``task.top_k=3``, ``--verbose`` alone ``task.verbose=true``, and
    ``train.lr=3e-4`` stays as it is.

    Raises:
        UsageError: anything else, such as a short option or a word without ``=``.
    """
    return list(_overrides(list(args)))


def _overrides(args: list[str]) -> Iterator[str]:
    while args:
        word = args.pop(0)
        option = _OPTION.fullmatch(word)
        if option:
            name, value = option.groups()
            if value is None:
                value = args.pop(0) if args and _is_value(args[0]) else "true"
            yield f"task.{name.replace('-', '_')}={value}"
        elif "=" in word and not word.startswith("-"):
            yield word
        else:
            raise UsageError(
                f"Got '{word}'; expected an option of the task such as --top-k 3, or KEY=VALUE such as train.lr=3e-4."
            )


def _is_value(word: str) -> bool:
    return not word.startswith("-") or word == "-" or bool(_NUMBER.match(word))
