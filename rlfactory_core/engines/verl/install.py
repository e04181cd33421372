"""Installs what the verl engine needs, with this interpreter's pip: the same command on a laptop, a server and in CI.

On a CPU it takes two calls of pip, which is why there is a command for it: the requirements, and vLLM's CPU build
without the requirements that it declares (see `pins.CPU_SERVER`). Where pip's index offers torch with CUDA only,
install torch's CPU build before; what is there and fits is left alone.
"""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec

from packaging.requirements import Requirement

from rlfactory_core.engines.checks import with_their_extras
from rlfactory_core.engines.verl.pins import CPU_SERVER, Device, required, unmet
from rlfactory_core.errors import InstallError

Pip = Callable[[list[str]], int]  # its arguments to its exit code
Say = Callable[[str], None]


def server_arguments() -> list[str]:
    """pip's arguments for vLLM's CPU build."""
    return ["install", "--no-deps", CPU_SERVER]


def pip_calls(device: Device) -> list[list[str]]:
    """The arguments of each call of pip that is still to be made, in order; none where everything is right.

    Raises:
        UsageError: what is required is not known (see `pins.required`).
    """
    requirements = required(device)
    calls = []
    if unmet(with_their_extras(requirements)):
        calls.append(["install", *map(str, requirements)])
    if device == "cpu" and unmet([Requirement(CPU_SERVER)]):
        calls.append(server_arguments())
    return calls


def install_for(device: Device, say: Say, pip: Pip | None = None) -> None:
    """Install what is missing or of another version; asks nothing.

    Raises:
        UsageError: what is required is not known.
        InstallError: pip is absent or failed.
    """
    calls = pip_calls(device)
    if not calls:
        say(f"Nothing to install: all that the verl engine needs on {device} is there.")
    for arguments in calls:
        command = in_words(arguments)
        say(f"$ {command}")
        code = (pip or run_pip)(arguments)
        if code != 0:
            raise InstallError(
                f"pip ended with exit code {code}; what it says above is the reason. Nothing after this command was "
                f"installed; run it by itself to try again: {command}"
            )
    importlib.invalidate_caches()


def run_pip(arguments: list[str]) -> int:
    """Run this interpreter's pip, its output shown as it comes; returns its exit code.

    Raises:
        InstallError: there is no pip.
    """
    if find_spec("pip") is None:
        raise InstallError(
            f"The interpreter {sys.executable} has no pip. Get one with `{shlex.quote(sys.executable)} -m ensurepip`, "
            "or run the command above with your own installer."
        )
    return subprocess.run([sys.executable, "-m", "pip", *arguments], check=False).returncode  # noqa: S603


def in_words(arguments: list[str]) -> str:
    """The command as a person would paste it into a shell, for this very interpreter."""
    return shlex.join([sys.executable, "-m", "pip", *arguments])
