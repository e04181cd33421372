"""Installs what the verl engine needs, with this interpreter's pip: the same command on a laptop, a server and in CI.

On a CPU this takes two calls of pip: one for the requirements, and one for vLLM's CPU build without its declared
requirements (see `requirements.CPU_SERVER`). If pip's index has torch with CUDA only, install torch's CPU build before;
installed packages that fit are not changed.
"""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec

from packaging.requirements import Requirement

from rlfactory_core.errors import InstallError
from rlfactory_core.plugins.diagnostics import with_their_extras
from rlfactory_verl.doctor.requirements import CPU_SERVER, Device, required, unmet

Pip = Callable[[list[str]], int]  # its arguments to its exit code
Say = Callable[[str], None]


def server_arguments() -> list[str]:
    """pip's arguments for vLLM's CPU build."""
    return ["install", "--no-deps", CPU_SERVER]


def pip_calls(device: Device) -> list[list[str]]:
    """The arguments of each necessary call of pip, in order; empty if everything is installed.

    Raises:
        UsageError: the requirements are unknown (see `requirements.required`).
    """
    requirements = required(device)
    calls = []
    if unmet(with_their_extras(requirements)):
        calls.append(["install", *map(str, requirements)])
    if device == "cpu" and unmet([Requirement(CPU_SERVER)]):
        calls.append(server_arguments())
    return calls


def install_for(device: Device, say: Say, pip: Pip | None = None) -> None:
    """Install what is missing or has a wrong version, without questions.

    Raises:
        UsageError: the requirements are unknown.
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
                f"pip ended with exit code {code}; its output above has the reason. Nothing after this command was "
                f"installed; run it by itself to try again: {command}"
            )
    importlib.invalidate_caches()


def run_pip(arguments: list[str]) -> int:
    """Run this interpreter's pip and show its output at once; returns its exit code.

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
    """The command for this interpreter as it can be pasted into a shell."""
    return shlex.join([sys.executable, "-m", "pip", *arguments])
